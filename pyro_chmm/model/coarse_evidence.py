"""What coarse labels add to the emission evidence: the sum over all ordinary labels that they allow."""

from __future__ import annotations

import torch
from torch import Tensor

from pyro_chmm.data.batching import CoarseBatch, PackedBatch


def coarse_probabilities(emission: Tensor, coarse: CoarseBatch) -> Tensor:
    """Probability of each coarse label, ``(B, K, L, L) -> (B, K, L, 2 C)``: the sum over what it allows."""
    return emission @ coarse.allows.to(emission).T


def coarse_log_evidence(emission: Tensor, batch: PackedBatch) -> Tensor:
    """Log evidence of the coarse labels of each token, ``(N, L)``, to be added to that of the others; 0 without any."""
    total = emission.new_zeros(batch.weak_labels.shape[0], emission.shape[-1])
    if batch.coarse is None:
        return total
    tokens, lfs = (batch.coarse.labels >= 0).nonzero(as_tuple=True)
    said = batch.coarse.labels[tokens, lfs]
    probabilities = coarse_probabilities(emission, batch.coarse)[batch.document_index[tokens], lfs, :, said]
    return total.index_add(0, tokens, batch.coarse.weight * probabilities.log())


def with_coarse_columns(emission: Tensor, batch: PackedBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Emission ``(B, K, L, L + 2 C)``, labels and weights ``(N, K)`` in which coarse labels are ids from L on."""
    if batch.coarse is None:
        return emission, batch.weak_labels, batch.weight
    wide = torch.cat([emission, coarse_probabilities(emission, batch.coarse)], dim=-1)
    said = batch.coarse.labels >= 0
    labels = torch.where(said, batch.coarse.labels + emission.shape[-1], batch.weak_labels)
    return wide, labels, torch.where(said, torch.full_like(batch.weight, batch.coarse.weight), batch.weight)
