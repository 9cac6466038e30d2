"""The HMM: EM against a sum over all label sequences, and the fast path against TraceEnum_ELBO."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pyro
import pytest
import torch
from pyro import poutine
from pyro.infer import Trace_ELBO, TraceEnum_ELBO
from torch import Tensor

from pyro_chmm.data.batching import PackedBatch
from pyro_chmm.errors import ConfigError
from pyro_chmm.model.hmm import HMMModel, em_step

LFS, LABELS = 2, 3


def random_rows(*shape: int, seed: int) -> Tensor:
    rows = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + 0.1
    return rows / rows.sum(dim=-1, keepdim=True)


def make_model(documents: int, marginalize: str = "fast", backend: str = "reference") -> HMMModel:
    transition_prior = 1 + random_rows(LABELS, LABELS, seed=1)
    emission_prior = 1 + 3 * random_rows(LFS, LABELS, LABELS, seed=2)
    return HMMModel(transition_prior, emission_prior, documents, marginalize, backend)


def brute_force_step(
    batch: PackedBatch, model: HMMModel, transition: Tensor, emission: Tensor
) -> tuple[Tensor, Tensor, float]:
    """One EM step of Baum and Welch: expected counts by a sum over every label sequence of every document."""
    transitions, emissions = model.transition_prior - 1, model.emission_prior - 1
    transitions, emissions = transitions.clone(), emissions.clone()
    log_evidence = 0.0
    for start, end in itertools.pairwise(batch.offsets.tolist()):
        paths = list(itertools.product(range(LABELS), repeat=end - start))
        joint = []
        for path in paths:
            p, previous = 1.0, 0
            for n, z in zip(range(start, end), path, strict=True):
                p *= float(transition[previous, z])
                for k in range(LFS):
                    x = int(batch.weak_labels[n, k])
                    p *= float(emission[k, z, x]) ** float(batch.weight[n, k]) if x >= 0 else 1.0
                previous = z
            joint.append(p)
        log_evidence += float(torch.tensor(sum(joint), dtype=torch.float64).log())
        for path, p in zip(paths, joint, strict=True):
            previous = 0
            for n, z in zip(range(start, end), path, strict=True):
                transitions[previous, z] += p / sum(joint)
                for k in range(LFS):
                    x = int(batch.weak_labels[n, k])
                    if x >= 0:
                        emissions[k, z, x] += float(batch.weight[n, k]) * p / sum(joint)
                previous = z
    return transitions / transitions.sum(-1, keepdim=True), emissions / emissions.sum(-1, keepdim=True), log_evidence


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_em_equals_brute_force(backend: str, batch_of: Callable[..., PackedBatch]) -> None:
    batch, model = batch_of([4, 1, 3], LFS, LABELS), make_model(3, backend=backend)
    transition, emission = random_rows(LABELS, LABELS, seed=3), random_rows(LFS, LABELS, LABELS, seed=4)
    expected = brute_force_step(batch, model, transition, emission)
    found = em_step(model, [batch], transition, emission)
    torch.testing.assert_close(found.transition, expected[0], rtol=1e-9, atol=0)
    torch.testing.assert_close(found.emission, expected[1], rtol=1e-9, atol=0)
    prior = sum(
        float(torch.distributions.Dirichlet(concentration).log_prob(value).sum())
        for concentration, value in ((model.transition_prior, transition), (model.emission_prior, emission))
    )
    assert found.log_density == pytest.approx(expected[2] + prior, rel=1e-10)


def test_batches_together_are_the_corpus(batch_of: Callable[..., PackedBatch]) -> None:
    """Each carries its share of the priors; the step does not depend on how the corpus is cut."""
    from pyro_chmm.model.verification import shortened

    whole = batch_of([4, 4, 4], LFS, LABELS)
    first = shortened(whole, 1, 4)
    rest = PackedBatch(
        whole.documents[1:], whole.offsets[1:] - 4, whole.document_vectors[1:], whole.token_vectors[4:],
        whole.weak_labels[4:], whole.weight[4:],
    )  # fmt: skip
    model, start = make_model(3), (random_rows(LABELS, LABELS, seed=3), random_rows(LFS, LABELS, LABELS, seed=4))
    one, two = em_step(model, [whole], *start), em_step(model, [first, rest], *start)
    torch.testing.assert_close(one.transition, two.transition)
    torch.testing.assert_close(one.emission, two.emission)
    assert one.log_density == pytest.approx(two.log_density)


def test_every_step_raises_the_density(batch_of: Callable[..., PackedBatch]) -> None:
    batch, model = batch_of([5, 1, 8, 3], LFS, LABELS), make_model(4)
    point = random_rows(LABELS, LABELS, seed=5), random_rows(LFS, LABELS, LABELS, seed=6)
    densities = []
    for _ in range(12):
        transition, emission, density = em_step(model, [batch], *point)
        point = transition, emission
        densities.append(density)
    assert all(later >= earlier for earlier, later in itertools.pairwise(densities))
    assert densities[-1] > densities[0] + 0.1


def test_fast_equals_enumeration(batch_of: Callable[..., PackedBatch]) -> None:
    batch = batch_of([5, 1, 3, 1, 8], LFS, LABELS)
    results = []
    for marginalize, elbo in (("fast", Trace_ELBO()), ("enum", TraceEnum_ELBO(max_plate_nesting=1))):
        point = {
            "transition": random_rows(LABELS, LABELS, seed=3).requires_grad_(),
            "emission": random_rows(LFS, LABELS, LABELS, seed=4).requires_grad_(),
        }
        model = poutine.condition(make_model(5, marginalize), data=point)
        with pyro.validation_enabled(False):
            loss = elbo.differentiable_loss(model, lambda batch: None, batch)
        loss.backward()
        # Categorical divides by the sum of a row: compare gradients along the simplex
        gradients = [value.grad - (value.grad * value.detach()).sum(-1, keepdim=True) for value in point.values()]
        results.append([loss.detach(), *gradients])
    for fast, slow in zip(*results, strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-8, atol=1e-8)


def test_what_makes_no_sense_is_refused(batch_of: Callable[..., PackedBatch]) -> None:
    with pytest.raises(ConfigError, match="marginalize is 'none'"):
        make_model(1, "none")
    model = make_model(1)
    model.transition_prior.mul_(0.5)
    with pytest.raises(ConfigError, match="concentration is below 1"):
        em_step(model, [batch_of([2], LFS, LABELS)], torch.eye(LABELS), torch.eye(LABELS).expand(LFS, -1, -1))
