"""Dawid-Skene: EM by hand, errors that it has to find, and files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pyro_chmm.data.corpus import Corpus, CorpusSplits
from pyro_chmm.data.labels import LabelSet
from pyro_chmm.errors import ConfigError, DataError, ModelFileError
from pyro_chmm.label_models.dawid_skene import DawidSkene
from pyro_chmm.label_models.io_space import io_votes
from pyro_chmm.label_models.majority_vote import MajorityVote


def random_corpus(accuracies: list[float], documents: int = 600, seed: int = 0) -> Corpus:
    """One entity token a document; LF k names its type of two rightly with probability ``accuracies[k]``, and never says O."""
    rng = np.random.default_rng(seed)
    gold = 1 + 2 * rng.integers(0, 2, documents)
    wrong = rng.random((documents, len(accuracies))) > accuracies
    weak = np.where(wrong, 4 - gold[:, None], gold[:, None])
    names = [f"lf{k}" for k in range(len(accuracies))]
    offsets = np.arange(documents + 1)
    return Corpus(LabelSet(("X", "Y")), tuple(names), [["w"]] * documents, offsets, weak, gold, tuple(map(str, offsets[:-1])))


def brute_force_step(votes: np.ndarray, posterior: np.ndarray, pseudo_count: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One M and one E step with loops over every token, LF and class."""
    (tokens, lfs), classes = votes.shape, posterior.shape[1]
    prior = np.full(classes, pseudo_count)
    confusion = np.full((lfs, classes, classes + 1), pseudo_count)  # the last vote, reached by -1, is to abstain
    for n in range(tokens):
        for c in range(classes):
            prior[c] += posterior[n, c]
            for k in range(lfs):
                confusion[k, c, votes[n, k]] += posterior[n, c]
    prior /= prior.sum()
    confusion /= confusion.sum(axis=-1, keepdims=True)
    after = np.zeros_like(posterior)
    for n in range(tokens):
        for c in range(classes):
            after[n, c] = prior[c]
            for k in range(lfs):
                after[n, c] *= confusion[k, c, votes[n, k]]
    return prior, confusion, after / after.sum(axis=1, keepdims=True)


def test_em_equals_loops_over_tokens(tiny: Corpus) -> None:
    votes = io_votes(tiny)
    posterior = np.array([[(row == c).sum() for c in range(3)] for row in votes], float)
    posterior /= posterior.sum(axis=1, keepdims=True)
    for steps in (1, 2, 3):
        prior, confusion, posterior = brute_force_step(votes, posterior, 0.1)
        model = DawidSkene(pseudo_count=0.1, max_steps=steps).fit(tiny)
        assert model.steps_ == steps
        np.testing.assert_allclose(model.prior_, prior, rtol=1e-12)
        np.testing.assert_allclose(model.confusion_, confusion, rtol=1e-12)
        np.testing.assert_allclose(model.class_posterior(votes), posterior, rtol=1e-12)


def test_it_finds_whom_to_believe() -> None:
    """Two poor LFs against a good one: the vote follows the two where they agree, the model does not always."""
    corpus = random_corpus([0.95, 0.6, 0.6, 0.6])
    model = DawidSkene().fit(corpus)
    # 600 tokens, half of each class: standard error of an accuracy of 0.95 is 0.013, of 0.6 0.03; the seed is fixed
    diagonal = model.confusion_.diagonal(axis1=1, axis2=2)[:, 1:]
    np.testing.assert_allclose(diagonal[0], 0.95, atol=0.06)
    np.testing.assert_allclose(diagonal[1:], 0.6, atol=0.12)
    assert model.score(corpus).f1 > MajorityVote().score(corpus).f1 + 10


def test_silence_tells_types_apart_that_different_lfs_look_for(wrench: Callable[[str], CorpusSplits]) -> None:
    """Each LF of BC5CDR knows chemicals or diseases; the benchmark's figure for this model is 83.49."""
    splits = wrench("bc5cdr")
    assert abs(DawidSkene().fit(splits.train).score(splits.test).f1 - 83.49) < 0.05


def test_an_o_counts_only_where_no_lf_fires(tiny: Corpus) -> None:
    np.testing.assert_array_equal(io_votes(tiny), [[1, 1, -1], [1, -1, -1], [0, 0, 0], [0, 0, -1], [2, 1, -1], [0, 0, -1]])


def test_labels_and_probabilities(tiny: Corpus) -> None:
    model = DawidSkene().fit(tiny)
    assert model.predict(tiny)[:2] == [["B-PER", "I-PER", "O"], []]
    probabilities = model.predict_proba(tiny)
    assert [part.shape for part in probabilities] == [(3, 5), (0, 5), (3, 5)]
    np.testing.assert_allclose(np.concatenate(probabilities).sum(axis=1), 1)
    np.testing.assert_array_equal(np.concatenate(probabilities).argmax(axis=1), model.predict_ids(tiny))


def test_a_saved_model_predicts_the_same(tiny: Corpus, tmp_path: Path) -> None:
    model = DawidSkene(pseudo_count=0.2).fit(tiny)
    model.save(tmp_path / "model")
    loaded = DawidSkene.load(tmp_path / "model")
    assert loaded.settings() == model.settings()
    for one, other in zip(model.predict_proba(tiny), loaded.predict_proba(tiny), strict=True):
        np.testing.assert_array_equal(one, other)
    # LFs are found by name, in whatever order the corpus has them
    np.testing.assert_array_equal(loaded.predict_ids(tiny.select_lfs(["c", "a", "b"])), model.predict_ids(tiny))
    with pytest.raises(DataError, match="lacks the LF 'b'"):
        loaded.predict(tiny.select_lfs(["a", "c"]))
    with pytest.raises(DataError, match="entity types X, Y, the model was fitted with PER, LOC"):
        loaded.predict(random_corpus([0.9], documents=2))
    with pytest.raises(ModelFileError, match="does not describe a MajorityVote"):
        MajorityVote.load(tmp_path / "model")


def test_what_makes_no_sense_is_refused(tiny: Corpus) -> None:
    with pytest.raises(ConfigError, match="pseudo_count is 0"):
        DawidSkene(pseudo_count=0)
    with pytest.raises(ConfigError, match="max_steps is 0"):
        DawidSkene(max_steps=0)
    with pytest.raises(ConfigError, match="has not been fitted"):
        DawidSkene().predict(tiny)
    with pytest.raises(DataError, match="0 tokens and 3 labeling functions"):
        DawidSkene().fit(tiny.select_documents([]))
    with pytest.raises(DataError, match="differ in labeling functions"):
        DawidSkene().fit(tiny, valid=tiny.select_lfs(["a"]))
