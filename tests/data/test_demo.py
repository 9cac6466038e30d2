"""The demo corpus: what ships is what the script makes, and it is worth a label model's while."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from pyro_chmm.data.corpus import Corpus, CorpusSplits
from pyro_chmm.data.datasets import dataset_path, load_dataset
from pyro_chmm.data.labels import ABSTAIN
from pyro_chmm.data.scoring import score, score_by_type
from pyro_chmm.label_models.best_consensus import best_consensus
from pyro_chmm.label_models.majority_vote import MajorityVote


@pytest.fixture(scope="module")
def demo() -> CorpusSplits:
    return load_dataset("demo")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "examples" / "make_demo.py"
    spec = importlib.util.spec_from_file_location("make_demo", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_makes_what_ships(script: ModuleType, tmp_path: Path) -> None:
    script.main(tmp_path)
    shipped = dataset_path("demo")
    names = sorted(path.name for path in shipped.iterdir())
    assert names == ["meta.json", "test.jsonl", "train.jsonl", "valid.jsonl"]
    for name in names:
        assert (tmp_path / name).read_bytes() == (shipped / name).read_bytes(), name
    assert sum((shipped / name).stat().st_size for name in names) < 400_000


def test_it_has_what_was_asked_for(demo: CorpusSplits) -> None:
    whole = Corpus.concatenate([demo.train, demo.valid, demo.test])
    assert whole.num_documents >= 400
    assert len(whole.label_set.entity_types) == 3
    assert whole.num_lfs == 6
    assert whole.gold is not None
    fires = (whole.weak_labels > 0).any(axis=0)
    assert [name for name, some in zip(whole.lf_names, fires, strict=True) if not some] == ["legacy"]
    abstains = (whole.weak_labels == ABSTAIN).mean(axis=0)
    assert abstains[whole.lf_names.index("title")] > 0.5


def test_the_lfs_are_of_different_quality(demo: CorpusSplits) -> None:
    corpus = demo.test
    assert corpus.gold is not None
    by_type = {
        name: score_by_type(
            corpus.label_set, corpus.gold, corpus.select_lfs([name]).weak_labels[:, 0], corpus.offsets
        )
        for name in corpus.lf_names
    }
    assert all(by_type["gazetteer"][kind].precision > 85 for kind in ("PER", "ORG"))
    assert by_type["capitals"]["PER"].recall == 0
    assert 20 < by_type["title"]["PER"].precision < 80  # "Dr" belongs to no name
    assert by_type["preposition"]["LOC"].precision < 90


def test_people_are_outvoted_and_a_model_of_who_is_right_is_not(demo: CorpusSplits) -> None:
    """Naive Bayes with the LFs' confusions counted on the training split: what can be learnt."""
    train, test = demo.train, demo.test
    assert train.gold is not None
    assert test.gold is not None
    labels = len(train.label_set)
    log_posterior = np.log(np.bincount(train.gold, minlength=labels))[None].repeat(test.num_tokens, axis=0)
    for seen, told in zip(train.weak_labels.T, test.weak_labels.T, strict=True):
        counts = np.full((labels, labels + 1), 0.1)
        np.add.at(counts, (train.gold, seen), 1)
        log_posterior += np.log(counts / counts.sum(axis=1, keepdims=True))[:, told].T
    learnt = score(test.label_set, test.gold, log_posterior.argmax(axis=1), test.offsets).f1
    voted = MajorityVote().score(test).f1
    assert learnt > voted + 10
    assert best_consensus(test).f1 > 95
