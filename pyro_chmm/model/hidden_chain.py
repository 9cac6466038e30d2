"""A chain of hidden labels and what the LFs say of them: the part of the story that HMM and CHMM share.

Emissions come in G groups ``(G, K, L, L)``: one for all tokens (G = 1), or one for each (G = N).
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pyro
import torch
from pyro import poutine
from pyro.distributions import Categorical
from pyro.ops.indexing import Vindex
from torch import BoolTensor, Tensor

from pyro_chmm import chain
from pyro_chmm.data.batching import PackedBatch
from pyro_chmm.model.coarse_evidence import coarse_log_evidence, with_coarse_columns
from pyro_chmm.model.sparse_chmm import WeakLabels


def log_emission_evidence(log_emission: Tensor, batch: PackedBatch, backend: str) -> Tensor:
    """Log evidence of each token for each label: ``(G, K, L, L) -> (N, L)``."""
    grouped = _by_group(batch, len(log_emission))
    evidence = chain.emission_evidence(log_emission, batch.weak_labels, batch.weight, grouped.offsets, backend=backend)
    return evidence if batch.coarse is None else evidence + coarse_log_evidence(log_emission.exp(), grouped)


def marginalize_chain(
    transitions: Tensor, log_emission: Tensor, batch: PackedBatch, *, logits: bool, backend: str
) -> None:
    """All of z and x as one factor, inside a plate of documents: the log evidence of each.

    :param transitions: ``(N, L, L)`` (from, to), logits or probabilities. The label before the first token is O.
    :param log_emission: ``(G, K, L, L)``.
    """
    initial = torch.eye(transitions.shape[-1], dtype=transitions.dtype, device=transitions.device)[0]
    evidence = log_emission_evidence(log_emission, batch, backend)
    total = chain.log_evidence(initial, transitions, evidence, batch.offsets, logits=logits, backend=backend)
    pyro.factor("weak_labels", total.to(transitions.dtype))


def enumerate_chain(transitions: Tensor, emission: Tensor, batch: PackedBatch) -> None:
    """The same as a loop over tokens, for :class:`TraceEnum_ELBO`: sites ``z_t``, enumerated, and ``x_t``, observed.

    :param transitions: ``(N, L, L)`` probabilities.
    :param emission: ``(G, K, L, L)`` probabilities.
    """
    device, tokens = batch.offsets.device, len(batch.weak_labels)
    documents = torch.arange(batch.num_documents, device=device)
    longest = int(batch.lengths.max())
    inside = torch.arange(longest, device=device) < batch.lengths.unsqueeze(-1)  # (B, T)
    position = (batch.offsets[:-1].unsqueeze(-1) + torch.arange(longest, device=device)).clamp(max=tokens - 1)
    # unbind, not [:, t]: the backward of each select would be a full-size tensor of zeros
    steps = transitions[position].unbind(1)  # T times (B, L, L)
    emission, weak_labels, weights = with_coarse_columns(emission, batch)
    emissions = emission.expand(tokens, *emission.shape[1:])[position].unbind(1)  # T times (B, K, L, L)
    labels, weight = weak_labels[position].unbind(1), weights[position].unbind(1)
    z = torch.zeros(batch.num_documents, dtype=torch.long, device=device)
    for t in pyro.markov(range(longest)):
        with poutine.mask(mask=cast(BoolTensor, inside[:, t])):
            row = Vindex(steps[t])[documents, z, :]  # (..., B, L)
            z = pyro.sample(f"z_{t + 1}", Categorical(row), infer={"enumerate": "parallel"})
            rows = Vindex(emissions[t])[documents, :, z, :]  # (..., B, K, L)
            pyro.sample(f"x_{t + 1}", WeakLabels(rows, weight[t]), obs=labels[t])


def _by_group(batch: PackedBatch, groups: int) -> PackedBatch:
    """The batch with each group of tokens in the place of a document."""
    tokens, device = len(batch.weak_labels), batch.offsets.device
    offsets = torch.tensor([0, tokens], device=device) if groups == 1 else torch.arange(tokens + 1, device=device)
    return replace(batch, offsets=offsets)
