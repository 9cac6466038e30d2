"""``predict``, ``evaluate``, ``data`` and ``verify`` on input that is fine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

import pyro_chmm
from pyro_chmm.inspection import verification

from .conftest import documents, invoke, succeeded, write_jsonl


def test_predict_equals_the_run(demo_run: tuple[Path, Result], tmp_path: Path) -> None:
    directory, _ = demo_run
    out = tmp_path / "new" / "labels.jsonl"
    result = succeeded("predict", "--model", directory, "--data", "demo", "--split", "test", "--out", out)
    count = pyro_chmm.load_dataset("demo").test.num_documents
    assert result.stdout == f"Labelled {count} documents in {out}.\n"
    assert out.read_bytes() == (directory / "predictions" / "test.jsonl").read_bytes()


def test_predict_on_a_file_of_ones_own(own_data: Path, tmp_path: Path) -> None:
    """The file names no entity types, and one of the model's does not occur in it."""
    model, out = tmp_path / "model", tmp_path / "labels.jsonl"
    succeeded(
        "fit",
        "--data",
        own_data,
        "--out",
        model,
        "--encoder",
        "none",
        "--epochs-stage1",
        2,
        "--stage2",
        "none",
    )
    records = documents(gold=False)[1:3]
    data = write_jsonl(tmp_path / "new.jsonl", [{**record, "extra": 1} for record in records])
    succeeded("predict", "--model", model, "--data", data, "--out", out)
    labelled = [json.loads(line) for line in out.read_text().splitlines()]
    assert [document["tokens"] for document in labelled] == [["in", "Oslo"], []]
    assert {label for document in labelled for label in document["labels"]} <= {
        "O",
        "B-PER",
        "I-PER",
        "B-LOC",
        "I-LOC",
    }
    other = write_jsonl(tmp_path / "other.jsonl", [{**records[0], "weak_labels": {"a": [[0, 1, "ORG"]], "b": []}}])
    refused = invoke("predict", "--model", model, "--data", other, "--out", out)
    assert refused.exit_code == 2
    assert "'ORG'; the model was fitted with PER, LOC" in refused.stderr


def test_evaluate_equals_the_metrics(demo_run: tuple[Path, Result]) -> None:
    directory, _ = demo_run
    arguments = ["evaluate", "--model", directory, "--data", "demo"]
    metrics = json.loads((directory / "metrics.json").read_text())
    for split in ("test", "valid"):
        found = json.loads(succeeded(*arguments, "--split", split, "--json").stdout)
        assert {name: found[name] for name in ("f1", "precision", "recall")} == metrics[split]
        assert found["majority_vote"] == metrics["majority_vote"][split]
        assert found["best_consensus"] == metrics["best_consensus"][split]
        assert found["split"] == split
    table = succeeded(*arguments).stdout
    assert "majority vote" in table
    for name in pyro_chmm.load_dataset("demo").test.label_set.entity_types:
        assert f" {name} " in table
    assert f"{metrics['test']['f1']:.2f}" in table


def test_data_list_and_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PYRO_CHMM_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    listed = {line.split()[0]: line.split()[1:] for line in succeeded("data", "list").stdout.splitlines() if line}
    assert {
        "demo",
        "wrench/laptop",
        "wrench/ncbi",
        "wrench/bc5cdr",
        "wrench/conll",
        "wrench/ontonotes",
    } <= set(listed)
    assert listed["wrench/laptop"] == ["-", "-"]
    folder = tmp_path / "root" / "wrench" / "laptop"
    write_jsonl(folder / "valid.jsonl", documents())
    (folder / "meta.json").write_text("{}")
    root = ["--data-root", tmp_path / "root"]
    assert f"valid {folder}" in " ".join(succeeded("data", "list", *root).stdout.split())
    assert succeeded("data", "path", "wrench/laptop", *root).stdout == f"{folder}\n"
    missing = invoke("data", "path", "wrench/laptop")
    assert missing.exit_code == 2
    assert "pyro-chmm data get wrench/laptop" in missing.stderr
    assert Path(succeeded("data", "get", "demo").stdout.strip()).is_dir()


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_verify(backend: str) -> None:
    arguments = ["verify", "--data", "demo", "--encoder", "none", "--documents", 6, "--backend", backend]
    found = json.loads(succeeded(*arguments, "--json").stdout)
    assert found["ok"] is True
    assert found["backend"] == backend
    assert set(found) == {"max_rel_loss", "max_rel_grad", "max_abs_marginal", "speedup", "backend", "ok"}
    table = succeeded(*arguments).stdout
    assert "They agree." in table
    assert "1e-05" in table
    assert "times faster" in table


def test_verify_exits_with_1_beyond_the_tolerance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "TOLERANCE", -1.0)
    arguments = ["verify", "--data", "demo", "--encoder", "none", "--documents", 2]
    result = invoke(*arguments, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["ok"] is False
    shown = invoke(*arguments)
    assert shown.exit_code == 1
    assert "DIFFER" in shown.stdout


def test_python_does_the_same(demo_run: tuple[Path, Result]) -> None:
    corpus = pyro_chmm.load_dataset("demo")
    model = pyro_chmm.SparseCHMM.load(demo_run[0])
    labels = model.predict(corpus.test)
    with (demo_run[0] / "predictions" / "test.jsonl").open() as file:
        assert labels == [json.loads(line)["labels"] for line in file]
    assert np.isfinite(np.concatenate(model.predict_proba(corpus.test))).all()


def test_lfs(own_data: Path) -> None:
    arguments = ["lfs", "--data", own_data]
    found = json.loads(succeeded(*arguments, "--json").stdout)
    assert (found["documents"], found["tokens"], found["split"]) == (4, 8, "test")
    assert [row["name"] for row in found["lfs"]] == ["a", "b"]
    assert [row["recall"] for row in found["lfs"]] == [100.0, 75.0]
    assert found["coverage"] == 50.0
    table = [line.split() for line in succeeded(*arguments).stdout.splitlines()]
    assert ["a", "100.00", "100.00", "100.00", "4", "50.00", "37.50", "0.00", "0.00"] in table
    assert ["b", "100.00", "75.00", "85.71", "3", "37.50", "37.50", "0.00", "0.00"] in table
    only = json.loads(succeeded(*arguments, "--lfs", "b", "--json").stdout)
    assert [row["name"] for row in only["lfs"]] == ["b"]
    write_jsonl(own_data / "test.jsonl", documents(gold=False))
    table = [line.split() for line in succeeded(*arguments, "--all-lfs").stdout.splitlines()]
    assert ["a", "-", "-", "-", "4", "50.00", "37.50", "0.00", "0.00"] in table
