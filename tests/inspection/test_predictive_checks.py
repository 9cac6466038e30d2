"""Predictive checks: counts by hand, silence where the model is right, and the LF that it does not explain is found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pyro_chmm
from pyro_chmm import SparseCHMM
from pyro_chmm.inspection.predictive_checks import predictive_checks
from pyro_chmm.label_models.posterior import Posterior

PLAIN: dict[str, Any] = {
    "encoder": "none",
    "o_weight_contested": 1.0,
    "o_weight_silent": 1.0,
    "o_weight_beside": 1.0,
    "o_weight_prediction": 1.0,
    "epochs_stage1": 4,
    "epochs_stage2": 1,
    "epochs_stage3": 1,
    "verify": False,
}


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    """For weak labels that the model itself has drawn: it is right about all of them."""
    demo = pyro_chmm.load_dataset("demo")
    model = SparseCHMM(**PLAIN).fit(demo.train.select_documents(range(150)))
    corpus = demo.test.select_documents(range(60))
    drawn = np.concatenate([document.weak_labels[0] for document in model.posterior(corpus, draws=1, seed=11)])
    return model.posterior(replace(corpus, weak_labels=drawn), draws=200)


def test_a_model_explains_what_it_has_drawn(posterior: Posterior) -> None:
    checks = predictive_checks(posterior)
    labels = [check for check in checks.checks if check.kind == "label"]
    assert (len(labels), len(checks.checks)) == (6 * 7, 6 * 7 + 6 * 5)
    # were the model refitted, p-values would be uniform; it has seen the labels' sequences, so they are nearer to 1
    assert np.mean([check.p_value < 0.05 for check in checks.checks]) <= 0.05
    for check in checks.checks:
        assert check.low <= check.expected <= check.high


def test_an_lf_that_says_something_else_stands_out(posterior: Posterior) -> None:
    corpus, model = posterior.corpus, posterior
    broken = corpus.lf_names.index("subject")
    weak = corpus.weak_labels.copy()
    person, place = corpus.label_set.id("B-PER"), corpus.label_set.id("B-LOC")
    swapped = np.random.default_rng(0).permutation(np.flatnonzero(weak[:, broken] >= 0))[:80]
    weak[swapped, broken] = np.where(np.arange(80) % 2, person, place)
    packed = model.packed
    changed = replace(corpus, weak_labels=weak)
    checks = predictive_checks(Posterior(model.conditionals, packed, changed, draws=200, seed=0))
    worst = checks.worst()
    assert worst is not None
    assert worst.lf == "subject" or worst.what == "subject"
    failed = checks.unexplained(level=0.011)
    assert max(failed, key=lambda name: len(failed[name])) == "subject"
    assert {check.what for check in failed["subject"] if check.kind == "label"} >= {"O", "B-PER", "B-LOC"}
    assert checks.worst("subject") == failed["subject"][0]


def test_numbers_by_hand(posterior: Posterior) -> None:
    checks, corpus = predictive_checks(posterior), posterior.corpus
    weak = corpus.weak_labels
    drawn = np.concatenate([document.weak_labels for document in posterior], axis=1)
    for lf, other, label in ((0, 1, 3), (2, 4, 0), (4, 1, 1)):
        names = corpus.lf_names[lf], corpus.lf_names[other], corpus.label_set.names[label]
        (rate,) = [check for check in checks.checks if (check.lf, check.what) == (names[0], names[2])]
        given = weak[:, lf] >= 0
        assert rate.observed == pytest.approx(100 * (weak[given, lf] == label).mean())
        rates = 100 * (drawn[:, given, lf] == label).mean(axis=1)
        assert rate.expected == pytest.approx(rates.mean())
        assert (rate.low, rate.high) == pytest.approx(tuple(np.quantile(rates, (0.025, 0.975))))
        above, below = (rates >= rate.observed - 1e-9).sum() + 1, (rates <= rate.observed + 1e-9).sum() + 1
        assert rate.p_value == pytest.approx(min(1, 2 * min(above, below) / 201))
        (conflict,) = [check for check in checks.checks if (check.lf, check.what) == names[:2]]
        both = given & (weak[:, other] >= 0)
        differ = (weak[:, lf] > 0) & (weak[:, other] > 0) & (weak[:, lf] != weak[:, other])
        assert conflict.observed == pytest.approx(100 * differ[both].mean())
        differ = (drawn[..., lf] > 0) & (drawn[..., other] > 0) & (drawn[..., lf] != drawn[..., other])
        assert conflict.expected == pytest.approx(100 * differ[:, both].mean())
    assert checks.to_dict()["checks"][0].keys() >= {"lf", "kind", "what", "observed", "p_value"}
