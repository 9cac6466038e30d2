"""What the tokens to the left and to the right say about a token: the messages whose product with its evidence is the marginal."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pyro_chmm.chain.validation import check_chain


class Messages(NamedTuple):
    """Log messages, each row normalised: its exponentials sum to 1. -inf throughout an impossible document.

    ``softmax(left + log_emission + right)`` is the marginal p(z_t | x).
    """

    left: Tensor
    """(N, L) float64: log p(z_t | x_1..x_{t-1}), for unnormalised transitions up to a factor"""
    right: Tensor
    """(N, L) float64: log p(x_{t+1}..x_T | z_t), up to a factor"""


@torch.no_grad()
def messages(
    initial: Tensor,
    transition: Tensor,
    log_emission: Tensor,
    offsets: Tensor,
    *,
    logits: bool = True,
    check: bool = False,
) -> Messages:
    """The messages of every token, in float64 and log space, all documents a step at a time. Not differentiable.

    It has no backend, since it is for people to read and not for training.
    """
    check_chain(initial, transition, log_emission, offsets, logits=logits, check=check)
    starts, lengths = offsets[:-1], offsets.diff()
    left, right = torch.zeros_like(log_emission, dtype=torch.float64), torch.zeros_like(log_emission, dtype=torch.float64)
    right -= torch.log(torch.tensor(float(right.shape[1]), dtype=torch.float64))  # nothing follows the last token
    alpha = initial.double().log().expand(len(starts), -1).clone()
    steps = int(lengths.max()) if len(lengths) else 0
    for t in range(steps):
        (inside,) = (lengths > t).nonzero(as_tuple=True)
        rows = starts[inside] + t
        arrived = (alpha[inside, :, None] + _log(transition[rows], logits)).logsumexp(1)
        left[rows] = _normalized(arrived)
        alpha[inside] = left[rows] + log_emission[rows].double()
    for t in reversed(range(1, steps)):
        (inside,) = (lengths > t).nonzero(as_tuple=True)
        rows = starts[inside] + t
        ahead = (log_emission[rows].double() + right[rows]).unsqueeze(1)
        right[rows - 1] = _normalized((_log(transition[rows], logits) + ahead).logsumexp(2))
    dead = (left + log_emission + right).isneginf().all(-1)
    impossible = torch.zeros_like(starts, dtype=torch.bool)
    impossible[torch.repeat_interleave(torch.arange(len(starts), device=starts.device), lengths)[dead]] = True
    gone = torch.repeat_interleave(impossible, lengths)
    return Messages(left.masked_fill(gone[:, None], -torch.inf), right.masked_fill(gone[:, None], -torch.inf))


def _log(transition: Tensor, logits: bool) -> Tensor:
    """Log probabilities; of a row of -inf logits, which no path leaves, -inf."""
    return transition.double().log_softmax(-1).nan_to_num(-torch.inf) if logits else transition.double().log()


def _normalized(log_weights: Tensor) -> Tensor:
    total = log_weights.logsumexp(-1, keepdim=True)
    return torch.where(total.isneginf(), log_weights, log_weights - total)
