"""Forward-backward for eight documents at once, one in each lane of a vector: for batches of documents with few labels.

Everything below is about one step of eight documents. ``x[k]`` of document d stands at ``8 * k + d``, so all arithmetic is between
whole vectors, and none of it mixes documents. Documents of a group have about the same length; one that has ended repeats its last
token with its state frozen, and on the way back its first writes are overwritten by the true ones.
"""

from typing import Any

import numpy as np

from pyro_chmm.chain.compiled import kernel, part
from pyro_chmm.chain.lanes import WIDTH, exp, gather, larger, load, scatter, spread, store, where_below


@kernel
def forward_backward(
    initial: Any,
    transition: Any,
    log_emission: Any,
    offsets: Any,
    documents: Any,
    logits: bool,
    transitions: bool,
    evidence: Any,
    initial_gradient: Any,
    transition_gradient: Any,
    marginals: Any,
    strain: Any,
    first: int,
    last: int,
    slots: int,
    potentials: Any,
    alpha: Any,
    emission: Any,
    scales: Any,
) -> None:
    """Groups ``first`` to ``last`` of ``documents`` (eight each, none empty): fills everything from ``evidence`` to ``strain``.

    Arrays are flat. Work space: ``potentials`` holds the transition probabilities of the last ``slots`` steps (earlier ones are
    computed again on the way back), ``alpha``, ``emission`` and ``scales`` something for every step. ``strain`` (B) is how close
    the scaled probabilities came to the end of their range: see :data:`pyro_chmm.chain.cpu.MOST_STRAIN`.
    """
    labels = len(initial)
    square = labels * labels
    begins, tokens = np.empty(WIDTH, np.int64), np.empty(WIDTH, np.int64)
    lengths = np.empty(WIDTH, initial.dtype)
    beta = np.empty(WIDTH * (labels + WIDTH), initial.dtype)
    for group in range(first, last):
        members = documents[WIDTH * group : WIDTH * (group + 1)]
        steps = 0
        for d in range(WIDTH):
            begins[d] = offsets[members[d]]
            length = offsets[members[d] + 1] - begins[d]
            lengths[d] = length
            steps = max(steps, length)
        kept = max(0, steps - slots)
        for j in range(labels):
            store(alpha, WIDTH * j, initial[j])
        for t in range(steps):
            _place(begins, lengths, t, tokens)
            at = WIDTH * square * max(0, t - kept)
            _probabilities(transition, tokens, labels, logits, potentials, at)
            _forward(log_emission, tokens, lengths, labels, potentials, at, alpha, emission, scales, t)
        for d in range(WIDTH):
            evidence[members[d]] = _log_product(scales, d, int(lengths[d]))
        for j in range(labels):
            store(beta, WIDTH * j, 1.0)
        worst = spread(alpha, 0.0)
        for t in range(steps - 1, -1, -1):
            _place(begins, lengths, t, tokens)
            at = WIDTH * square * max(0, t - kept)
            if t < kept:
                _probabilities(transition, tokens, labels, logits, potentials, at)
            nearness = _marginals(labels, beta, alpha, emission, scales, t)
            worst = worst + where_below(spread(alpha, t), load(lengths, 0), nearness, 0.0)
            scatter(alpha, WIDTH * labels * (t + 1), labels, marginals, tokens)
            _backward(labels, logits, transitions, lengths, potentials, at, alpha, emission, beta, t)
            if transitions:
                scatter(potentials, at, square, transition_gradient, tokens)
        scatter(beta, 0, labels, initial_gradient, members)
        store(scales, 0, worst)
        for d in range(WIDTH):
            strain[members[d]] = scales[d]


@part
def _place(begins: Any, lengths: Any, t: int, tokens: Any) -> None:
    """The packed token at which each document stands in step t: its last one once it has ended."""
    for d in range(WIDTH):
        tokens[d] = begins[d] + min(t, int(lengths[d]) - 1)


@part
def _probabilities(transition: Any, tokens: Any, labels: int, logits: bool, out: Any, at: int) -> None:
    """The transition probabilities (from, to) of one step."""
    gather(transition, tokens, labels * labels, out, at)
    if not logits:
        return
    for i in range(labels):
        row = at + WIDTH * labels * i
        top = load(out, row)
        for j in range(1, labels):
            top = larger(load(out, row + WIDTH * j), top)
        total = spread(out, 0.0)
        for j in range(labels):
            p = exp(load(out, row + WIDTH * j) - top)
            total = total + p
            store(out, row + WIDTH * j, p)
        inverse = 1.0 / total
        for j in range(labels):
            store(out, row + WIDTH * j, load(out, row + WIDTH * j) * inverse)


@part
def _forward(
    log_emission: Any,
    tokens: Any,
    lengths: Any,
    labels: int,
    potentials: Any,
    at: int,
    alpha: Any,
    emission: Any,
    scales: Any,
    t: int,
) -> None:
    """alpha of step t from that of t - 1; leaves emission / scale and, in ``scales``, the scale and the log maximum taken out."""
    here, there = WIDTH * labels * t, WIDTH * labels * (t + 1)
    gather(log_emission, tokens, labels, emission, here)
    top = load(emission, here)
    for j in range(1, labels):
        top = larger(load(emission, here + WIDTH * j), top)
    scale = spread(alpha, 0.0)
    for j in range(labels):
        predicted = load(alpha, here) * load(potentials, at + WIDTH * j)
        for i in range(1, labels):
            p = load(potentials, at + WIDTH * (labels * i + j))
            predicted = predicted + load(alpha, here + WIDTH * i) * p
        e = exp(load(emission, here + WIDTH * j) - top)
        predicted = predicted * e
        scale = scale + predicted
        store(emission, here + WIDTH * j, e)
        store(alpha, there + WIDTH * j, predicted)
    inverse = 1.0 / scale
    now, end = spread(alpha, t), load(lengths, 0)
    for j in range(labels):
        k = WIDTH * j
        filtered = load(alpha, there + k) * inverse
        store(alpha, there + k, where_below(now, end, filtered, load(alpha, here + k)))
        store(emission, here + k, load(emission, here + k) * inverse)
    store(scales, 2 * WIDTH * t, scale)
    store(scales, 2 * WIDTH * t + WIDTH, top)


@part
def _log_product(scales: Any, d: int, steps: int) -> Any:
    """The log evidence of one document: the sum of the logs of its scales and of the maxima that were taken out."""
    total, product = 0.0, 1.0
    for t in range(steps):
        product *= scales[2 * WIDTH * t + d]
        total += scales[2 * WIDTH * t + WIDTH + d]
        if product < 1e-200:
            total += np.log(product)
            product = 1.0
    return total + np.log(product)


@part
def _marginals(labels: int, beta: Any, alpha: Any, emission: Any, scales: Any, t: int) -> Any:
    """Turn alpha of step t into marginals and beta into emission * beta / scale; returns sum(beta) / scale."""
    here, there = WIDTH * labels * t, WIDTH * labels * (t + 1)
    total, mass = spread(alpha, 0.0), spread(alpha, 0.0)
    for j in range(labels):
        b = load(beta, WIDTH * j)
        state = load(alpha, there + WIDTH * j) * b
        total = total + b
        mass = mass + state
        store(alpha, there + WIDTH * j, state)
    # 1 but for rounding, which would add up over the steps
    inverse = 1.0 / mass
    for j in range(labels):
        store(alpha, there + WIDTH * j, load(alpha, there + WIDTH * j) * inverse)
        store(beta, WIDTH * j, load(beta, WIDTH * j) * inverse * load(emission, here + WIDTH * j))
    return total / load(scales, 2 * WIDTH * t)


@part
def _backward(
    labels: int,
    logits: bool,
    transitions: bool,
    lengths: Any,
    potentials: Any,
    at: int,
    alpha: Any,
    emission: Any,
    beta: Any,
    t: int,
) -> None:
    """beta of step t - 1 from emission * beta / scale of step t; the gradient takes the place of the probabilities."""
    here = WIDTH * labels * t
    for i in range(labels):
        row = at + WIDTH * labels * i
        onward = load(potentials, row) * load(beta, 0)
        for j in range(1, labels):
            onward = onward + load(potentials, row + WIDTH * j) * load(beta, WIDTH * j)
        store(emission, here + WIDTH * i, onward)
        if transitions:
            a = load(alpha, here + WIDTH * i)
            if logits:
                for j in range(labels):
                    p = load(potentials, row + WIDTH * j)
                    store(potentials, row + WIDTH * j, a * p * (load(beta, WIDTH * j) - onward))
            else:
                for j in range(labels):
                    store(potentials, row + WIDTH * j, a * load(beta, WIDTH * j))
    now, end = spread(alpha, t), load(lengths, 0)
    for i in range(labels):
        store(beta, WIDTH * i, where_below(now, end, load(emission, here + WIDTH * i), 1.0))
