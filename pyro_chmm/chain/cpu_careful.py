"""Log evidence, entropy and gradients in log space and float64: always right, and an order of magnitude slower than cpu_groups.

It computes the entropy, and it does again what scaled probabilities cannot represent. With theta = log potential and M = E[total | x],
the expected sum of all theta on the path, H = log Z - M. The gradient of H to theta_t[i, j] is minus the posterior covariance of that
sum with the pair's indicator: -mu_t[i, j] (past[i] + theta_t[i, j] + future[j] - M), where past and future are the expected sums before and
behind the pair given its labels. They obey the recursions of alpha and beta.
"""

from typing import Any

import numpy as np

from pyro_chmm.chain.compiled import kernel
from pyro_chmm.chain.lanes import exp

INF = np.inf


@kernel
def objective(
    initial: Any,
    transition: Any,
    log_emission: Any,
    offsets: Any,
    logits: bool,
    evidence_weight: float,
    entropy_weight: float,
    transitions: bool,
    evidence: Any,
    entropy: Any,
    initial_gradient: Any,
    transition_gradient: Any,
    emission_gradient: Any,
    documents: Any,
    first: int,
    last: int,
) -> None:
    """Fill everything from ``evidence`` to ``emission_gradient`` for ``documents[first:last]``, none of them empty.

    The gradients are those of evidence_weight * log evidence + entropy_weight * entropy. Shapes as in the backend protocol.
    """
    labels = len(initial)
    for document in documents[first:last]:
        begin, end = offsets[document], offsets[document + 1]
        alpha, past = np.empty((end - begin + 1, labels)), np.zeros((end - begin + 1, labels))
        theta = np.empty((labels, labels))
        log_p = np.empty((labels, labels))
        for i in range(labels):
            alpha[0, i] = np.log(np.float64(initial[i]))
            past[0, i] = alpha[0, i] if initial[i] > 0 else 0.0
        for t in range(begin, end):
            s = t - begin
            log_probabilities(transition[t], logits, alpha[s], log_p)
            add_emission(log_p, log_emission[t], theta)
            step(alpha[s], past[s], theta, alpha[s + 1], past[s + 1])
        total = log_sum(alpha[-1])
        evidence[document] = total if total < INF else np.nan
        entropy[document] = 0.0
        if not -INF < total < INF:
            initial_gradient[document] = 0.0
            emission_gradient[begin:end] = 0.0
            if transitions:
                transition_gradient[begin:end] = 0.0
            continue
        mean = 0.0
        for j in range(labels):
            mean += np.exp(alpha[-1, j] - total) * past[-1, j]
        entropy[document] = total - mean
        beta, future, gradient = np.zeros(labels), np.zeros(labels), np.empty((labels, labels))
        for t in range(end - 1, begin - 1, -1):
            s = t - begin
            log_probabilities(transition[t], logits, alpha[s], log_p)
            add_emission(log_p, log_emission[t], theta)
            _pairs(alpha[s], past[s], theta, beta, future, total, mean, evidence_weight, entropy_weight, gradient)
            for j in range(labels):
                emission_gradient[t, j] = gradient[:, j].sum()
            if transitions and logits:
                _to_logits(gradient, log_p, transition_gradient[t])
            elif transitions:
                _to_probabilities(
                    gradient,
                    transition[t],
                    alpha[s],
                    log_emission[t],
                    beta,
                    total,
                    evidence_weight,
                    transition_gradient[t],
                )
            _step_back(theta, beta, future)
        for i in range(labels):
            weight = evidence_weight
            if initial[i] > 0:
                weight -= entropy_weight * (np.log(np.float64(initial[i])) + future[i] - mean)
            initial_gradient[document, i] = weight * np.exp(beta[i] - total)


@kernel
def log_probabilities(transition: Any, logits: bool, alpha: Any, out: Any) -> None:
    """Log probabilities of one step. What is not a number counts as -inf in a row that no path reaches (alpha -inf).

    A row of only -inf logits is not a number.
    """
    labels = len(alpha)
    for i in range(labels):
        shift = log_sum(transition[i]) if logits else 0.0
        for j in range(labels):
            value = transition[i, j] - shift if logits else np.log(np.float64(transition[i, j]))
            out[i, j] = -INF if np.isnan(value) and alpha[i] == -INF else value


@kernel
def add_emission(log_p: Any, log_emission: Any, theta: Any) -> None:
    """theta[i, j] = log_p[i, j] + log_emission[j]."""
    labels = len(log_emission)
    for i in range(labels):
        for j in range(labels):
            theta[i, j] = log_p[i, j] + log_emission[j]


@kernel
def log_sum(values: Any) -> Any:
    """log(sum(exp(values))): -inf for only -inf, NaN for NaN, +inf for +inf."""
    top = -INF
    for value in values:
        if value > top:
            top = value
    if top == INF:
        return top
    shift = 0.0 if top == -INF else top
    total = 0.0
    for k in range(len(values)):
        total += exp(values[k] - shift)
    return shift + np.log(total)


@kernel
def step(alpha: Any, past: Any, theta: Any, alpha_out: Any, past_out: Any) -> None:
    """alpha and the expected past sum (given where the path is now) after one more step."""
    labels = len(alpha)
    top, total, weighed = np.empty(labels), np.zeros(labels), np.zeros(labels)
    top[:] = -INF
    for i in range(labels):
        for j in range(labels):
            value = alpha[i] + theta[i, j]
            top[j] = value if value > top[j] else top[j]
    for j in range(labels):
        top[j] = 0.0 if top[j] == -INF else top[j]
    for i in range(labels):
        for j in range(labels):
            weight = exp(alpha[i] + theta[i, j] - top[j])
            total[j] += weight
            weighed[j] += weight * (past[i] + theta[i, j]) if weight > 0 else 0.0
    for j in range(labels):
        alpha_out[j] = top[j] + np.log(total[j])
        past_out[j] = weighed[j] / total[j] if total[j] > 0 else 0.0


@kernel
def _pairs(
    alpha: Any,
    past: Any,
    theta: Any,
    beta: Any,
    future: Any,
    total: float,
    mean: float,
    evidence_weight: float,
    entropy_weight: float,
    gradient: Any,
) -> None:
    """The gradient of the objective to theta of one step."""
    labels = len(alpha)
    for i in range(labels):
        for j in range(labels):
            mu = exp(alpha[i] + theta[i, j] + beta[j] - total)
            change = evidence_weight - entropy_weight * (past[i] + theta[i, j] + future[j] - mean)
            gradient[i, j] = mu * change if mu > 0 else 0.0


@kernel
def _to_logits(gradient: Any, log_p: Any, out: Any) -> None:
    labels = len(log_p)
    for i in range(labels):
        row = gradient[i].sum()
        for j in range(labels):
            out[i, j] = gradient[i, j] - exp(log_p[i, j]) * row


@kernel
def _to_probabilities(
    gradient: Any,
    p: Any,
    alpha: Any,
    log_emission: Any,
    beta: Any,
    total: float,
    evidence_weight: float,
    out: Any,
) -> None:
    labels = len(p)
    for i in range(labels):
        for j in range(labels):
            # a probability of 0 adds nothing to the entropy's gradient, but raising it would raise the evidence
            at_zero = evidence_weight * np.exp(alpha[i] + log_emission[j] + beta[j] - total)
            out[i, j] = gradient[i, j] / p[i, j] if p[i, j] > 0 else at_zero


@kernel
def _step_back(theta: Any, beta: Any, future: Any) -> None:
    """beta and the expected future sum (given where the path is) one step earlier, in place."""
    labels = len(beta)
    before, sums = np.empty(labels), np.zeros(labels)
    for i in range(labels):
        before[i] = log_sum(theta[i] + beta)
        for j in range(labels):
            weight = exp(theta[i, j] + beta[j] - before[i])
            sums[i] += weight * (theta[i, j] + future[j]) if weight > 0 else 0.0
    beta[:] = before
    future[:] = sums
