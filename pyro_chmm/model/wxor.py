"""Equations (5) and (6): weighted XOR scores, how often an LF is contradicted by LFs that are believed more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor

from pyro_chmm import ranks


def wxor_rates(batches: Iterable[tuple[Tensor, Tensor, Tensor]], num_lfs: int, num_labels: int) -> Tensor:
    """Disagreement rates, eq. (5) summed over a corpus and divided by the LF's observations of the query label.

    The sum over the other LFs is taken first, so the work is O(N K L), not O(N K^2 L^2). An LF adds nothing to its own sum:
    its observation is one-hot and the diagonal is 0.

    :param batches: this rank's triples of reliabilities ``(B, K, L)``, weak labels ``(N, K)`` (-1: abstained) and document index
        ``(N,)``.
    :returns: ``(K, L, L)`` with axes (LF, query label, target label), 0 in the row and column of O and on the diagonal.
    """
    totals = torch.zeros(num_lfs, num_labels, num_labels, dtype=torch.float64)
    counts = torch.zeros(num_lfs, num_labels, dtype=torch.float64)
    for reliability, weak_labels, document_index in batches:
        fired = (weak_labels > 0).any(dim=1)  # elsewhere every term is 0
        labels, trust = weak_labels[fired], reliability.double()[document_index[fired]]
        observed = torch.nn.functional.one_hot(labels.clamp(min=0), num_labels).double()
        observed[..., 0] = 0
        support = (trust * observed).sum(dim=1)
        doubt = (1 - trust) * observed
        totals += torch.einsum("nkq,nt->kqt", doubt, support).cpu()
        counts += observed.sum(dim=0).cpu()
    ranks.add(totals, counts)
    rates = totals / counts.clamp(min=1).unsqueeze(-1)
    diagonal = torch.eye(num_labels, dtype=torch.bool)
    return rates.masked_fill(diagonal, 0.0)


def wxor_scores(rates: Tensor, normalization: Literal["softmax", "sum", "rate"] = "softmax") -> Tensor:
    """WXOR scores from rates.

    ``softmax`` is the paper's: over the query axis, every label but O. ``sum`` divides by the sum over targets, as the
    authors' code does (exactly 0 or 1 with one entity type). ``rate`` keeps the rates.

    :param rates: ``(K, L, L)`` (LF, query, target).
    :returns: ``(K, L, L)``, 0 in the row and column of O and on the diagonal.
    """
    scores = rates.clone()
    if normalization == "softmax":
        scores[:, 1:, 1:] = torch.softmax(rates[:, 1:, 1:], dim=1)
    elif normalization == "sum":
        scores = rates / rates.sum(dim=2, keepdim=True).clamp(min=1e-12)
    return scores.masked_fill(torch.eye(rates.shape[-1], dtype=torch.bool), 0.0)


def addon_prior(scale: Tensor, scores: Tensor) -> Tensor:
    """Emission addon prior, eq. (6): targets become rows (true labels), queries columns (observed labels).

    :param scale: ``(..., K, L)`` in (0, 1), by LF and query label.
    :param scores: ``(K, L, L)`` (LF, query, target).
    :returns: ``(..., K, L, L)`` (LF, true label, observed label).
    """
    return (scale.unsqueeze(-1) * scores).transpose(-1, -2)
