"""Observed statistics, closed-form initial weights and pre-training by eq. (7)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.errors import TrainingError
from pyro_chmm.model import initialization
from pyro_chmm.model.training import Trainer
from tests.model.corpora import WIDTH, make_corpus, make_packed, make_trainer

VOTE = np.array([1, 2, 0, 0], np.int16)


@pytest.fixture
def by_hand() -> Corpus:
    """``0: B I O | 1: | 2: O``; the second LF marks the first token alone."""
    return Corpus.from_spans(
        [["a", "b", "c"], [], ["d"]],
        [[[(0, 2, "X")], [(0, 1, "X")]], [[], []], [[], None]],
        ["X"],
        ["long", "short"],
    )


def test_observed_transitions_by_hand(by_hand: Corpus) -> None:
    found = initialization.observed_statistics(make_packed(by_hand), VOTE).transition
    # O->B, B->I, I->O, and O->O at the start of the last document; half a count more for each entry
    counts = torch.tensor([[1.5, 1.5, 0.5], [0.5, 0.5, 1.5], [1.5, 0.5, 0.5]])
    torch.testing.assert_close(found, counts / counts.sum(-1, keepdim=True))


@pytest.mark.parametrize("contested", [0.0, 0.5])
def test_observed_emissions_by_hand(by_hand: Corpus, contested: float) -> None:
    found = initialization.observed_statistics(make_packed(by_hand, contested=contested), VOTE).emission
    few = 0.5 / 3
    long = torch.tensor([[2 + few, few, few], [few, 1 + few, few], [few, few, 1 + few]])
    # "short" abstains on the last document, and its O at the second token is contested
    short = torch.tensor([[1 + few, few, few], [few, 1 + few, few], [contested + few, few, few]])
    expected = torch.stack([long, short])
    torch.testing.assert_close(found, expected / expected.sum(-1, keepdim=True))


@pytest.mark.parametrize("shared_transition", [False, True])
def test_initial_transition_rows_are_the_observed_ones(shared_transition: bool) -> None:
    trainer = make_trainer(shared_transition=shared_transition)
    statistics = initialization.observed_statistics(trainer.train, trainer.vote)
    initialization.initialize(trainer.conditionals, trainer.train, statistics)
    logits = trainer.conditionals.transition_logits(torch.randn(7, WIDTH))
    rows = torch.softmax(logits, -1)
    torch.testing.assert_close(rows, statistics.transition.expand_as(rows))
    assert torch.equal(trainer.conditionals.observed_emission, statistics.emission)


@pytest.mark.parametrize("level", ["label", "entity"])
def test_a_better_lf_starts_more_reliable(level: str) -> None:
    corpus = make_corpus(60)
    trainer = make_trainer(packed=make_packed(corpus), reliability_level=level)
    statistics = initialization.observed_statistics(trainer.train, corpus.gold)
    initialization.initialize(trainer.conditionals, trainer.train, statistics)
    reliability = trainer.conditionals.reliability(torch.zeros(1, WIDTH))[0]
    assert bool((reliability[0, 1::2] > reliability[1, 1::2]).all())
    assert bool((reliability[:, 0] >= 0.8).all())  # on O, every LF is trusted


def test_layers_standardise_the_corpus() -> None:
    packed = make_packed(make_corpus())
    packed.vectors.tokens[:, 2] = 3.0  # constant: left alone
    trainer = make_trainer(packed=packed)
    initialization.initialize(trainer.conditionals, packed, initialization.observed_statistics(packed, trainer.vote))
    vectors = packed.vectors.tokens.astype(np.float64)
    transition = trainer.conditionals.networks.transition
    layer = transition.inner or transition.outer
    np.testing.assert_allclose(layer.mean, vectors.mean(0), rtol=1e-6)
    expected = vectors.std(0)
    expected[2] = 1.0
    np.testing.assert_allclose(layer.deviation, expected, rtol=1e-6)


def test_large_values_do_not_overflow_the_standardisation() -> None:
    packed = make_packed(make_corpus())
    packed.vectors.tokens[:] = np.float16(60_000) * np.sign(packed.vectors.tokens)
    trainer = make_trainer(packed=packed)
    initialization.initialize(trainer.conditionals, packed, initialization.observed_statistics(packed, trainer.vote))
    assert bool(torch.isfinite(trainer.conditionals.transition_logits(packed.batch(np.array([0])).token_vectors)).all())


def test_emission_distance_of_equation_7_by_hand() -> None:
    emission = torch.zeros(2, 1, 2, 2)
    emission[0, 0, 0, 1] = 3.0
    assert initialization.emission_distance(emission, torch.zeros(1, 2, 2)).item() == pytest.approx(9 / 2)


@torch.no_grad()
def distance_of(trainer: Trainer) -> float:
    """The first term of eq. (7) over the training documents."""
    target = initialization.observed_statistics(trainer.train, trainer.vote).emission
    batch = next(trainer.train.in_order())
    return float(initialization.emission_distance(trainer.conditionals.emission_mean(batch.document_vectors), target))


def test_pretraining_lowers_the_distance() -> None:
    found = []
    for steps in (0, 5, 30):
        trainer = make_trainer(pretrain_steps=steps, pretrain_learning_rate=0.02)
        trainer.prepare()
        found.append(distance_of(trainer))
    start, short, longer = found
    assert longer < short < start


def test_pretraining_leaves_transitions_at_the_observed_ones() -> None:
    trainer = make_trainer(pretrain_steps=50)
    trainer.prepare()
    observed = initialization.observed_statistics(trainer.train, trainer.vote).transition
    rows = torch.softmax(trainer.conditionals.transition_logits(torch.randn(7, WIDTH)), -1)
    torch.testing.assert_close(rows, observed.expand_as(rows))


def test_pretraining_ends_on_convergence() -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0]))
    steps = 0

    def distance() -> torch.Tensor:
        nonlocal steps
        steps += 1
        return (weight**2).sum() + 1.0

    initialization.pretrain([weight], distance, 0.05, 1000)
    assert 20 < steps < 200
    assert abs(weight.item()) < 0.1


def test_pretraining_that_diverges_leaves_the_weights_as_they_were() -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0]))
    with pytest.raises(TrainingError, match=r"within 5 steps: the distance .* smaller pretrain_learning_rate"):
        initialization.pretrain([weight], lambda: (weight**2).sum(), 1e30, 5)
    assert weight.item() == 1.0
