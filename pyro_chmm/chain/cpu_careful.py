"""Inference in log space and float64: slow, and right where scaled probabilities run out of range."""

from typing import Any

import numpy as np

from pyro_chmm.chain.compiled import kernel

INF = np.inf


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
) -> None:
    """Overwrite the results of some documents: evidence (B), initial (B, L), transition (N, L, L), log emission (N, L)."""
    labels = len(initial)
    for document in documents:
        begin, end = offsets[document], offsets[document + 1]
        alpha = np.empty((end - begin + 1, labels))
        log_p = np.empty((labels, labels))
        alpha[0] = np.log(initial)
        for t in range(begin, end):
            log_transition(transition[t], logits, alpha[t - begin], log_p)
            step_forward(alpha[t - begin], log_p, log_emission[t], alpha[t - begin + 1])
        total = log_sum(alpha[-1])
        evidence[document] = total if total < INF else np.nan
        if not -INF < total < INF:
            initial_gradient[document] = 0.0
            marginals[begin:end] = 0.0
            if transitions:
                transition_gradient[begin:end] = 0.0
            continue
        beta, before = np.zeros(labels), np.empty(labels)
        for t in range(end - 1, begin - 1, -1):
            a = alpha[t - begin]
            log_transition(transition[t], logits, a, log_p)
            for j in range(labels):
                marginals[t, j] = np.exp(alpha[t - begin + 1, j] + beta[j] - total)
                beta[j] += log_emission[t, j]
            for i in range(labels):
                before[i] = log_sum(log_p[i] + beta)
            if transitions:
                for i in range(labels):
                    state = np.exp(a[i] + before[i] - total)
                    for j in range(labels):
                        onward = a[i] + beta[j] - total
                        if logits:
                            transition_gradient[t, i, j] = np.exp(onward + log_p[i, j]) - np.exp(log_p[i, j]) * state
                        else:
                            transition_gradient[t, i, j] = np.exp(onward)
            beta, before = before, beta
        for i in range(labels):
            initial_gradient[document, i] = np.exp(beta[i] - total)


@kernel
def log_transition(transition: Any, logits: bool, alpha: Any, out: Any) -> None:
    """Log probabilities of one step. A row of only -inf logits is NaN if a path reaches it (alpha), else -inf."""
    labels = len(alpha)
    for i in range(labels):
        shift = 0.0
        if logits:
            shift = log_sum(transition[i])
            if shift == -INF and alpha[i] > -INF:
                shift = np.nan
            elif shift == -INF:
                shift = 0.0
        for j in range(labels):
            out[i, j] = transition[i, j] - shift if logits else np.log(transition[i, j])


@kernel
def step_forward(alpha: Any, log_p: Any, log_emission: Any, out: Any) -> None:
    """alpha of the next step: log sum_i exp(alpha_i + log_p_ij), plus the log emission."""
    labels = len(alpha)
    for j in range(labels):
        out[j] = log_sum(alpha + log_p[:, j]) + log_emission[j]


@kernel
def log_sum(values: Any) -> float:
    """log(sum(exp(values))), -inf for all -inf, NaN if one is NaN."""
    top = -INF
    for value in values:
        if value > top:
            top = value
    if top == -INF or top == INF:
        # NaN comes through the sum; a sum of only -inf stays what it is
        total = 0.0
        for value in values:
            total += value
        return total
    total = 0.0
    for value in values:
        total += np.exp(value - top)
    return top + np.log(total)
