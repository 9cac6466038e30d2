"""Corpora drawn from the model: what is drawn is what the truth says, and nothing beats who knows it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pyro_chmm.data.scoring import score
from pyro_chmm.errors import ConfigError
from pyro_chmm.label_models.majority_vote import MajorityVote
from pyro_chmm.model.simulation import LIKE, Size, Truth, draw_corpus, most_probable, readable, type_reliability

SIZE = Size(types=2, lfs=3, length=6)


def test_the_truth_is_a_proper_one() -> None:
    truth = Truth.draw(Size(types=4, lfs=16, length=14), seed=1)
    assert truth.transition.shape == (9, 9)
    assert truth.emission.shape == (16, 9, 9)
    np.testing.assert_allclose(truth.transition.sum(-1), 1)
    np.testing.assert_allclose(truth.emission.sum(-1), 1)
    for before, after in itertools.product(range(9), range(2, 9, 2)):  # I- follows B- or I- of its type alone
        assert (truth.transition[before, after] > 0) == (before in (after - 1, after))
    assert truth.reliability.shape == (16, 4)
    assert (truth.reliability > 0.2).all()
    assert (truth.reliability < 0.75).all()  # the diagonal, which is at most 0.7, and a little of B- for I-
    diagonal = np.diagonal(truth.emission, axis1=1, axis2=2)
    assert ((diagonal[:, 1:] >= 0.2) & (diagonal[:, 1:] <= 0.7)).all()


def test_frequencies_are_the_truth() -> None:
    truth = Truth.draw(SIZE, seed=0)
    corpus = draw_corpus(truth, 20_000, np.random.default_rng(0))
    assert corpus.gold is not None
    assert len(corpus.gold) / corpus.num_documents == pytest.approx(6, rel=0.02)
    counts = np.zeros_like(truth.emission)
    for lf in range(3):
        np.add.at(counts[lf], (corpus.gold, corpus.weak_labels[:, lf]), 1)
    found = counts / counts.sum(-1, keepdims=True)
    np.testing.assert_allclose(found, truth.emission, atol=0.025)
    np.testing.assert_allclose(type_reliability(found), truth.reliability, atol=0.02)
    firsts = corpus.gold[corpus.offsets[:-1]]
    np.testing.assert_allclose(np.bincount(firsts, minlength=5) / 20_000, truth.transition[0], atol=0.01)
    inner = np.setdiff1d(np.arange(1, len(corpus.gold)), corpus.offsets)
    steps = np.zeros((5, 5))
    np.add.at(steps, (corpus.gold[inner - 1], corpus.gold[inner]), 1)
    np.testing.assert_allclose(steps / steps.sum(-1, keepdims=True), truth.transition, atol=0.03)


def test_the_most_probable_labels_are_those_of_enumeration() -> None:
    truth = Truth.draw(SIZE, seed=3)
    corpus = draw_corpus(truth, 20, np.random.default_rng(1))
    found = most_probable(truth, corpus)
    for number in range(20):
        span = corpus.document_slice(number)
        votes, labels = corpus.weak_labels[span][:4], 5
        if span.stop - span.start > 4:
            continue

        def log_probability(path: tuple[int, ...], votes: np.ndarray = votes) -> float:
            steps = itertools.pairwise((0, *path))
            with np.errstate(divide="ignore"):
                chain = sum(np.log(truth.transition[before, after]) for before, after in steps)
                pairs = ((z, k, x) for z, row in zip(path, votes, strict=True) for k, x in enumerate(row))
                emitted = sum(np.log(truth.emission[k, z, x]) for z, k, x in pairs)
            return float(chain + emitted)

        best = max(itertools.product(range(labels), repeat=len(votes)), key=log_probability)
        assert tuple(found[span].tolist()) == best


def test_who_knows_the_truth_is_ahead_of_the_vote() -> None:
    truth = Truth.draw(LIKE["laptop"], seed=0)
    corpus = draw_corpus(truth, 500, np.random.default_rng(2))
    assert corpus.gold is not None
    best = score(corpus.label_set, corpus.gold, most_probable(truth, corpus), corpus.offsets).f1
    vote = score(corpus.label_set, corpus.gold, MajorityVote().predict_ids(readable(corpus)), corpus.offsets).f1
    assert best > vote + 10


def test_readable_changes_stray_inside_labels_alone() -> None:
    corpus = draw_corpus(Truth.draw(SIZE, seed=0), 200, np.random.default_rng(4))
    repaired = readable(corpus)
    changed = repaired.weak_labels != corpus.weak_labels
    assert changed.any()
    assert (corpus.weak_labels[changed] == repaired.weak_labels[changed] + 1).all()  # I- became B- of its type
    np.testing.assert_array_equal(readable(repaired).weak_labels, repaired.weak_labels)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"types": 0}, "types is 0; it must be 1 or more"),
        ({"lfs": 0}, "lfs is 0; it must be 1 or more"),
        ({"length": 0.5}, "length is 0.5; it must be 1 or more"),
        ({"reliability": (0.7, 0.2)}, "reliability is 0.7 to 0.2; expected two shares between 0 and 1"),
        ({"reliability": (0.7, 1.0)}, "expected two shares between 0 and 1"),
    ],
)
def test_sizes_that_make_no_sense(changed: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Size(**{"types": 1, "lfs": 3, "length": 5.0, **changed})  # type: ignore[arg-type]
