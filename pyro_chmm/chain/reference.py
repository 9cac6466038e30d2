"""The oracle: exact inference in a linear chain as float64 torch loops, one document and one token at a time.

Slow, readable, and the same signatures as the fast backends (see :mod:`pyro_chmm.chain.backends`). Sums are taken in log space, so
nothing underflows; the backward pass is written out, so probability 0 never turns into NaN.

For one document, with alpha_0 = log initial and beta_T = 0::

    alpha_t[j]     = logsumexp_i(alpha_{t-1}[i] + log P_t[i, j]) + e_t[j]
    beta_{t-1}[i]  = logsumexp_j(log P_t[i, j] + e_t[j] + beta_t[j])
    log evidence   = logsumexp_j(alpha_T[j])
"""

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from pyro_chmm.chain.backends import ForwardBackward, Objective

INF = float("inf")


def forward_backward(
    initial: Tensor,
    transition: Tensor,
    log_emission: Tensor,
    offsets: Tensor,
    *,
    logits: bool,
    gradients: bool,
    transitions: bool = True,
) -> ForwardBackward:
    """Log evidence (B,) and its gradients, in log space."""
    evidence, initial_rows = _empty_results(initial, offsets)
    transition_gradient = torch.zeros_like(transition) if gradients and transitions else None
    marginals = torch.zeros_like(log_emission) if gradients else None
    for document, span in _documents(offsets):
        log_transition = _log_probabilities(transition[span].double(), logits)
        emission = log_emission[span].double()
        alpha = _forward(initial.double().log(), log_transition, emission)
        evidence[document] = _total(alpha[-1])
        if marginals is None or not evidence[document].isfinite():
            continue
        beta = _backward(alpha, log_transition, emission)
        state = (alpha + beta - evidence[document]).exp()
        marginals[span] = state[1:].to(marginals.dtype)
        initial_rows[document] = (beta[0] - evidence[document]).exp().to(initial_rows.dtype)
        if transition_gradient is not None:
            step = alpha[:-1, :, None] + (emission + beta[1:])[:, None, :] - evidence[document]
            if logits:
                posterior = (step + log_transition).exp()
                gradient = posterior - log_transition.exp().nan_to_num(0.0) * state[:-1, :, None]
            else:
                gradient = step.exp()
            transition_gradient[span] = gradient.nan_to_num(0.0).to(transition_gradient.dtype)
    return ForwardBackward(evidence, initial_rows if gradients else None, transition_gradient, marginals)


def objective(
    initial: Tensor,
    transition: Tensor,
    log_emission: Tensor,
    offsets: Tensor,
    *,
    logits: bool,
    evidence_weight: float,
    entropy_weight: float,
    gradients: bool,
    transitions: bool = True,
) -> Objective:
    """Log evidence, posterior entropy H and the gradients of their weighted sum.

    With psi the potentials, theta = log psi and mu the posterior marginals, H = log Z - sum mu theta, and its gradient to theta is
    -(d mu / d theta) theta: minus the tangent of mu in the direction theta, carried through the forward-backward recursions.
    It works on scaled probabilities: a document whose probability leaves the range of float64 within one step counts as impossible.
    """
    evidence, initial_rows = _empty_results(initial, offsets)
    entropy = torch.zeros_like(evidence)
    transition_gradient = torch.zeros_like(transition) if gradients and transitions else None
    emission_gradient = torch.zeros_like(log_emission) if gradients else None
    weights = (evidence_weight, entropy_weight)
    for document, span in _documents(offsets):
        probabilities, emission, shift, bad = _scaled_inputs(transition[span], log_emission[span], logits)
        potential = probabilities * emission[:, None, :]
        alphas, scales = _scaled_forward(initial.double(), potential)
        evidence[document] = scales.log().sum() + shift
        if (bad & (alphas[:-1] > 0)).any() or evidence[document] == INF:
            evidence[document] = float("nan")
        if not evidence[document].isfinite():
            continue
        theta = torch.where(potential > 0, potential, 1.0).log()
        tangents, scale_tangents = _forward_tangents(initial.double(), potential, theta, alphas, scales)
        total = scales.log().sum()
        beta, beta_tangent = torch.ones_like(alphas[0]), torch.zeros_like(alphas[0])
        for t in reversed(range(len(potential))):
            onward = potential[t] * beta / scales[t + 1]
            growth = theta[t] - scale_tangents[t + 1] / scales[t + 1]
            onward_tangent = onward * growth + potential[t] * beta_tangent / scales[t + 1]
            mu = alphas[t][:, None] * onward
            mu_tangent = tangents[t][:, None] * onward + alphas[t][:, None] * onward_tangent
            total -= (mu * theta[t]).sum()
            gradient = weights[0] * mu - weights[1] * mu_tangent
            if emission_gradient is not None:
                emission_gradient[span.start + t] = gradient.sum(0)
            if transition_gradient is not None:
                p = probabilities[t]
                into = weights[0] * alphas[t][:, None] * emission[t] * beta / scales[t + 1]
                chained = gradient - p * gradient.sum(-1, keepdim=True) if logits else _divide(gradient, p, into)
                transition_gradient[span.start + t] = chained
            beta, beta_tangent = onward.sum(-1), onward_tangent.sum(-1)
        start = initial.double()
        total -= (alphas[0] * beta * torch.where(start > 0, start, 1.0).log()).sum()
        entropy[document] = total
        gradient = weights[0] * alphas[0] * beta - weights[1] * (tangents[0] * beta + alphas[0] * beta_tangent)
        initial_rows[document] = _divide(gradient, start, weights[0] * beta / scales[0])
    rows = initial_rows if gradients else None
    return Objective(evidence, entropy, rows, transition_gradient, emission_gradient)


def _scaled_inputs(transition: Tensor, log_emission: Tensor, logits: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Probabilities (T, L, L), emission over its maximum (T, L), the sum of those log maxima, and rows that cannot be used."""
    transition, log_emission = transition.double(), log_emission.double()
    dead = (transition == -INF).all(-1) & logits
    probabilities = transition.softmax(-1).masked_fill(dead[..., None], 0.0) if logits else transition
    shift = log_emission.amax(-1, keepdim=True)
    emission = (log_emission - shift.masked_fill(shift == -INF, 0.0)).exp()
    return probabilities, emission, shift.sum(), dead


def _scaled_forward(initial: Tensor, potential: Tensor) -> tuple[Tensor, Tensor]:
    """Filtered probabilities (T+1, L) and the scales (T+1,) whose logs sum to the log evidence; all 0 after a scale of 0."""
    scales = [initial.sum()]
    alphas = [initial / scales[0]]
    for step in potential:
        predicted = alphas[-1] @ step
        scales.append(predicted.sum())
        alphas.append(predicted / scales[-1] if scales[-1] != 0 else predicted)
    return torch.stack(alphas), torch.stack(scales)


def _forward_tangents(initial: Tensor, potential: Tensor, theta: Tensor, alphas: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """Tangents of the filtered probabilities and scales in the direction theta, the log potentials."""
    log_start = torch.where(initial > 0, initial, 1.0).log()
    mean = (alphas[0] * log_start).sum()
    tangents, scale_tangents = [alphas[0] * (log_start - mean)], [scales[0] * mean]
    for t in range(len(potential)):
        predicted = tangents[t] @ potential[t] + alphas[t] @ (potential[t] * theta[t])
        scale_tangents.append(predicted.sum())
        tangents.append((predicted - alphas[t + 1] * scale_tangents[-1]) / scales[t + 1])
    return torch.stack(tangents), torch.stack(scale_tangents)


def _divide(gradient: Tensor, probability: Tensor, at_zero: Tensor) -> Tensor:
    """From the gradient to a log probability to that of the probability; where it is 0, the entropy contributes nothing."""
    return torch.where(probability > 0, gradient / torch.where(probability > 0, probability, 1.0), at_zero)


def viterbi(initial: Tensor, transition: Tensor, log_emission: Tensor, offsets: Tensor, *, logits: bool) -> tuple[Tensor, Tensor]:
    """The most probable z_0..z_T of each document: labels z_1..z_T (N,), log joint score (B,). Ties go to the lowest label."""
    labels = torch.full((len(log_emission),), -1, dtype=torch.int64, device=log_emission.device)
    scores, _ = _empty_results(initial, offsets)
    for document, span in _documents(offsets):
        log_transition = _log_probabilities(transition[span].double(), logits)
        best = initial.double().log()
        pointers = []
        for t, emission in enumerate(log_emission[span].double()):
            value, pointer = (best[:, None] + _reachable(log_transition[t], best)).max(0)
            best = value + emission
            pointers.append(pointer)
        scores[document] = best.max()
        if scores[document].isfinite():
            label = best.argmax()
            for t in reversed(range(span.start, span.stop)):
                labels[t] = label
                label = pointers[t - span.start][label]
        elif scores[document] == INF:
            scores[document] = float("nan")
    return labels, scores


def sample(
    initial: Tensor,
    transition: Tensor,
    log_emission: Tensor,
    offsets: Tensor,
    *,
    logits: bool,
    uniforms: Tensor,
) -> Tensor:
    """Draws of z_1..z_T from the posterior (draws, N): forward filtering, backward sampling by inverting the cumulative sum."""
    labels = torch.full(uniforms.shape, -1, dtype=torch.int64, device=uniforms.device)
    for _, span in _documents(offsets):
        log_transition = _log_probabilities(transition[span].double(), logits)
        alpha = _forward(initial.double().log(), log_transition, log_emission[span].double())
        if not _total(alpha[-1]).isfinite():
            continue
        weights = alpha[-1].softmax(-1).expand(len(uniforms), -1)
        for t in reversed(range(span.start, span.stop)):
            drawn = _invert(weights, uniforms[:, t])
            labels[:, t] = drawn
            into = _reachable(log_transition[t - span.start], alpha[t - span.start])
            weights = (alpha[t - span.start][:, None] + into).T[drawn].softmax(-1)
    return labels


def impossible_step(initial: Tensor, transition: Tensor, log_emission: Tensor, offsets: Tensor, *, logits: bool) -> Tensor:
    """(B,) int64: the first token at which the evidence became zero, -1 for a document that is possible."""
    steps = torch.full((len(offsets) - 1,), -1, dtype=torch.int64, device=offsets.device)
    for document, span in _documents(offsets):
        log_transition = _log_probabilities(transition[span].double(), logits)
        alpha = _forward(initial.double().log(), log_transition, log_emission[span].double())
        dead = (alpha[1:] == -INF).all(-1)
        if dead.any():
            steps[document] = dead.to(torch.uint8).argmax()
    return steps


def emission_evidence(log_emission: Tensor, weak_labels: Tensor, weight: Tensor | None, offsets: Tensor) -> Tensor:
    """Eq. (10): out[n, l] = sum over LFs k that did not abstain of weight[n, k] * log_emission[doc(n), k, l, weak_labels[n, k]]."""
    factor = _active(weak_labels, weight, log_emission.dtype)
    gathered = _gather(log_emission, weak_labels, offsets)
    # an LF with weight 0 says nothing, even where its log emission is -inf
    return torch.where(factor[..., None] == 0, 0.0, gathered * factor[..., None]).sum(1)


def emission_evidence_backward(
    cotangent: Tensor,
    log_emission: Tensor,
    weak_labels: Tensor,
    weight: Tensor | None,
    offsets: Tensor,
    *,
    weight_gradient: bool,
) -> tuple[Tensor, Tensor | None]:
    """Gradients of :func:`emission_evidence` to the log emission (B, K, L, L) and, where asked for, to the weight (N, K)."""
    factor = _active(weak_labels, weight, log_emission.dtype)
    documents, lfs, observed = _indices(weak_labels, offsets)
    gradient = torch.zeros_like(log_emission).movedim(3, 2).contiguous()
    gradient.index_put_((documents, lfs, observed), factor[..., None] * cotangent[:, None, :], accumulate=True)
    to_weight = None
    if weight_gradient:
        gathered = _gather(log_emission, weak_labels, offsets)
        product = torch.where(cotangent[:, None, :] == 0, 0.0, gathered * cotangent[:, None, :]).sum(-1)
        to_weight = torch.where(weak_labels >= 0, product, 0.0).to(log_emission.dtype)
    return gradient.movedim(3, 2).contiguous(), to_weight


def _documents(offsets: Tensor) -> Iterator[tuple[int, slice]]:
    """Documents that are not empty, with their slice of the packed tokens."""
    bounds = offsets.tolist()
    for document, (start, stop) in enumerate(itertools.pairwise(bounds)):
        if stop > start:
            yield document, slice(start, stop)


def _empty_results(initial: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    documents = len(offsets) - 1
    return initial.new_zeros(documents, dtype=torch.float64), initial.new_zeros(documents, len(initial))


def _log_probabilities(transition: Tensor, logits: bool) -> Tensor:
    return transition.log_softmax(-1) if logits else transition.log()


def _reachable(log_transition: Tensor, alpha: Tensor) -> Tensor:
    """Rows of states that no path reaches become -inf, so that what stands in them (NaN included) does not matter."""
    return log_transition.masked_fill((alpha == -INF)[:, None], -INF)


def _forward(log_initial: Tensor, log_transition: Tensor, emission: Tensor) -> Tensor:
    alpha = [log_initial]
    for t in range(len(emission)):
        into = alpha[-1][:, None] + _reachable(log_transition[t], alpha[-1])
        alpha.append(into.logsumexp(0) + emission[t])
    return torch.stack(alpha)


def _backward(alpha: Tensor, log_transition: Tensor, emission: Tensor) -> Tensor:
    beta = [torch.zeros_like(alpha[0])]
    for t in reversed(range(len(emission))):
        # a row of only -inf logits is NaN; the evidence is finite, so no path came through it
        onward = (log_transition[t] + emission[t] + beta[-1]).logsumexp(-1)
        beta.append(onward.masked_fill(onward.isnan(), -INF))
    return torch.stack(beta[::-1])


def _total(alpha: Tensor) -> Tensor:
    total = alpha.logsumexp(-1)
    return torch.where(total == INF, float("nan"), total)


def _invert(weights: Tensor, uniform: Tensor) -> Tensor:
    cumulative = weights.cumsum(-1)
    cumulative = cumulative / cumulative[:, -1:]
    drawn = (cumulative <= uniform[:, None]).sum(-1)
    # rounding must not push a draw onto a label of probability 0 behind the last possible one
    last = (weights > 0).to(torch.int64).cumsum(-1).argmax(-1)
    return torch.minimum(drawn, last)


def _active(weak_labels: Tensor, weight: Tensor | None, dtype: torch.dtype) -> Tensor:
    said = (weak_labels >= 0).to(dtype)
    return said if weight is None else torch.where(weak_labels >= 0, weight, 0.0).to(dtype)


def _indices(weak_labels: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    documents = torch.repeat_interleave(
        torch.arange(len(offsets) - 1, device=offsets.device), offsets.diff(), output_size=len(weak_labels)
    )
    lfs = torch.arange(weak_labels.shape[1], device=offsets.device)
    return documents[:, None], lfs[None, :], weak_labels.clamp(min=0).to(torch.int64)


def _gather(log_emission: Tensor, weak_labels: Tensor, offsets: Tensor) -> Tensor:
    """(N, K, L): the log emission of what each LF said, for each true label."""
    documents, lfs, observed = _indices(weak_labels, offsets)
    return log_emission.movedim(3, 2)[documents, lfs, observed]
