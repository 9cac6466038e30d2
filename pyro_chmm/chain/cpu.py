"""The CPU backend: numba kernels over packed documents, spread over as many threads as torch uses."""

import numpy as np
import torch
from torch import Tensor

from pyro_chmm.chain import cpu_careful, cpu_groups, cpu_rows
from pyro_chmm.chain.backends import ForwardBackward
from pyro_chmm.chain.compiled import run_parallel
from pyro_chmm.chain.lanes import WIDTH

MOST_STRAIN = 1e24
"""Largest sum over the steps of sum(beta) / scale at which scaled probabilities are trusted. What underflows to 0 (below 1e-37) can weigh
no more than that times this in any marginal: 1e-13. Documents beyond it are done again in log space."""

_MOST_GROUP_LABELS = 16
_LEAST_GROUP_DOCUMENTS = 2 * WIDTH
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
    bounds = offsets.numpy()
    lengths = np.diff(bounds)
    if labels <= _MOST_GROUP_LABELS and np.count_nonzero(lengths) >= _LEAST_GROUP_DOCUMENTS:
        _in_groups(inputs, lengths, logits, transitions, outputs)
    else:
        _in_rows(inputs, lengths, logits, transitions, outputs)
    strained = np.flatnonzero(~(strain.numpy() <= MOST_STRAIN))
    if len(strained):
        cpu_careful.forward_backward(
            *(part.numpy() for part in inputs), strained, logits, transitions, *(part.numpy() for part in outputs[:4])
        )
    if not gradients:
        return ForwardBackward(evidence, None, None, None)
    return ForwardBackward(evidence, initial_gradient, transition_gradient if transitions else None, marginals)


def _in_groups(
    inputs: list[Tensor], lengths: np.ndarray, logits: bool, transitions: bool, outputs: list[Tensor]
) -> None:
    flat_in = [part.reshape(-1).numpy() for part in inputs]
    flat_out = [part.reshape(-1).numpy() for part in outputs]
    members = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
    # the last group is filled up with its last document; its lanes all write the same
    members = np.concatenate([members, np.repeat(members[-1:], -len(members) % WIDTH)])
    labels = len(inputs[0])
    like = inputs[0]
    longest = lengths[members[::WIDTH]]
    room = min(_WORK_FLOATS, inputs[1].numel() // 16)

    def work(first: int, last: int) -> None:
        steps = int(longest[first])
        slots = min(steps, max(1, room // (WIDTH * labels * labels)))
        space = (slots * labels * labels, (steps + 1) * labels, steps * labels, 2 * steps)
        scratch = [like.new_empty(WIDTH * size).numpy() for size in space]
        cpu_groups.forward_backward(*flat_in, members, logits, transitions, *flat_out, first, last, slots, *scratch)

    run_parallel(work, longest.tolist())


def _in_rows(
    inputs: list[Tensor], lengths: np.ndarray, logits: bool, transitions: bool, outputs: list[Tensor]
) -> None:
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
