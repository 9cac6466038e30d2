"""Log evidence, entropy and gradients in log space and float64: always right, and an order of magnitude slower than cpu_groups.

It computes the entropy, and it does again what scaled probabilities cannot represent. With theta = log potential and M the
expected sum of all theta on the path given x, H = log Z - M. The gradient of H to theta_t[i, j] is minus the posterior covariance
of that sum with the pair's indicator: -mu_t[i, j] (past[i] + theta_t[i, j] + future[j] - M), where past and future are the expected
sums before and behind the pair given its labels. They obey the recursions of alpha and beta.
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
    theta, log_p, gradient = np.empty((labels, labels)), np.empty((labels, labels)), np.empty((labels, labels))
    beta, future = np.empty(labels), np.empty(labels)
    for k in range(first, last):
        document = documents[k]
        begin, end = offsets[document], offsets[document + 1]
        alpha, past = np.empty((end - begin + 1, labels)), np.empty((end - begin + 1, labels))
        forward(initial, transition, log_emission, begin, logits, log_p, theta, alpha, past)
        total = log_sum(alpha[end - begin])
        evidence[document] = total if total < INF else np.nan
        possible = -INF < total < INF
        mean = _mean(alpha[end - begin], past[end - begin], total) if possible else 0.0
        entropy[document] = total - mean if possible else 0.0
        for j in range(labels):
            beta[j], future[j] = 0.0, 0.0
        for t in range(end - 1, begin - 1, -1):
            s = t - begin
            if possible:
                log_probabilities(transition[t], logits, alpha[s], log_p)
                add_emission(log_p, log_emission[t], theta)
                _pairs(alpha[s], past[s], theta, beta, future, total, mean, evidence_weight, entropy_weight, gradient)
            else:
                _clear(gradient)
            _to_emission(gradient, emission_gradient[t])
            if transitions and logits:
                _to_logits(gradient, log_p, transition_gradient[t])
            elif transitions:
                weight = evidence_weight if possible else 0.0
                _to_probabilities(gradient, transition[t], alpha[s], log_emission[t], beta, total, weight, transition_gradient[t])
            if possible:
                _step_back(theta, beta, future)
        for i in range(labels):
            weight = evidence_weight if possible else 0.0
            if initial[i] > 0 and possible:
                weight -= entropy_weight * (np.log(np.float64(initial[i])) + future[i] - mean)
            initial_gradient[document, i] = weight * np.exp(beta[i] - total) if possible else 0.0


@kernel
def forward(
    initial: Any,
    transition: Any,
    log_emission: Any,
    begin: int,
    logits: bool,
    log_p: Any,
    theta: Any,
    alpha: Any,
    past: Any,
) -> None:
    """Fill alpha and past, (T + 1, L), of the document whose first token is ``begin``; ``log_p`` and ``theta`` are work space."""
    for i in range(len(initial)):
        alpha[0, i] = np.log(np.float64(initial[i]))
        past[0, i] = alpha[0, i] if initial[i] > 0 else 0.0
    for s in range(len(alpha) - 1):
        log_probabilities(transition[begin + s], logits, alpha[s], log_p)
        add_emission(log_p, log_emission[begin + s], theta)
        _step(alpha[s], past[s], theta, alpha[s + 1], past[s + 1])


@kernel
def _mean(alpha: Any, past: Any, total: float) -> Any:
    """E[total | x], the expected sum of all theta."""
    mean = 0.0
    for j in range(len(alpha)):
        mean += np.exp(alpha[j] - total) * past[j]
    return mean


@kernel
def _clear(matrix: Any) -> None:
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            matrix[i, j] = 0.0


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
def _step(alpha: Any, past: Any, theta: Any, alpha_out: Any, past_out: Any) -> None:
    """alpha and the expected past sum (given where the path is now) after one more step."""
    labels = len(alpha)
    top, total, weighed = np.empty(labels), np.empty(labels), np.empty(labels)
    for j in range(labels):
        top[j], total[j], weighed[j] = -INF, 0.0, 0.0
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
def _to_emission(gradient: Any, out: Any) -> None:
    labels = len(out)
    for j in range(labels):
        column = 0.0
        for i in range(labels):
            column += gradient[i, j]
        out[j] = column


@kernel
def _to_logits(gradient: Any, log_p: Any, out: Any) -> None:
    labels = len(log_p)
    for i in range(labels):
        row = 0.0
        for j in range(labels):
            row += gradient[i, j]
        for j in range(labels):
            out[i, j] = gradient[i, j] - exp(log_p[i, j]) * row if row != 0 else gradient[i, j]


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
            if p[i, j] > 0 or evidence_weight == 0:
                out[i, j] = gradient[i, j] / p[i, j] if p[i, j] > 0 else 0.0
            else:
                # it adds nothing to the entropy's gradient, but raising it would raise the evidence
                out[i, j] = evidence_weight * np.exp(alpha[i] + log_emission[j] + beta[j] - total)


@kernel
def _step_back(theta: Any, beta: Any, future: Any) -> None:
    """beta and the expected future sum (given where the path is) one step earlier, in place."""
    labels = len(beta)
    before, sums, row = np.empty(labels), np.empty(labels), np.empty(labels)
    for i in range(labels):
        for j in range(labels):
            row[j] = theta[i, j] + beta[j]
        before[i] = log_sum(row)
        total = 0.0
        for j in range(labels):
            weight = exp(row[j] - before[i])
            total += weight * (theta[i, j] + future[j]) if weight > 0 else 0.0
        sums[i] = total
    for i in range(labels):
        beta[i], future[i] = before[i], sums[i]
