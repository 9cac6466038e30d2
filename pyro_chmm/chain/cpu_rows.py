"""Forward-backward for one document at a time, along the rows of its matrices: for many labels or few documents."""

from typing import Any

import numpy as np

from pyro_chmm.chain.compiled import kernel, part
from pyro_chmm.chain.lanes import exp

# a row of exponentials whose sum lies in here neither overflowed nor lost anything above 1e-31 of it
_LEAST_SUM, _MOST_SUM = 1e-6, 1e30
_MOST_LOGIT = 88.0


@kernel
def forward_backward(
    initial: Any,
    transition: Any,
    log_emission: Any,
    offsets: Any,
    logits: bool,
    transitions: bool,
    evidence: Any,
    initial_gradient: Any,
    transition_gradient: Any,
    marginals: Any,
    strain: Any,
    first: int,
    last: int,
    block: int,
    potentials: Any,
    alpha: Any,
    emission: Any,
    inverse: Any,
    scales: Any,
    beta: Any,
    before: Any,
) -> None:
    """Documents ``first`` to ``last``: fills everything from ``evidence`` to ``strain``, whose meaning is that of cpu_groups.

    ``transition`` and ``transition_gradient`` are (N, L * L). The exponentials of logits are kept in ``transition_gradient``
    between the two sweeps; without it (``transitions`` false) in ``potentials``, ``block`` tokens at a time, and computed again.
    """
    labels = len(initial)
    for document in range(first, last):
        begin, end = offsets[document], offsets[document + 1]
        if begin == end:
            continue
        for j in range(labels):
            alpha[0, j] = initial[j]
            beta[j] = 1.0
        total, product = 0.0, 1.0
        for start in range(begin, end, block):
            stop = min(end, start + block)
            kept = transition_gradient[start:stop] if transitions else potentials
            if logits:
                _exponentials(transition, start, stop, labels, kept, inverse, begin)
            else:
                kept = transition[start:stop]
                for t in range(start, stop):
                    for j in range(labels):
                        inverse[t - begin, j] = 1.0
            for t in range(start, stop):
                s = t - begin
                top, scale = _forward(log_emission[t], kept[t - start], inverse[s], alpha[s], emission[s], alpha[s + 1])
                scales[s] = scale
                total += top
                product *= scale
                if product < 1e-200:
                    total += np.log(product)
                    product = 1.0
        evidence[document] = total + np.log(product)
        worst = 0.0
        for start in range(begin + (end - begin - 1) // block * block, begin - 1, -block):
            stop = min(end, start + block)
            kept = transition_gradient[start:stop] if transitions else potentials
            if not logits:
                kept = transition[start:stop]
            elif not transitions and stop < end:
                _exponentials(transition, start, stop, labels, kept, inverse, begin)
            for t in range(stop - 1, start - 1, -1):
                s = t - begin
                worst += _marginals(alpha[s + 1], emission[s], beta, marginals[t]) / scales[s]
                _backward(kept[t - start], inverse[s], beta, before)
                if transitions:
                    _gradient(kept[t - start], inverse[s], alpha[s], beta, before, logits, transition_gradient[t])
                beta, before = before, beta
        for j in range(labels):
            initial_gradient[document, j] = beta[j]
        strain[document] = worst


@part
def _exponentials(logits: Any, start: int, stop: int, labels: int, out: Any, inverse: Any, begin: int) -> None:
    """exp of the logits of some tokens, and for each row one over the sum. The maximum is taken out only where it has to be."""
    limit = logits.dtype.type(_MOST_LOGIT)
    for t in range(start, stop):
        source, target = logits[t], out[t - start]
        for k in range(labels * labels):
            target[k] = exp(limit if source[k] > limit else source[k])
    for t in range(start, stop):
        for i in range(labels):
            row = out[t - start, i * labels : (i + 1) * labels]
            total = _sum(row)
            if not _LEAST_SUM < total < _MOST_SUM:
                total = _shifted_exponentials(logits[t, i * labels : (i + 1) * labels], row)
            inverse[t - begin, i] = 1.0 / total


@kernel
def _shifted_exponentials(logits: Any, out: Any) -> Any:
    top = logits[0]
    for j in range(1, len(logits)):
        top = max(top, logits[j])
    total = out.dtype.type(0)
    for j in range(len(logits)):
        out[j] = exp(logits[j] - top)
        total += out[j]
    return total


@part
def _sum(row: Any) -> Any:
    total = row[0]
    for j in range(1, len(row)):
        total += row[j]
    return total


@part
def _forward(log_emission: Any, potential: Any, inverse: Any, alpha: Any, emission: Any, out: Any) -> Any:
    """alpha of the next step into ``out`` and emission / scale; returns the largest log emission, taken out, and the scale."""
    labels = len(alpha)
    top = log_emission[0]
    for j in range(1, labels):
        top = max(top, log_emission[j])
    for j in range(labels):
        emission[j] = exp(log_emission[j] - top)
        out[j] = 0.0
    for i in range(labels):
        _add_scaled(alpha[i] * inverse[i], potential[i * labels : (i + 1) * labels], out)
    scale = _weigh(emission, out)
    for j in range(labels):
        out[j] /= scale
        emission[j] /= scale
    return top, scale


@part
def _add_scaled(factor: Any, row: Any, out: Any) -> None:
    for j in range(len(out)):
        out[j] += factor * row[j]


@part
def _weigh(weight: Any, out: Any) -> Any:
    total = out.dtype.type(0)
    for j in range(len(out)):
        out[j] *= weight[j]
        total += out[j]
    return total


@part
def _marginals(alpha: Any, emission: Any, beta: Any, out: Any) -> Any:
    """The marginals of a step; beta becomes emission * beta / scale. Returns the sum of the old beta."""
    total, mass = beta.dtype.type(0), beta.dtype.type(0)
    for j in range(len(beta)):
        out[j] = alpha[j] * beta[j]
        total += beta[j]
        mass += out[j]
    # 1 but for rounding, which would add up over the steps
    for j in range(len(beta)):
        out[j] /= mass
        beta[j] *= emission[j] / mass
    return total


@part
def _backward(potential: Any, inverse: Any, beta: Any, out: Any) -> None:
    """beta of the step before, from emission * beta / scale."""
    labels = len(beta)
    for i in range(labels):
        out[i] = inverse[i] * _dot(potential[i * labels : (i + 1) * labels], beta)


@part
def _dot(row: Any, beta: Any) -> Any:
    total = row.dtype.type(0)
    for j in range(len(beta)):
        total += row[j] * beta[j]
    return total


@part
def _gradient(potential: Any, inverse: Any, alpha: Any, beta: Any, before: Any, logits: bool, out: Any) -> None:
    """The gradient of one step's transitions; ``out`` may be ``potential`` itself."""
    labels = len(beta)
    for i in range(labels):
        row = slice(i * labels, (i + 1) * labels)
        if logits:
            _logit_gradient(alpha[i] * inverse[i], potential[row], beta, before[i], out[row])
        else:
            _scale(alpha[i], beta, out[row])


@part
def _logit_gradient(factor: Any, potential: Any, beta: Any, before: Any, out: Any) -> None:
    for j in range(len(beta)):
        out[j] = factor * potential[j] * (beta[j] - before)


@part
def _scale(factor: Any, beta: Any, out: Any) -> None:
    for j in range(len(beta)):
        out[j] = factor * beta[j]
