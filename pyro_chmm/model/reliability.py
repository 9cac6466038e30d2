"""Equations (1) to (4): from reliability logits to the emission base prior. Pure functions of tensors.

Labels run over the last axis with O at index 0; misprints of the paper are mended as noted in each docstring.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pyro_chmm.errors import ConfigError

#: Arguments of h are kept this far from 0, where a^(n/s) may have an infinite slope.
_TINY = 1e-12


def reliability_scores(logits: Tensor, softmax: bool = True) -> Tensor:
    """Reliability scores before scaling, eq. (1).

    :param logits: ``(..., K, L)``.
    :param softmax: SoftMax over the LFs for every label but O, which guarantees one trusted LF a label. Where it is off, or where
        a single LF leaves nothing to compare, a sigmoid stands in its place, as it always does for O.
    :returns: ``(..., K, L)`` in (0, 1).
    """
    sigmoid = torch.sigmoid(logits)
    if not softmax or logits.shape[-2] == 1:
        return sigmoid
    return torch.cat([sigmoid[..., :1], torch.softmax(logits[..., 1:], dim=-2)], dim=-1)


def scale_reliability(scores: Tensor, n: float, s: float, r: float) -> Tensor:
    """The scaling function h of eq. (2): de-correlates scores that SoftMax ties together.

    Below the split point it is ``a^(n/s) / r^(n-1)``; the paper prints ``a / r^(n-1)``, which is not continuous.

    :param scores: any shape, in [0, 1].
    :param r: split point, in (0, 1).
    """
    root = scores.clamp(min=_TINY, max=1.0) ** (1.0 / s)
    lower = root**n / r ** (n - 1)
    # the clamp keeps the slope of (1 - root)^n finite at root = 1 for n < 1
    upper = 1.0 - (1.0 - root).clamp(min=_TINY) ** n / (1.0 - r) ** (n - 1)
    return torch.where(root < r, lower, upper)


def emit_to_o(reliability: Tensor, num_labels: int, n: float, r: float) -> Tensor:
    """The expansion function g of eq. (4): how often an LF says O where the true label is an entity's.

    The linear term is ``(1 - L) a`` (the paper prints ``(1 - L) x``).

    :param reliability: any shape, in [0, 1].
    :param n: exponent, above 1.
    :param r: split point, in (0, 1).
    """
    labels = num_labels
    coefficient = (2 - labels) / ((n - 1) * r**n - n * r ** (n - 1))
    lower = coefficient * reliability**n + (1 - labels) * reliability + 1
    at_split = coefficient * r**n + (1 - labels) * r + 1
    upper = at_split * (1 - reliability) / (1 - r)
    return torch.where(reliability <= r, lower, upper)


def check_expansion(num_labels: int, n: float, r: float) -> None:
    """Refuse an (n, r) for which a row of the base prior would leave the simplex.

    :raises ConfigError: where g is negative or ``1 - a - g(a)`` is.
    """
    grid = torch.linspace(0, 1, 1001, dtype=torch.float64)
    to_o = emit_to_o(grid, num_labels, n, r)
    if bool((to_o < -1e-9).any()) or bool((1 - grid - to_o < -1e-9).any()):
        raise ConfigError(
            f"The expansion function g with n = {n} and split point {r:.4g} leaves [0, 1] for {num_labels} labels; "
            "choose a smaller g_r or a larger g_n."
        )


def expand_reliability(
    reliability: Tensor, n: float, r: float, naive: bool = False, detach: bool = False
) -> Tensor:
    """Emission base prior, eq. (3): the reliabilities on the diagonal, functions of them elsewhere.

    :param reliability: ``(..., K, L)``, the scaled scores.
    :param naive: ablation of section 4.3.2: off-diagonal entries uniform in every row.
    :param detach: no gradient through entries that are neither diagonal nor O (errata, difference 4).
    :returns: ``(..., K, L, L)``, rows (true label) that sum to 1.
    """
    labels = reliability.shape[-1]
    diagonal = reliability.unsqueeze(-1)
    uniform = (1 - diagonal) / (labels - 1)
    if naive:
        to_o, others = uniform, uniform
    else:
        to_o = emit_to_o(diagonal, labels, n, r)
        others = (1 - diagonal - to_o) / (labels - 2)
    if detach:
        others = others.detach()
    eye = torch.eye(labels, dtype=torch.bool, device=reliability.device)
    first_row = (torch.arange(labels, device=reliability.device) == 0).unsqueeze(-1)
    first_column = first_row.transpose(0, 1)
    off_diagonal = torch.where(first_row, uniform, torch.where(first_column, to_o, others))
    return torch.where(eye, diagonal, off_diagonal)
