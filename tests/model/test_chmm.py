"""CHMM against TraceEnum_ELBO and against a sum over all label sequences."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pyro
import pytest
import torch
from pyro.infer import Trace_ELBO, TraceEnum_ELBO
from torch import Tensor

from pyro_chmm.data.batching import PackedBatch
from pyro_chmm.errors import ConfigError
from pyro_chmm.model.chmm import CHMMModel, CHMMNetworks, no_guide

LFS, LABELS, WIDTH = 2, 3, 6


def make_networks(fixed_emission: bool = False) -> CHMMNetworks:
    networks = CHMMNetworks(WIDTH, LFS, LABELS, fixed_emission).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in networks.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        emission = torch.rand(networks.emission.shape, generator=generator, dtype=torch.float64) + 0.1
        networks.emission.copy_(emission / emission.sum(-1, keepdim=True))
    return networks


def loss_and_gradients(networks: CHMMNetworks, batch: PackedBatch, marginalize: str, backend: str) -> list[Tensor]:
    elbo = TraceEnum_ELBO(max_plate_nesting=1) if marginalize == "enum" else Trace_ELBO()
    networks.zero_grad()
    with pyro.validation_enabled(False):
        loss = elbo.differentiable_loss(CHMMModel(networks, marginalize, backend), no_guide, batch)
    loss.backward()
    return [loss.detach(), *(parameter.grad.clone() for parameter in networks.parameters())]


@pytest.mark.parametrize("fixed_emission", [False, True])
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_fast_equals_enumeration(fixed_emission: bool, backend: str, batch_of: Callable[..., PackedBatch]) -> None:
    """The loss, and its gradient at every parameter."""
    networks, batch = make_networks(fixed_emission), batch_of([5, 1, 3, 1, 8], LFS, LABELS)
    fast = loss_and_gradients(networks, batch, "fast", backend)
    slow = loss_and_gradients(networks, batch, "enum", backend)
    assert len(fast) == (3 if fixed_emission else 5)
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def test_the_loss_is_minus_the_brute_force_evidence(batch_of: Callable[..., PackedBatch]) -> None:
    networks, batch = make_networks(), batch_of([4, 1, 2], LFS, LABELS)
    transition = networks.transition(batch.token_vectors).softmax(-1)
    emission = networks.log_emission(batch.token_vectors).exp()
    total = 0.0
    for start, end in itertools.pairwise(batch.offsets.tolist()):
        evidence = 0.0
        for path in itertools.product(range(LABELS), repeat=end - start):
            joint, previous = 1.0, 0
            for n, z in zip(range(start, end), path, strict=True):
                joint *= transition[n, previous, z].item()
                for k in range(LFS):
                    if batch.weak_labels[n, k] >= 0:
                        joint *= emission[n, k, z, batch.weak_labels[n, k]].item() ** batch.weight[n, k].item()
                previous = z
            evidence += joint
        total -= torch.tensor(evidence, dtype=torch.float64).log().item()
    loss = loss_and_gradients(networks, batch, "fast", "reference")[0]
    assert loss.item() == pytest.approx(total, rel=1e-10)


def test_it_starts_at_the_given_matrices() -> None:
    networks = CHMMNetworks(WIDTH, LFS, LABELS)
    transition = torch.tensor([[0.8, 0.1, 0.1], [0.2, 0.2, 0.6], [0.5, 0.25, 0.25]])
    emission = transition.expand(LFS, -1, -1).roll(1, dims=-1)
    networks.initialize(torch.zeros(WIDTH), torch.ones(WIDTH), transition, emission)
    vectors = torch.randn(4, WIDTH)
    torch.testing.assert_close(networks.transition(vectors).softmax(-1), transition.expand(4, -1, -1))
    torch.testing.assert_close(networks.log_emission(vectors).exp(), emission.expand(4, -1, -1, -1))


def test_an_unknown_way_to_marginalize_is_refused() -> None:
    with pytest.raises(ConfigError, match="marginalize is 'both'"):
        CHMMModel(make_networks(), "both")
