"""Runs from Python: the folder, its record, and what is read back from it."""

from __future__ import annotations

import builtins
import json
import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.formats.jsonl import write
from pyro_chmm.errors import ConfigError, DataError
from pyro_chmm.label_models import run_record, runs
from pyro_chmm.label_models.majority_vote import MajorityVote

SHORT = {"encoder": "none", "epochs_stage1": 1, "epochs_stage2": 1, "epochs_stage3": 1, "pretrain_steps": 1}


def small_corpus(types: tuple[str, ...] = ("LOC", "PER")) -> Corpus:
    tokens = [["Anna", "sings"], ["in", "Oslo"], ["Anna", "lives", "in", "Oslo"]]
    kinds = {"Anna": "PER", "Oslo": "LOC"}
    gold = [[(i, i + 1, kinds[word]) for i, word in enumerate(words) if word in kinds] for words in tokens]
    weak = [[spans, spans[:1]] for spans in gold]
    return Corpus.from_spans(tokens, weak, types, ["a", "b"], gold)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for split in ("train", "valid", "test"):
        write(folder / f"{split}.jsonl", small_corpus())
    return folder


def test_a_run_is_logged_and_the_logger_left_as_it_was(data: Path, tmp_path: Path) -> None:
    logger = logging.getLogger("pyro_chmm")
    before = logger.level, list(logger.handlers)
    settings = runs.RunSettings(str(data), tmp_path / "run", hyperparameters=SHORT, command="run me again")
    run = runs.fit(settings)
    assert run.directory == tmp_path / "run"
    assert run.metrics == json.loads((run.directory / "metrics.json").read_text())
    assert "run me again" in (run.directory / "run.log").read_text()
    assert (logger.level, logger.handlers) == before
    moved = (tmp_path / "run").rename(tmp_path / "elsewhere")
    assert runs.predict(moved, str(data), tmp_path / "out.jsonl", split="test") == 3
    assert (tmp_path / "out.jsonl").read_bytes() == (moved / "predictions" / "test.jsonl").read_bytes()


def test_the_kept_stage_is_the_one_that_is_saved_and_scored(data: Path, tmp_path: Path) -> None:
    run = runs.fit(runs.RunSettings(str(data), tmp_path / "run", hyperparameters=SHORT))
    best = run.metrics["stages"][str(run.best_stage)]
    assert (run.metrics["valid"], run.metrics["test"]) == (best["valid"], best["test"])
    found = runs.evaluate(run.directory, str(data), split="valid")
    assert {name: found[name] for name in ("f1", "precision", "recall")} == best["valid"]
    assert set(found["by_type"]) == {"LOC", "PER"}


def test_the_hash_sees_all_that_a_model_sees() -> None:
    corpus = small_corpus()
    changed = [
        corpus,
        corpus.without_gold(),
        corpus.select_lfs(["b", "a"]),
        small_corpus(("LOC", "PER", "ORG")),
        corpus.select_documents([0, 2, 1]),
        replace(corpus, weak_labels=corpus.weak_labels * 0),
        replace(corpus, gold=MajorityVote().predict_ids(corpus) * 0),
    ]
    assert len({run_record.corpus_hash(other) for other in changed}) == len(changed)
    assert run_record.corpus_hash(corpus) == run_record.corpus_hash(small_corpus())


def test_splits_that_are_missing_or_not_chosen(data: Path, tmp_path: Path) -> None:
    (data / "train.jsonl").unlink()
    with pytest.raises(DataError, match=r"no split 'train' here, only valid, test: .*--train-split valid"):
        runs.fit(runs.RunSettings(str(data), tmp_path / "run", hyperparameters=SHORT))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus"]


def test_another_run_is_refused_before_any_work(data: Path, tmp_path: Path) -> None:
    settings = runs.RunSettings(str(data), tmp_path / "run", hyperparameters=SHORT)
    runs.fit(settings)
    with pytest.raises(ConfigError, match="holds another run"):
        runs.fit(replace(settings, data="no such data"))


def test_history_leaves_missing_values_empty(tmp_path: Path) -> None:
    record = dict.fromkeys(run_record.HISTORY_COLUMNS, 0.1) | {"stage": 1, "epoch": 2, "valid_f1": None}
    run_record.write_history([SimpleNamespace(**record)], tmp_path / "history.csv")
    header, row = (tmp_path / "history.csv").read_text().splitlines()
    assert header.split(",") == list(run_record.HISTORY_COLUMNS)
    assert row == "1,2,0.1,0.1,0.1,0.1,,0.1,0.1,0.1"


def test_a_package_that_is_not_installed_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_record, "_PACKAGES", ("numpy", "no-such-package"))
    found = run_record.versions()
    assert found["no-such-package"] is None
    assert found["numpy"]


def test_memory_where_the_system_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without_resource(name: str, *rest: Any) -> Any:
        if name == "resource":
            raise ImportError
        return original(name, *rest)

    assert run_record.peak_rss_mb() > 10  # type: ignore[operator]
    monkeypatch.setattr(builtins, "__import__", without_resource)
    assert run_record.peak_rss_mb() is None
