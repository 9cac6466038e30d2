"""Intervals against the Beta distribution, expectations against counts by hand, the truth by counting."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta

from pyro_chmm import SparseCHMM
from pyro_chmm.data.corpus import Corpus, CorpusSplits
from pyro_chmm.errors import DataError
from pyro_chmm.inspection.believed import (
    diagonal_intervals,
    emission_by_stage,
    expected_and_true_f1,
    expected_labels,
    label_counts,
    true_emission,
)


def test_of_one_document_the_interval_is_that_of_a_beta() -> None:
    concentration = np.array([[[[8.0, 1.0, 1.0], [2.0, 3.0, 4.0], [5.0, 0.5, 0.5]]]])
    found = diagonal_intervals(concentration, mass=0.9)
    expected = [beta(8, 2), beta(3, 6), beta(0.5, 5.5)]
    assert found.low[0] == pytest.approx([one.ppf(0.05) for one in expected], abs=2e-6)
    assert found.high[0] == pytest.approx([one.ppf(0.95) for one in expected], abs=2e-6)
    assert found.mean[0] == pytest.approx([0.8, 1 / 3, 0.5 / 6])


def test_of_several_documents_it_is_that_of_their_mixture() -> None:
    """Half of the mass is at each of two documents; drawn quantiles differ by less than 0.004 in nearly all seeds."""
    concentration = np.array([[[[90.0, 10.0], [1.0, 1.0]]], [[[20.0, 80.0], [1.0, 1.0]]]])
    found = diagonal_intervals(concentration, mass=0.8)
    generator = np.random.default_rng(0)
    draws = np.concatenate([generator.beta(90, 10, 200_000), generator.beta(20, 80, 200_000)])
    assert [found.low[0, 0], found.high[0, 0]] == pytest.approx(np.quantile(draws, [0.1, 0.9]), abs=0.004)
    assert found.mean[0, 0] == pytest.approx(0.55)


def test_expected_labels_are_marginals_times_emission(fitted: SparseCHMM, test_corpus: Corpus) -> None:
    (part,) = fitted.decoded(test_corpus)
    found = expected_labels(label_counts(part, test_corpus.num_lfs))
    marginals, emission = np.concatenate(fitted.predict_proba(test_corpus)), fitted.emission(test_corpus)
    for lf in range(test_corpus.num_lfs):
        spoke = test_corpus.weak_labels[:, lf] >= 0
        chance = marginals[spoke] @ emission[lf]  # with encoder none, one emission for all documents
        np.testing.assert_allclose(found.expected[lf], chance.sum(axis=0), rtol=1e-4)
        np.testing.assert_allclose(found.deviation[lf], np.sqrt((chance * (1 - chance)).sum(axis=0)), rtol=1e-4)
        said = np.bincount(test_corpus.weak_labels[spoke, lf], minlength=len(test_corpus.label_set))
        assert found.observed[lf].tolist() == said.tolist()
        assert found.tokens[lf] == spoke.sum()
    np.testing.assert_allclose(found.expected.sum(axis=1), found.tokens, rtol=1e-4)
    np.testing.assert_allclose(found.z * found.deviation, found.observed - found.expected, atol=1e-6)


def test_the_true_emission_is_counted(tiny: Corpus) -> None:
    found = true_emission(tiny)
    names = tiny.label_set
    assert found[0, names.id("B-PER"), names.id("B-PER")] == 1
    assert found[1, names.id("I-PER"), names.id("O")] == 1
    assert found[1, names.id("B-LOC"), names.id("B-PER")] == 1
    assert np.isnan(found[2, names.id("B-LOC")]).all()  # c abstained on that document
    with pytest.raises(DataError, match="the corpus has none"):
        true_emission(tiny.without_gold())


def test_f1_by_lf_and_type(tiny: Corpus) -> None:
    assert tiny.gold is not None
    certain = np.eye(len(tiny.label_set))[tiny.gold]
    expected, f1 = expected_and_true_f1(tiny, certain)
    assert f1[0].tolist() == [1.0, 1.0]
    assert f1[1, 0] == 0.0
    assert expected[0].tolist() == [1.0, 1.0]  # a posterior sure of the truth expects the truth
    assert np.isnan(expected[1, 1])  # b never says LOC
    assert np.isnan(f1[1, 1])
    doubt = 0.5 * certain + 0.5 * np.eye(len(tiny.label_set))[0]
    said, gold = (tiny.weak_labels[:, 0] == 1) | (tiny.weak_labels[:, 0] == 2), (tiny.gold == 1) | (tiny.gold == 2)
    hit = 0.5 * (said & gold).sum()
    assert expected_and_true_f1(tiny, doubt)[0][0, 0] == pytest.approx(2 * hit / (said.sum() + 0.5 * gold.sum()))
    with pytest.raises(DataError, match="the corpus has none"):
        expected_and_true_f1(tiny.without_gold(), certain)


def test_the_emission_of_each_stage(fitted: SparseCHMM, demo: CorpusSplits, test_corpus: Corpus) -> None:
    before = fitted.emission(test_corpus)
    stages = emission_by_stage(fitted, test_corpus)
    assert list(stages) == ["stage 1", "stage 2", "stage 3"]
    assert not np.allclose(stages["stage 1"], stages["stage 2"])
    np.testing.assert_array_equal(stages[f"stage {fitted.best_stage_}"], before)
    np.testing.assert_array_equal(fitted.emission(test_corpus), before)
