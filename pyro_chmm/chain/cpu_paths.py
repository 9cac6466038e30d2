"""Paths through a document: the most probable one, draws from the posterior, the step at which none is left. Float64, log space."""

from typing import Any

import numpy as np

from pyro_chmm.chain.compiled import kernel
from pyro_chmm.chain.cpu_careful import forward, log_probabilities, log_sum

INF = np.inf


@kernel
def viterbi(
    initial: Any,
    transition: Any,
    log_emission: Any,
    offsets: Any,
    logits: bool,
    paths: Any,
    scores: Any,
    first: int,
    last: int,
) -> None:
    """Documents ``first`` to ``last``: ``paths`` (N) int64, ``scores`` (B); NaN scores where an input is not a number."""
    labels = len(initial)
    log_p = np.empty((labels, labels))
    for document in range(first, last):
        begin, end = offsets[document], offsets[document + 1]
        if begin == end:
            continue
        best, following = np.empty(labels), np.empty(labels)
        for i in range(labels):
            best[i] = np.log(np.float64(initial[i]))
        pointers = np.empty((end - begin, labels), np.uint8)
        broken = False
        for t in range(begin, end):
            log_probabilities(transition[t], logits, best, log_p)
            broken |= _advance(best, log_p, log_emission[t], following, pointers[t - begin])
            best, following = following, best
        label = 0
        for j in range(1, labels):
            label = j if best[j] > best[label] else label
        scores[document] = np.nan if broken else best[label]
        possible = -INF < scores[document] < INF
        for t in range(end - 1, begin - 1, -1):
            paths[t] = label if possible else -1
            label = pointers[t - begin, label]


@kernel
def _advance(best: Any, log_p: Any, log_emission: Any, out: Any, pointers: Any) -> bool:
    """The best scores one step on and where they came from; True if one is NaN or +inf. Ties go to the lowest label."""
    labels = len(best)
    broken = False
    for j in range(labels):
        out[j], pointers[j] = -INF, 0
    for i in range(labels):
        for j in range(labels):
            value = best[i] + log_p[i, j]
            broken |= not value < INF
            if value > out[j]:
                out[j] = value
                pointers[j] = i
    for j in range(labels):
        out[j] += log_emission[j]
        broken |= not log_emission[j] < INF
    return broken


@kernel
def sample(
    initial: Any,
    transition: Any,
    log_emission: Any,
    offsets: Any,
    logits: bool,
    uniforms: Any,
    paths: Any,
    first: int,
    last: int,
) -> None:
    """Documents ``first`` to ``last``: ``paths`` (draws, N) int64 from ``uniforms`` (draws, N); -1 for an impossible document."""
    labels = len(initial)
    log_p, theta = np.empty((labels, labels)), np.empty((labels, labels))
    weights = np.empty(labels)
    for document in range(first, last):
        begin, end = offsets[document], offsets[document + 1]
        if begin == end:
            continue
        alpha, past = np.empty((end - begin + 1, labels)), np.empty((end - begin + 1, labels))
        forward(initial, transition, log_emission, begin, logits, log_p, theta, alpha, past)
        possible = -INF < log_sum(alpha[end - begin]) < INF
        for draw in range(len(paths)):
            for t in range(begin, end):
                paths[draw, t] = -1
            if possible:
                paths[draw, end - 1] = _choose(alpha[end - begin], uniforms[draw, end - 1])
        if not possible:
            continue
        for t in range(end - 1, begin, -1):
            log_probabilities(transition[t], logits, alpha[t - begin], log_p)
            for draw in range(len(paths)):
                for i in range(labels):
                    weights[i] = alpha[t - begin, i] + log_p[i, paths[draw, t]]
                paths[draw, t - 1] = _choose(weights, uniforms[draw, t - 1])


@kernel
def _choose(log_weights: Any, uniform: float) -> int:
    """The label at which the running sum of the weights passes ``uniform`` times their total; never one of weight 0."""
    total = log_sum(log_weights)
    running, label = 0.0, 0
    for j in range(len(log_weights)):
        weight = np.exp(log_weights[j] - total)
        if weight > 0:
            label = j
            running += weight
            if running > uniform:
                break
    return label


@kernel
def impossible_step(
    initial: Any,
    transition: Any,
    log_emission: Any,
    offsets: Any,
    logits: bool,
    documents: Any,
    tokens: Any,
    first: int,
    last: int,
) -> None:
    """``tokens`` (B) of ``documents[first:last]``, all of them impossible: the first token after which every alpha is -inf."""
    labels = len(initial)
    log_p, theta = np.empty((labels, labels)), np.empty((labels, labels))
    for k in range(first, last):
        document = documents[k]
        begin, end = offsets[document], offsets[document + 1]
        alpha, past = np.empty((end - begin + 1, labels)), np.empty((end - begin + 1, labels))
        forward(initial, transition, log_emission, begin, logits, log_p, theta, alpha, past)
        for t in range(end - begin):
            if log_sum(alpha[t + 1]) == -INF:
                tokens[document] = t
                break
