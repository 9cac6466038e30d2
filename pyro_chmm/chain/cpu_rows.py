"""Forward-backward for one document at a time, along the rows of its matrices: for many labels or few documents."""

from typing import Any

import numpy as np

from pyro_chmm.chain.compiled import kernel
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

    ``transition`` and ``transition_gradient`` are (N, L * L). The exponentials of logits are kept in ``transition_gradient`` between the
    two sweeps; without it (``transitions`` false) in ``potentials``, ``block`` tokens at a time, computed again on the way back.
    """
    for document in range(first, last):
        begin, end = offsets[document], offsets[document + 1]
        if begin == end:
            continue
        alpha[0, :] = initial
        total, product = 0.0, 1.0
        for start in range(begin, end, block):
            stop = min(end, start + block)
            kept = transition_gradient[start:stop] if transitions else potentials
            if logits:
                _exponentials(transition[start:stop], kept, inverse[start - begin : stop - begin])
            else:
                kept = transition[start:stop]
                inverse[start - begin : stop - begin, :] = 1.0
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
        beta[:] = 1.0
        worst = 0.0
        for start in range(begin + (end - begin - 1) // block * block, begin - 1, -block):
            stop = min(end, start + block)
            kept = transition_gradient[start:stop] if transitions else potentials
            if not logits:
                kept = transition[start:stop]
            elif not transitions and stop < end:
                _exponentials(transition[start:stop], kept, inverse[start - begin : stop - begin])
            for t in range(stop - 1, start - 1, -1):
                s = t - begin
                worst += _marginals(alpha[s + 1], emission[s], beta, marginals[t]) / scales[s]
                _backward(kept[t - start], inverse[s], beta, before)
                if transitions:
                    _gradient(kept[t - start], inverse[s], alpha[s], beta, before, logits, transition_gradient[t])
                beta, before = before, beta
        initial_gradient[document, :] = beta
        strain[document] = worst


@kernel
def _exponentials(logits: Any, out: Any, inverse: Any) -> None:
    """exp of a block of logits, and for each row one over the sum. The maximum is taken out only where it has to be."""
    labels = inverse.shape[1]
    source, target = logits.reshape(-1), out.reshape(-1)
    limit = source.dtype.type(_MOST_LOGIT)
    for k in range(len(source)):
        target[k] = exp(limit if source[k] > limit else source[k])
    for t in range(len(logits)):
        for i in range(labels):
            row = slice(i * labels, (i + 1) * labels)
            total = _sum(out[t, row])
            if not _LEAST_SUM < total < _MOST_SUM:
                total = _shifted_exponentials(logits[t, row], out[t, row])
            inverse[t, i] = 1.0 / total


@kernel
def _shifted_exponentials(logits: Any, out: Any) -> Any:
    top = logits.max()
    for j in range(len(logits)):
        out[j] = exp(logits[j] - top)
    return _sum(out)


@kernel
def _sum(row: Any) -> Any:
    total = row[0]
    for j in range(1, len(row)):
        total += row[j]
    return total


@kernel
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


@kernel
def _add_scaled(factor: Any, row: Any, out: Any) -> None:
    for j in range(len(out)):
        out[j] += factor * row[j]


@kernel
def _weigh(weight: Any, out: Any) -> Any:
    total = out.dtype.type(0)
    for j in range(len(out)):
        out[j] *= weight[j]
        total += out[j]
    return total


@kernel
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


@kernel
def _backward(potential: Any, inverse: Any, beta: Any, out: Any) -> None:
    """beta of the step before, from emission * beta / scale."""
    labels = len(beta)
    for i in range(labels):
        out[i] = inverse[i] * _dot(potential[i * labels : (i + 1) * labels], beta)


@kernel
def _dot(row: Any, beta: Any) -> Any:
    total = row.dtype.type(0)
    for j in range(len(beta)):
        total += row[j] * beta[j]
    return total


@kernel
def _gradient(potential: Any, inverse: Any, alpha: Any, beta: Any, before: Any, logits: bool, out: Any) -> None:
    """The gradient of one step's transitions; ``out`` may be ``potential`` itself."""
    labels = len(beta)
    for i in range(labels):
        row = slice(i * labels, (i + 1) * labels)
        if logits:
            _logit_gradient(alpha[i] * inverse[i], potential[row], beta, before[i], out[row])
        else:
            _scale(alpha[i], beta, out[row])


@kernel
def _logit_gradient(factor: Any, potential: Any, beta: Any, before: Any, out: Any) -> None:
    for j in range(len(beta)):
        out[j] = factor * potential[j] * (beta[j] - before)


@kernel
def _scale(factor: Any, beta: Any, out: Any) -> None:
    for j in range(len(beta)):
        out[j] = factor * beta[j]
