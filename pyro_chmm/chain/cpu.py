"""The CPU backend: numba kernels over packed documents, spread over as many threads as torch uses."""

import numpy as np
import torch
from torch import Tensor

from pyro_chmm.chain import cpu_careful, cpu_emission, cpu_groups, cpu_paths, cpu_rows
from pyro_chmm.chain.backends import ForwardBackward, Objective
from pyro_chmm.chain.compiled import run_parallel
from pyro_chmm.chain.lanes import WIDTH

MOST_STRAIN = 1e24
"""Largest sum over the steps of sum(beta) / scale at which scaled probabilities are trusted. What underflows to 0 (below 1e-37) can
weigh no more than that times this in any marginal: 1e-13. Documents beyond it are done again in log space."""

_MOST_GROUP_LABELS = 16
_LEAST_GROUP_DOCUMENTS = 2 * WIDTH
# below it the few documents of a small last batch are not worth compiling the other kernel
_LEAST_ROW_TOKENS = 1 << 12
_WORK_FLOATS = 1 << 18


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
    """Log evidence (B,) and its gradients; see :mod:`pyro_chmm.chain.backends`."""
    documents, labels = len(offsets) - 1, len(initial)
    transitions = gradients and transitions
    evidence = torch.zeros(documents, dtype=torch.float64)
    initial_gradient = initial.new_zeros(documents, labels)
    transition_gradient = torch.empty_like(transition) if transitions else transition.new_empty(0, labels, labels)
    marginals = torch.empty_like(log_emission)
    strain = initial.new_zeros(documents)
    outputs = [evidence, initial_gradient, transition_gradient, marginals, strain]
    inputs = [initial, transition, log_emission, offsets]
    lengths = np.diff(offsets.numpy())
    if _groups_pay(lengths, labels):
        _in_groups(inputs, lengths, logits, transitions, outputs)
    else:
        _in_rows(inputs, lengths, logits, transitions, outputs)
    strained = np.flatnonzero(~(strain.numpy() <= MOST_STRAIN))
    if len(strained):
        results = [evidence, torch.empty_like(evidence), *outputs[1:4]]
        _carefully(inputs, strained, lengths, logits, (1.0, 0.0), transitions, results)
    if not gradients:
        return ForwardBackward(evidence, None, None, None)
    return ForwardBackward(evidence, initial_gradient, transition_gradient if transitions else None, marginals)


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
    """Log evidence, entropy and the gradients of their weighted sum; see :mod:`pyro_chmm.chain.backends`."""
    documents, labels = len(offsets) - 1, len(initial)
    transitions = gradients and transitions
    evidence, entropy = (torch.zeros(documents, dtype=torch.float64) for _ in range(2))
    initial_gradient = initial.new_zeros(documents, labels)
    transition_gradient = torch.empty_like(transition) if transitions else transition.new_empty(0, labels, labels)
    emission_gradient = torch.empty_like(log_emission)
    lengths = np.diff(offsets.numpy())
    _carefully(
        [initial, transition, log_emission, offsets],
        np.flatnonzero(lengths),
        lengths,
        logits,
        (evidence_weight, entropy_weight),
        transitions,
        [evidence, entropy, initial_gradient, transition_gradient, emission_gradient],
    )
    if not gradients:
        return Objective(evidence, entropy, None, None, None)
    return Objective(evidence, entropy, initial_gradient, transition_gradient if transitions else None, emission_gradient)


def viterbi(initial: Tensor, transition: Tensor, log_emission: Tensor, offsets: Tensor, *, logits: bool) -> tuple[Tensor, Tensor]:
    """Labels (N,) int64 and log scores (B,); see :mod:`pyro_chmm.chain.backends`."""
    paths = torch.empty(len(log_emission), dtype=torch.int64)
    scores = torch.zeros(len(offsets) - 1, dtype=torch.float64)
    inputs = _arrays(initial, transition, log_emission, offsets)
    outputs = _arrays(paths, scores)

    def work(first: int, last: int) -> None:
        cpu_paths.viterbi(*inputs, logits, *outputs, first, last)

    run_parallel(work, offsets.diff().tolist())
    return paths, scores


def sample(
    initial: Tensor,
    transition: Tensor,
    log_emission: Tensor,
    offsets: Tensor,
    *,
    logits: bool,
    uniforms: Tensor,
) -> Tensor:
    """Draws (draws, N) int64; see :mod:`pyro_chmm.chain.backends`."""
    paths = torch.empty(uniforms.shape, dtype=torch.int64)
    inputs = _arrays(initial, transition, log_emission, offsets)
    outputs = _arrays(uniforms, paths)

    def work(first: int, last: int) -> None:
        cpu_paths.sample(*inputs, logits, *outputs, first, last)

    run_parallel(work, offsets.diff().tolist())
    return paths


def impossible_step(initial: Tensor, transition: Tensor, log_emission: Tensor, offsets: Tensor, *, logits: bool) -> Tensor:
    """The token (B,) int64 at which a document became impossible, or -1; see :mod:`pyro_chmm.chain.backends`."""
    evidence = forward_backward(initial, transition, log_emission, offsets, logits=logits, gradients=False).log_evidence
    documents = torch.nonzero(evidence == -torch.inf)[:, 0]
    tokens = torch.full(evidence.shape, -1, dtype=torch.int64)
    arrays = _arrays(initial, transition, log_emission, offsets)
    outputs = _arrays(documents, tokens)

    def work(first: int, last: int) -> None:
        cpu_paths.impossible_step(*arrays, logits, *outputs, first, last)

    run_parallel(work, offsets.diff()[documents].tolist())
    return tokens


def emission_evidence(log_emission: Tensor, weak_labels: Tensor, weight: Tensor | None, offsets: Tensor) -> Tensor:
    """Eq. (10), (N, L); see :mod:`pyro_chmm.chain.backends`."""
    out = log_emission.new_empty(len(weak_labels), log_emission.shape[2])
    arrays = _arrays(log_emission, weak_labels, _weight(weight, log_emission), offsets, out)
    run_parallel(lambda first, last: cpu_emission.forward(*arrays, first, last), offsets.diff().tolist())
    return out


def emission_evidence_backward(
    cotangent: Tensor,
    log_emission: Tensor,
    weak_labels: Tensor,
    weight: Tensor | None,
    offsets: Tensor,
    *,
    weight_gradient: bool,
) -> tuple[Tensor, Tensor | None]:
    """Gradients (B, K, L, L) and (N, K) of eq. (10); see :mod:`pyro_chmm.chain.backends`."""
    gradient = torch.empty_like(log_emission)
    lengths = offsets.diff().tolist()
    arrays = _arrays(cotangent, weak_labels, _weight(weight, log_emission), offsets, gradient)
    run_parallel(lambda first, last: cpu_emission.backward(*arrays, first, last), lengths)
    if not weight_gradient:
        return gradient, None
    to_weight = cotangent.new_empty(weak_labels.shape)
    more = _arrays(cotangent, log_emission, weak_labels, offsets, to_weight)
    run_parallel(lambda first, last: cpu_emission.backward_weight(*more, first, last), lengths)
    return gradient, to_weight


def _arrays(*tensors: Tensor) -> list[np.ndarray]:
    return [tensor.numpy() for tensor in tensors]


def _weight(weight: Tensor | None, like: Tensor) -> Tensor:
    return like.new_empty(0, 0) if weight is None else weight


def _carefully(
    inputs: list[Tensor],
    documents: np.ndarray,
    lengths: np.ndarray,
    logits: bool,
    weights: tuple[float, float],
    transitions: bool,
    outputs: list[Tensor],
) -> None:
    arrays, results = _arrays(*inputs), _arrays(*outputs)

    def work(first: int, last: int) -> None:
        cpu_careful.objective(*arrays, logits, *weights, transitions, *results, documents, first, last)

    run_parallel(work, lengths[documents].tolist())


def _groups_pay(lengths: np.ndarray, labels: int) -> bool:
    """Whether to take eight documents at once; it does not depend on the number of threads, so nor do the results."""
    few = np.count_nonzero(lengths) < _LEAST_GROUP_DOCUMENTS and lengths.sum() >= _LEAST_ROW_TOKENS
    return bool(labels <= _MOST_GROUP_LABELS and not few)


def _in_groups(inputs: list[Tensor], lengths: np.ndarray, logits: bool, transitions: bool, outputs: list[Tensor]) -> None:
    flat_in = [part.numpy().reshape(-1) for part in inputs]
    flat_out = [part.numpy().reshape(-1) for part in outputs]
    members = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
    if len(members) % WIDTH:
        # the last group is filled up with its last document; its lanes all write the same
        members = np.concatenate([members, np.repeat(members[-1:], -len(members) % WIDTH)])
    labels = len(inputs[0])
    like = inputs[0]
    longest = lengths[members[::WIDTH]]
    room = min(_WORK_FLOATS, inputs[1].numel() // 8)

    def work(first: int, last: int) -> None:
        steps = int(longest[first])
        slots = min(steps, max(1, room // (WIDTH * labels * labels)))
        space = (slots * labels * labels + WIDTH, (steps + 1) * labels, steps * labels + WIDTH, 2 * steps)
        scratch = [like.new_empty(WIDTH * size).numpy() for size in space]
        cpu_groups.forward_backward(*flat_in, members, logits, transitions, *flat_out, first, last, slots, *scratch)

    run_parallel(work, longest.tolist())


def _in_rows(inputs: list[Tensor], lengths: np.ndarray, logits: bool, transitions: bool, outputs: list[Tensor]) -> None:
    labels = len(inputs[0])
    like = inputs[0]
    square = labels * labels
    initial, transition, log_emission, offsets = (part.numpy() for part in inputs)
    evidence, initial_gradient, transition_gradient, marginals, strain = (part.numpy() for part in outputs)
    block = max(1, (1 << 13) // square)

    def work(first: int, last: int) -> None:
        steps = int(lengths[first:last].max())
        scratch = [
            like.new_empty(shape).numpy()
            for shape in (
                (0 if transitions else block, square),
                (steps + 1, labels),
                (steps, labels),
                (steps, labels),
                (steps,),
                (labels,),
                (labels,),
            )
        ]
        cpu_rows.forward_backward(
            initial, transition.reshape(-1, square), log_emission, offsets, logits, transitions, evidence,
            initial_gradient, transition_gradient.reshape(-1, square), marginals, strain, first, last, block, *scratch,
        )  # fmt: skip

    run_parallel(work, lengths.tolist())
