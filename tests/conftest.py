"""What tests of all rooms share: where the published data sets are, and small corpora by hand."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from pyro_chmm.data.corpus import Corpus, CorpusSplits
from pyro_chmm.data.datasets import load_dataset


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder that holds ``wrench/laptop`` and others; without it a test is skipped, or fails in CI."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    root = Path(os.environ.get("PYRO_CHMM_DATA") or beside)
    if not (root / "wrench" / "laptop" / "meta.json").is_file():
        reason = f"the published data sets are not at hand: {root} has no wrench/laptop; set PYRO_CHMM_DATA"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return root


@pytest.fixture(scope="session")
def wrench(data_root: Path) -> Callable[[str], CorpusSplits]:
    """Loads a published data set with its recommended LFs, once a session: ``wrench("laptop").test``."""

    @cache
    def load(name: str) -> CorpusSplits:
        return load_dataset(f"wrench/{name}", data_root=data_root, download=False)

    return load


@pytest.fixture
def tiny() -> Corpus:
    """Three documents, the middle one empty; two types; LF "a" is right, "b" less so, "c" is silent.

    ``0: Anna Lee sings | 1: | 2: in Oslo today``
    """
    return Corpus.from_spans(
        tokens=[["Anna", "Lee", "sings"], [], ["in", "Oslo", "today"]],
        weak_spans=[
            [[(0, 2, "PER")], [(0, 1, "PER")], []],
            [[], [], []],
            [[(1, 2, "LOC")], [(1, 2, "PER")], None],
        ],
        entity_types=["PER", "LOC"],
        lf_names=["a", "b", "c"],
        gold_spans=[[(0, 2, "PER")], [], [(1, 2, "LOC")]],
        document_ids=["x", "y", "z"],
    )
