"""Snorkel's package behind our interface: the published figures, files, and what it refuses."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from pyro_chmm.data.corpus import Corpus, CorpusSplits
from pyro_chmm.errors import ConfigError, DataError, MissingPackageError
from pyro_chmm.label_models import snorkel
from pyro_chmm.label_models.io_space import io_votes
from pyro_chmm.label_models.snorkel import Snorkel


@pytest.mark.parametrize(("name", "published"), [("laptop", 73.27), ("ncbi", 78.44)])
def test_the_published_figures(name: str, published: float, wrench: Callable[[str], CorpusSplits]) -> None:
    splits = wrench(name)
    assert abs(Snorkel(epochs=200).fit(splits.train).score(splits.test).f1 - published) < 0.3


def test_a_saved_model_predicts_the_same_and_random_states_stay(tiny: Corpus, tmp_path: Path) -> None:
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    model = Snorkel(epochs=20, seed=3).fit(tiny)
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before
    model.save(tmp_path)
    loaded = Snorkel.load(tmp_path)
    assert loaded.settings() == {"epochs": 20, "seed": 3}
    probabilities = model.predict_proba(tiny)
    assert [part.shape for part in probabilities] == [(3, 5), (0, 5), (3, 5)]
    for one, other in zip(probabilities, loaded.predict_proba(tiny), strict=True):
        np.testing.assert_allclose(one.sum(axis=1), 1)
        np.testing.assert_array_equal(one, other)


def test_the_posterior_is_the_packages(tiny: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    original = snorkel._label_model
    monkeypatch.setattr(snorkel, "_label_model", lambda classes: made.append(original(classes)) or made[-1])
    model = Snorkel(epochs=20).fit(tiny)
    votes = io_votes(tiny)
    np.testing.assert_allclose(model.class_posterior(votes), made[0].predict_proba(votes), rtol=1e-5)


def test_what_it_cannot_do_is_said(tiny: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="epochs is 0"):
        Snorkel(epochs=0)
    with pytest.raises(DataError, match="at least 3 labeling functions; the corpus has 2"):
        Snorkel().fit(tiny.select_lfs(["a", "b"]))
    monkeypatch.setitem(sys.modules, "snorkel.labeling.model", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'pyro-chmm\[snorkel\]'"):
        Snorkel().fit(tiny)
