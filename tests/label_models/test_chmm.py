"""CHMM and CHMM-FE as estimators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.errors import ConfigError, DataError, TrainingError
from pyro_chmm.label_models.chmm import CHMM, CHMMFixedEmission
from pyro_chmm.model.initialization import observed_statistics
from tests.model.corpora import make_corpus

SHORT = {"encoder": "none", "epochs": 3, "batch_size": 4}


def test_training_raises_the_evidence() -> None:
    corpus = make_corpus(40).without_gold()
    model = CHMM(encoder="none", epochs=30, learning_rate=0.05, weight_penalty=0.0).fit(corpus)
    values = [record.selection for record in model.history_]
    assert (np.diff(values) > 0).all()
    assert values[-1] > values[0] + 0.05
    assert model.history_[0].valid_f1 is None


def test_it_stops_when_patience_runs_out() -> None:
    """No F1 is better than the first one."""
    corpus = make_corpus(40)
    model = CHMM(encoder="none", epochs=200, learning_rate=1e-9, patience=4).fit(corpus, valid=corpus)
    assert len(model.history_) == 4


def test_epochs_are_chosen_by_validation_f1_and_the_first_weights_may_be_the_best() -> None:
    train, valid = make_corpus(30, seed=1), make_corpus(30, seed=2)
    model = CHMM(**SHORT).fit(train, valid=valid)
    untrained = CHMM(**{**SHORT, "epochs": 1, "learning_rate": 1e-9}).fit(train, valid=valid)
    assert model.history_[0].valid_f1 is not None
    assert model.score(valid).f1 >= untrained.score(valid).f1


def test_probabilities_and_files(tmp_path: Path) -> None:
    corpus = make_corpus(12)
    model = CHMM(**SHORT, seed=3).fit(corpus)
    probabilities = model.predict_proba(corpus)
    assert [len(part) for part in probabilities] == np.diff(corpus.offsets).tolist()
    np.testing.assert_allclose(np.concatenate(probabilities).sum(axis=1), 1, rtol=1e-5)
    ids = model.predict_ids(corpus)
    np.testing.assert_array_equal(corpus.label_set.repair(ids, corpus.offsets), ids)
    model.save(tmp_path)
    loaded = CHMM.load(tmp_path)
    assert loaded.settings() == model.settings()
    np.testing.assert_array_equal(loaded.predict_ids(corpus), ids)
    np.testing.assert_array_equal(np.concatenate(loaded.predict_proba(corpus)), np.concatenate(probabilities))
    again = CHMM(**SHORT, seed=3).fit(corpus)
    np.testing.assert_array_equal(np.concatenate(again.predict_proba(corpus)), np.concatenate(probabilities))


def test_fixed_emissions_are_the_true_ones_and_stay(tmp_path: Path) -> None:
    corpus = make_corpus(30)
    model = CHMMFixedEmission(**SHORT, o_weight_contested=1.0).fit(corpus)
    expected = observed_statistics(model._pack(corpus), corpus.gold).emission
    torch.testing.assert_close(model.networks().log_emission(torch.ones(2, 1))[0].exp(), expected)
    # the share of what the first LF said beside the gold label B-X, by hand, with the pseudo-counts of 0.5 / L
    beside = corpus.weak_labels[corpus.gold == 1, 0]
    share = ((beside == 1).sum() + 0.1) / (len(beside) + 0.5)
    assert float(expected[0, 1, 1]) == pytest.approx(share)
    model.save(tmp_path)
    np.testing.assert_array_equal(CHMMFixedEmission.load(tmp_path).predict_ids(corpus), model.predict_ids(corpus))
    with pytest.raises(DataError, match="gold training labels, and the training corpus has none"):
        CHMMFixedEmission(**SHORT).fit(corpus.without_gold())


def test_what_makes_no_sense_is_refused(tiny: Corpus) -> None:
    with pytest.raises(ConfigError, match="learning_rate is 0"):
        CHMM(learning_rate=0)
    with pytest.raises(ConfigError, match="epochs is 0; it must be 1 or more"):
        CHMM(epochs=0)
    with pytest.raises(ConfigError, match="weight_averaging is 1"):
        CHMM(weight_averaging=1)
    with pytest.raises(ConfigError, match="This CHMM has not been fitted"):
        CHMM().predict(tiny)


def test_a_loss_that_is_not_finite_ends_training() -> None:
    with pytest.raises(TrainingError, match="not finite"):
        CHMM(**{**SHORT, "learning_rate": 1e30, "weight_averaging": 0.0}).fit(make_corpus(30))
