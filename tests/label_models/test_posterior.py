"""Draws from the posterior: they are of the distribution they claim to be of, and one document at a time."""

from __future__ import annotations

import itertools
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import pyro_chmm
from pyro_chmm import Corpus, CorpusSplits, SparseCHMM
from pyro_chmm.errors import ConfigError, DataError
from pyro_chmm.label_models import posterior as posterior_module
from pyro_chmm.label_models.posterior import type_reliabilities

FEW: dict[str, Any] = {
    "encoder": "none",
    "concentration_range": 40.0,  # a posterior wide enough to look at
    "pretrain_steps": 2,
    "epochs_stage1": 2,
    "epochs_stage2": 1,
    "epochs_stage3": 1,
    "verify": False,
}


@pytest.fixture(scope="module")
def demo() -> CorpusSplits:
    """The demo corpus, a part of it: 60, 30 and 12 documents, the second of the last one empty."""
    whole = pyro_chmm.load_dataset("demo")
    sizes = {"train": 60, "valid": 30, "test": 11}
    parts = {name: whole[name].select_documents(range(size)) for name, size in sizes.items()}
    test = parts["test"]
    empty = Corpus.from_spans([[]], [[[]] * test.num_lfs], test.label_set.entity_types, test.lf_names, document_ids=["empty"])
    first, rest = test.select_documents([0]), test.select_documents(range(1, 11))
    return CorpusSplits("demo", {**parts, "test": Corpus.concatenate([first, empty, rest])})


@pytest.fixture(scope="module")
def fitted(demo: CorpusSplits) -> SparseCHMM:
    """Fitted, and changed by no test."""
    return SparseCHMM(**FEW).fit(demo.train, valid=demo.valid)


def test_emissions_are_of_the_guide(fitted: SparseCHMM, demo: CorpusSplits) -> None:
    posterior = fitted.posterior(demo.test, draws=2000)
    draws, expected = posterior.emission(3), fitted.emission(demo.test.select_documents([3]))
    assert draws.shape == (2000, 6, 7, 7)
    np.testing.assert_allclose(draws.sum(-1), 1, atol=1e-5)
    error = draws.std(0) / 2000**0.5
    # 294 entries, 5 standard errors: fails once in 6,000 seeds, and the seed is fixed
    assert (np.abs(draws.mean(0) - expected) < 5 * error).all()
    # of a Dirichlet: variance = mean (1 - mean) / (concentration + 1), the concentration the same for all entries of a row
    concentration = draws.mean(0) * (1 - draws.mean(0)) / draws.var(0) - 1
    found = concentration.mean(-1, keepdims=True)
    np.testing.assert_allclose(concentration / found, 1, atol=0.35)


def test_the_mean_over_documents(fitted: SparseCHMM, demo: CorpusSplits) -> None:
    posterior = fitted.posterior(demo.test, draws=50)
    by_document = np.stack([posterior.emission(number) for number in range(len(posterior))])
    np.testing.assert_allclose(posterior.emission(), by_document.mean(0))
    assert posterior.emission().std(0).max() < by_document[0].std(0).max()
    assert len(posterior) == demo.test.num_documents


def test_reliabilities_by_type() -> None:
    emission = np.arange(2 * 25).reshape(1, 2, 5, 5)
    assert type_reliabilities(emission).tolist() == [[[0, 9, 21], [25, 34, 46]]]


def test_reliabilities_are_those_of_the_model(fitted: SparseCHMM, demo: CorpusSplits) -> None:
    posterior = fitted.posterior(demo.test, draws=50)
    assert posterior.reliabilities().shape == (50, 6, 4)
    expected = type_reliabilities(fitted.emission(demo.test))
    np.testing.assert_allclose(posterior.reliabilities().mean(0), expected, atol=0.02)
    np.testing.assert_array_equal(posterior.reliabilities(2), type_reliabilities(posterior.emission(2)))


def test_marginals_are_the_mean_over_emissions_of_exact_ones(fitted: SparseCHMM, demo: CorpusSplits) -> None:
    """Every label sequence of a document of 3 tokens, for every draw."""
    corpus = demo.test.select_documents([4])
    short = Corpus.from_spans(
        [corpus.tokens[0][:3]],
        [[[(0, 2, "PER")], [(0, 1, "ORG")], [], [], [], None]],
        corpus.label_set.entity_types,
        corpus.lf_names,
    )
    posterior = fitted.posterior(short, draws=5)
    found = posterior.document(0)
    conditionals, weight = fitted._fitted(), posterior.packed.weight
    transitions = conditionals.decoding_transitions(posterior.packed.batch(np.array([0])).token_vectors).double().detach().numpy()
    expected = np.zeros((3, 7))
    for emission in found.emission:
        marginals = np.zeros((3, 7))
        for path in itertools.product(range(7), repeat=3):
            joint, previous = 1.0, 0
            for t, z in enumerate(path):
                joint *= transitions[t, previous, z]
                for k in range(6):
                    if short.weak_labels[t, k] >= 0:
                        joint *= emission[k, z, short.weak_labels[t, k]] ** weight[t, k]
                previous = z
            for t, z in enumerate(path):
                marginals[t, z] += joint
        expected += marginals / marginals[0].sum() / 5
    np.testing.assert_allclose(found.marginals, expected, atol=1e-5)


def test_label_sequences_have_those_marginals_and_are_valid(fitted: SparseCHMM, demo: CorpusSplits) -> None:
    posterior = fitted.posterior(demo.test, draws=2000)
    found = posterior.document(0)
    frequency = np.stack([(found.labels == label).mean(0) for label in range(7)], axis=1)
    error = np.sqrt(found.marginals * (1 - found.marginals) / 2000) + 1e-3
    assert (np.abs(frequency - found.marginals) < 5 * error).all()
    allowed = demo.test.label_set.allowed_transitions
    before = np.concatenate([np.zeros((2000, 1), int), found.labels[:, :-1]], axis=1)
    assert allowed[before, found.labels].all()
    np.testing.assert_array_equal(posterior.labels(0), found.labels)
    np.testing.assert_array_equal(posterior.marginals(0), found.marginals)


def test_marginals_are_near_the_plug_in_ones(fitted: SparseCHMM, demo: CorpusSplits) -> None:
    sure = SparseCHMM(**{**FEW, "sample_emission": False}).fit(demo.train, valid=demo.valid)
    for found, expected in zip(sure.posterior(demo.test, draws=3), sure.predict_proba(demo.test), strict=True):
        np.testing.assert_allclose(found.marginals, expected, atol=1e-5)
    assert np.ptp(sure.posterior(demo.test, draws=3).emission(0), axis=0).max() == 0


def test_weak_labels_follow_from_labels_and_emissions(fitted: SparseCHMM, demo: CorpusSplits) -> None:
    weak = demo.test.weak_labels.copy()
    weak[2, 1] = -1
    corpus = replace(demo.test, weak_labels=weak)
    posterior = fitted.posterior(corpus, draws=4000)
    found = posterior.document(0)
    given = weak[corpus.document_slice(0)] >= 0
    assert not given[2, 1]
    np.testing.assert_array_equal(found.weak_labels >= 0, np.broadcast_to(given, found.weak_labels.shape))
    for lf in (0, 5):
        # mean over draws of the emission's row of the drawn label
        rows = found.emission[np.arange(4000)[:, None], lf, found.labels]
        frequency = np.stack([(found.weak_labels[..., lf] == label).mean(0) for label in range(7)], axis=1)
        error = np.sqrt(rows.mean(0) * (1 - rows.mean(0)) / 4000) + 1e-4
        assert (np.abs(frequency - rows.mean(0)) < 5 * error).all()
    np.testing.assert_array_equal(posterior.weak_labels(0), found.weak_labels)


def test_the_same_seed_draws_the_same_in_any_order(fitted: SparseCHMM, demo: CorpusSplits) -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    one, other = fitted.posterior(demo.test, draws=7), fitted.posterior(demo.test, draws=7)
    late = other.document(5)
    np.testing.assert_array_equal(list(one)[5].labels, late.labels)
    np.testing.assert_array_equal(one.emission(5), late.emission)
    assert not np.array_equal(one.emission(5), one.emission(6))
    assert not np.array_equal(fitted.posterior(demo.test, draws=7, seed=1).emission(5), late.emission)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_document_is_gone_when_it_is_no_longer_used(fitted: SparseCHMM, demo: CorpusSplits) -> None:
    alive = []
    for document in fitted.posterior(demo.test, draws=5):
        alive.append(weakref.ref(document))
    del document
    assert [reference() for reference in alive] == [None] * demo.test.num_documents


def test_so_many_draws_at_once_as_memory_allows(fitted: SparseCHMM, demo: CorpusSplits, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = fitted.posterior(demo.test, draws=7).marginals(0)
    largest, sample = 0, posterior_module.chain.sample

    def watched(initial: Any, transition: Any, *rest: Any, **options: Any) -> Any:
        nonlocal largest
        largest = max(largest, transition.numel())
        return sample(initial, transition, *rest, **options)

    monkeypatch.setattr(posterior_module, "_TRANSITIONS", 2000)
    monkeypatch.setattr(posterior_module.chain, "sample", watched)
    found = fitted.posterior(demo.test, draws=7).document(0)
    np.testing.assert_allclose(found.marginals, expected, atol=1e-6)
    assert found.labels.shape == (7, len(demo.test.tokens[0]))
    assert 0 < largest <= 2000


def test_an_empty_document(fitted: SparseCHMM, demo: CorpusSplits) -> None:
    found = fitted.posterior(demo.test, draws=5).document(1)
    assert (found.emission.shape, found.labels.shape) == ((5, 6, 7, 7), (5, 0))
    assert (found.weak_labels.shape, found.marginals.shape) == ((5, 0, 6), (0, 7))


def test_the_vote_is_no_lf_of_the_posterior(demo: CorpusSplits) -> None:
    model = SparseCHMM(**FEW, majority_vote_lf=True).fit(demo.train, valid=demo.valid)
    found = model.posterior(demo.test, draws=5).document(0)
    assert found.emission.shape == (5, 6, 7, 7)
    assert found.weak_labels.shape[-1] == 6


def test_coarse_labels_are_evidence_and_are_not_drawn() -> None:
    corpus = Corpus.from_spans(
        [["Anna", "Lee", "sings"], ["in", "Oslo"]],
        [[[(0, 2, "PER")], [(0, 2, "ENT")]], [[(1, 2, "LOC")], [(1, 2, "ENT")]]],
        ["PER", "LOC"],
        ["a", "b"],
        coarse_types=["ENT"],
    )
    model = SparseCHMM(**FEW).fit(corpus)
    found = model.posterior(corpus, draws=400).document(0)
    assert (found.weak_labels[:, :2, 1] == -1).all()
    assert (found.weak_labels[:, 2, 1] >= 0).all()
    np.testing.assert_allclose(found.marginals, model.predict_proba(corpus)[0], atol=0.1)


# bad input


def test_a_model_that_was_never_fitted_says_so(demo: CorpusSplits) -> None:
    with pytest.raises(ConfigError, match="has not been fitted"):
        SparseCHMM(encoder="none").posterior(demo.test)


@pytest.mark.parametrize("draws", [0, -3, 2.5])
def test_draws_must_be_a_positive_whole_number(draws: Any, fitted: SparseCHMM, demo: CorpusSplits) -> None:
    with pytest.raises(ConfigError, match=f"draws is {draws}; expected a whole number, 1 or more"):
        fitted.posterior(demo.test, draws=draws)


@pytest.mark.parametrize("number", [-1, 12])
def test_a_document_that_is_not_there(number: int, fitted: SparseCHMM, demo: CorpusSplits) -> None:
    for ask in (fitted.posterior(demo.test).document, fitted.posterior(demo.test).emission):
        with pytest.raises(DataError, match=rf"no document number {number}; the corpus has 12 documents"):
            ask(number)


def test_other_lfs_are_refused(fitted: SparseCHMM, demo: CorpusSplits) -> None:
    with pytest.raises(DataError, match="lacks the LF"):
        fitted.posterior(demo.test.select_lfs(["title"]))
