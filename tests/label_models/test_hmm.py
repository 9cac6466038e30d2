"""The HMM as an estimator: what it learns, the published figures, and files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pyro_chmm.data.corpus import Corpus, CorpusSplits
from pyro_chmm.errors import ConfigError
from pyro_chmm.label_models.hmm import HMM


@pytest.mark.parametrize(("name", "published"), [("laptop", 73.63), ("ncbi", 66.80), ("bc5cdr", 71.57)])
def test_the_published_figures(name: str, published: float, wrench: Callable[[str], CorpusSplits]) -> None:
    """Within 1.5 F1 of the paper's row, or above."""
    splits = wrench(name)
    assert HMM(max_steps=20).fit(splits.train).score(splits.test).f1 > published - 1.5


def test_em_ends_on_convergence_and_never_falls(tiny: Corpus) -> None:
    model = HMM(emission_strength=1.0).fit(tiny)
    assert len(model.log_density_) < model.max_steps
    assert (np.diff(model.log_density_) >= 0).all()
    assert model.predict(tiny)[:2] == [["B-PER", "I-PER", "O"], []]


def test_rows_are_probabilities_and_decoding_is_valid(tiny: Corpus) -> None:
    model = HMM(max_steps=3).fit(tiny)
    for rows in (model.transition_, model.emission_):
        np.testing.assert_allclose(rows.sum(-1), 1)
    probabilities = model.predict_proba(tiny)
    assert [part.shape for part in probabilities] == [(3, 5), (0, 5), (3, 5)]
    np.testing.assert_allclose(np.concatenate(probabilities).sum(axis=1), 1)
    ids = model.predict_ids(tiny)
    np.testing.assert_array_equal(tiny.label_set.repair(ids, tiny.offsets), ids)
    assert model.predict(tiny.select_documents([1])) == [[]]


def test_a_saved_model_predicts_the_same(tiny: Corpus, tmp_path: Path) -> None:
    model = HMM(max_steps=2, emission_strength=5.0).fit(tiny)
    model.save(tmp_path)
    loaded = HMM.load(tmp_path)
    assert loaded.settings() == model.settings()
    for one, other in zip(model.predict_proba(tiny), loaded.predict_proba(tiny), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"emission_strength": -1.0}, "emission_strength is -1.0"),
        ({"o_weight_contested": 2.0}, "o_weight_contested is 2.0"),
        ({"max_steps": 0}, "max_steps is 0"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HMM(**settings)
