"""A small random model over ragged documents."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pyro_chmm.data.batching import PackedBatch
from pyro_chmm.model.conditionals import Conditionals
from pyro_chmm.model.config import SparseCHMMConfig
from pyro_chmm.model.networks import Networks
from pyro_chmm.model.priors import is_hierarchical

TOKEN_WIDTH, DOCUMENT_WIDTH = 6, 4


def make_batch(lengths: list[int], lfs: int, labels: int, seed: int = 0) -> PackedBatch:
    """Random documents; a fifth of the weak labels abstain, weights vary."""
    generator = torch.Generator().manual_seed(seed)
    tokens = sum(lengths)
    weak_labels = torch.randint(0, labels, (tokens, lfs), generator=generator)
    weak_labels[torch.rand(tokens, lfs, generator=generator) < 0.2] = -1
    weight = torch.rand(tokens, lfs, generator=generator, dtype=torch.float64) * 0.5 + 0.5
    return PackedBatch(
        torch.arange(len(lengths)),
        torch.tensor([0, *lengths]).cumsum(0),
        torch.randn(len(lengths), DOCUMENT_WIDTH, generator=generator, dtype=torch.float64),
        torch.randn(tokens, TOKEN_WIDTH, generator=generator, dtype=torch.float64),
        weak_labels,
        torch.where(weak_labels < 0, torch.zeros_like(weight), weight),
    )


def make_conditionals(
    lfs: int, labels: int, stage: int = 1, seed: int = 0, **hyperparameters: object
) -> Conditionals:
    """Random weights in float64, a random WXOR table and random observed emissions."""
    config = SparseCHMMConfig.from_dict(
        {"concentration_range": 50.0, "backend": "reference", **hyperparameters}
    )
    networks = Networks(
        *(TOKEN_WIDTH, DOCUMENT_WIDTH, lfs, labels),
        entity_level=config.reliability_level == "entity",
        transition_hidden=config.transition_hidden,
        shared_transition=config.shared_transition,
        corpus_emission=is_hierarchical(config.emission_prior),
    )
    conditionals = Conditionals(networks, config, torch.ones(labels, labels, dtype=torch.bool)).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in conditionals.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.7)
        conditionals.wxor.copy_(torch.rand(lfs, labels, labels, generator=generator))
        observed = torch.rand(lfs, labels, labels, generator=generator) + 0.1
        conditionals.observed_emission.copy_(observed / observed.sum(-1, keepdim=True))
    conditionals.stage = stage
    return conditionals


@pytest.fixture
def batch_of() -> Callable[..., PackedBatch]:
    return make_batch


@pytest.fixture
def conditionals_of() -> Callable[..., Conditionals]:
    return make_conditionals
