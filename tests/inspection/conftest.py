"""A model fitted on a part of the demo corpus, for all that looks at models."""

from __future__ import annotations

import os
from collections.abc import Iterator

import matplotlib
import pytest

import pyro_chmm
from pyro_chmm import SparseCHMM
from pyro_chmm.data.corpus import Corpus, CorpusSplits

matplotlib.use("agg")
SHORT = {
    "encoder": "none", "epochs_stage1": 2, "epochs_stage2": 1, "epochs_stage3": 1, "pretrain_steps": 60, "o_weight_prediction": 0.5,
}  # fmt: skip


@pytest.fixture(scope="session")
def demo() -> CorpusSplits:
    whole = pyro_chmm.load_dataset("demo")
    return CorpusSplits("demo", {name: corpus.select_documents(range(60)) for name, corpus in whole.splits.items()})


@pytest.fixture(scope="session")
def fitted(demo: CorpusSplits) -> SparseCHMM:
    """Changed by no test."""
    return SparseCHMM(**SHORT).fit(demo.train, valid=demo.valid)


@pytest.fixture(scope="session")
def test_corpus(demo: CorpusSplits) -> Corpus:
    return demo.test


@pytest.fixture(autouse=True)
def _no_figure_stays_open() -> Iterator[None]:
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


_BROWSERS = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
CHROMIUM = next((path for path in _BROWSERS if os.path.exists(path)), None)
