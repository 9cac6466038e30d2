"""``pyro-chmm fit``: what a run prints, writes and leaves alone."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from safetensors.numpy import load_file

import pyro_chmm
from pyro_chmm.data.datasets import SPLITS
from pyro_chmm.label_models import run_record, runs

from .conftest import SHORT, documents, invoke, succeeded, write_jsonl

FILES = {"config.json", "model.safetensors", "metrics.json", "history.csv", "predictions", "run.log"}


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def rows(table: str) -> dict[str, list[str]]:
    """The numbers of each row of a printed table."""
    found = (re.fullmatch(r" *(\S.*?)  +((?:[\d.-]+ *)+)", line) for line in table.splitlines())
    return {match[1]: match[2].split() for match in found if match}


def test_the_folder_holds_the_run(demo_run: tuple[Path, Result]) -> None:
    directory, _ = demo_run
    assert {path.name for path in directory.iterdir()} == FILES
    assert {path.name for path in (directory / "predictions").iterdir()} == {f"{s}.jsonl" for s in SPLITS}
    assert [path.name for path in directory.parent.iterdir()] == ["demo"]
    assert load_file(directory / "model.safetensors")


def test_metrics_have_the_promised_schema(demo_run: tuple[Path, Result]) -> None:
    metrics = read_json(demo_run[0] / "metrics.json")
    assert set(metrics) == {
        "stages",
        "test",
        "valid",
        "majority_vote",
        "best_consensus",
        "seconds_per_epoch",
        "seconds_total",
        "peak_rss_mb",
    }
    assert set(metrics["stages"]) == {"1", "2", "3"}
    for pair in [*metrics["stages"].values(), metrics["majority_vote"], metrics["best_consensus"], metrics]:
        for split in ("valid", "test"):
            assert set(pair[split]) == {"f1", "precision", "recall"}
            assert all(0 <= value <= 100 for value in pair[split].values())
    assert metrics["test"] in [stage["test"] for stage in metrics["stages"].values()]
    assert metrics["best_consensus"]["test"]["f1"] >= metrics["majority_vote"]["test"]["f1"] > 1
    assert set(metrics["seconds_per_epoch"]) == {"1", "2", "3"}
    assert metrics["seconds_total"] > sum(metrics["seconds_per_epoch"].values()) > 0
    assert metrics["peak_rss_mb"] > 50


def test_history_has_a_row_an_epoch(demo_run: tuple[Path, Result]) -> None:
    with (demo_run[0] / "history.csv").open(newline="") as file:
        history = list(csv.DictReader(file))
    assert [(row["stage"], row["epoch"]) for row in history if row["stage"] in "123"] == [
        ("1", "1"),
        ("1", "2"),
        ("2", "1"),
        ("3", "1"),
    ]
    for row in history:
        for name in (
            "loss",
            "elbo",
            "evidence",
            "kl",
            "valid_f1",
            "valid_precision",
            "valid_recall",
            "seconds",
        ):
            float(row[name])


def test_predictions_have_labels_and_posteriors(demo_run: tuple[Path, Result]) -> None:
    corpus = pyro_chmm.load_dataset("demo").test
    found = read_jsonl(demo_run[0] / "predictions" / "test.jsonl")
    assert [document["tokens"] for document in found] == [list(words) for words in corpus.tokens]
    for document in found:
        assert len(document["labels"]) == len(document["posterior"]) == len(document["tokens"])
        for posterior in document["posterior"]:
            assert sum(posterior.values()) == pytest.approx(1, abs=1e-4)
    names = corpus.label_set.names
    assert {label for document in found for label in document["labels"]} <= set(names)


def test_config_repeats_the_run(demo_run: tuple[Path, Result]) -> None:
    directory, _ = demo_run
    config = read_json(directory / "config.json")
    assert config["model"]["hyperparameters"]["epochs_stage1"] == 2
    run = config["run"]
    assert run["command"].startswith("pyro-chmm fit --data demo --out ")
    assert run["command"] in (directory / "run.log").read_text()
    assert run["options"]["hyperparameters"] == {
        "encoder": "none",
        "epochs_stage1": 2,
        "epochs_stage2": 1,
        "epochs_stage3": 1,
        "pretrain_steps": 2,
    }
    assert set(run["versions"]) >= {"pyro_chmm", "python", "torch", "pyro", "numba", "numpy", "transformers"}
    assert run["versions"]["pyro_chmm"] == pyro_chmm.__version__
    assert run["platform"]
    corpus = pyro_chmm.load_dataset("demo").test
    assert run["data"]["name"] == "demo"
    assert run["data"]["lf_names"] == list(corpus.lf_names)
    assert run["data"]["splits"]["test"] == {
        "documents": corpus.num_documents,
        "tokens": corpus.num_tokens,
        "sha256": run_record.corpus_hash(corpus),
    }


def test_the_table_at_the_end(demo_run: tuple[Path, Result]) -> None:
    directory, result = demo_run
    metrics = read_json(directory / "metrics.json")
    table = rows(result.stdout)
    assert len(table) == 5
    best = read_json(directory / "config.json")["run"]["best_stage"]
    expected = {
        f"stage {best} (kept)": metrics["stages"][str(best)],
        "majority vote": metrics["majority_vote"],
        "best consensus (oracle)": metrics["best_consensus"],
    }
    for name, scores in expected.items():
        order = [(split, part) for split in ("valid", "test") for part in ("precision", "recall", "f1")]
        assert table[name] == [f"{scores[split][part]:.2f}" for split, part in order]
    assert max(map(len, result.stdout.splitlines()[:-1])) <= 80
    assert str(directory) in result.stdout.splitlines()[-1]
    assert "\x1b" not in result.output


def without_seconds(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return [row[:-1] for row in csv.reader(file)]


def test_two_runs_are_equal_to_the_last_digit(demo_run: tuple[Path, Result], tmp_path: Path) -> None:
    first, second = demo_run[0], tmp_path / "again"
    succeeded("fit", "--data", "demo", "--out", second, *SHORT)
    assert without_seconds(first / "history.csv") == without_seconds(second / "history.csv")
    for name in ("model.safetensors", *(f"predictions/{split}.jsonl" for split in SPLITS)):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    third = tmp_path / "other seed"
    succeeded("fit", "--data", "demo", "--out", third, *SHORT, "--seed", 1)
    assert without_seconds(first / "history.csv") != without_seconds(third / "history.csv")


def test_a_preset_an_ablation_and_chosen_lfs(own_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = [
        "--preset",
        "paper-laptop",
        "--no-scale-reliability",
        "--lfs",
        "b",
        "--select",
        "evidence",
        *SHORT,
    ]
    succeeded("fit", "--data", own_data, "--out", out, "-q", *options)
    config = read_json(out / "config.json")
    assert config["model"]["hyperparameters"]["scale_reliability"] is False
    assert config["model"]["lf_names"] == config["run"]["options"]["lfs"] == ["b"]
    assert config["run"]["options"]["preset"] == "paper-laptop"


def test_missing_splits_and_missing_gold(tmp_path: Path) -> None:
    """One file is a train split; without valid and test there is no table, and metrics.json says null."""
    data = write_jsonl(tmp_path / "mine.jsonl", documents(gold=False))
    out = tmp_path / "run"
    result = succeeded("fit", "--data", data, "--out", out, *SHORT)
    assert result.stdout == f"No gold labels to score against, in neither valid nor test. The run, with all labels, is in {out}.\n"
    metrics = read_json(out / "metrics.json")
    assert metrics["test"] is metrics["valid"] is metrics["stages"]["1"]["test"] is None
    assert metrics["majority_vote"] == metrics["best_consensus"] == {"valid": None, "test": None}
    with (out / "history.csv").open(newline="") as file:
        assert {row["valid_f1"] for row in csv.DictReader(file)} == {""}
    found = read_jsonl(out / "predictions" / "train.jsonl")
    assert [document["id"] for document in found] == ["d0", "d1", "d2", "d3"]
    assert found[2]["labels"] == []


def test_another_split_to_learn_from(own_data: Path, tmp_path: Path) -> None:
    (own_data / "train.jsonl").unlink()
    result = invoke("fit", "--data", own_data, "--out", tmp_path / "run", *SHORT)
    assert result.exit_code == 2
    assert "has no split 'train' here, only valid, test" in result.stderr
    assert "--train-split valid" in result.stderr
    assert not (tmp_path / "run").exists()
    succeeded("fit", "--data", own_data, "--out", tmp_path / "run", "--train-split", "valid", *SHORT)
    assert {path.stem for path in (tmp_path / "run" / "predictions").iterdir()} == {"valid", "test"}


def test_the_default_folder(own_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "The run is in runs/corpus." in succeeded("fit", "--data", own_data, *SHORT).stdout
    assert {path.name for path in (tmp_path / "runs" / "corpus").iterdir()} == FILES
    assert runs.RunSettings("wrench/laptop").directory == Path("runs/laptop")


def test_another_run_is_refused_and_then_replaced(own_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    succeeded("fit", "--data", own_data, "--out", out, *SHORT)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    result = invoke("fit", "--data", own_data, "--out", out, *SHORT)
    assert result.exit_code == 2
    assert "holds another run" in result.stderr
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    succeeded("fit", "--data", own_data, "--out", out, *SHORT, "--overwrite", "--seed", 9)
    assert read_json(out / "config.json")["model"]["hyperparameters"]["seed"] == 9


@pytest.fixture
def breaking_fit(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes training raise what it is given."""

    def breaks(error: BaseException) -> None:
        def fit(*arguments: Any, **options: Any) -> None:
            raise error

        monkeypatch.setattr(runs.SparseCHMM, "fit", fit)

    return breaks


def test_an_error_of_ours(own_data: Path, tmp_path: Path, breaking_fit: Any) -> None:
    breaking_fit(ValueError("wires\ncrossed"))
    out = tmp_path / "run"
    result = invoke("fit", "--data", own_data, "--out", out)
    assert result.exit_code == 1
    assert result.stderr == (
        f"Error: ValueError: wires crossed (not expected; --debug shows where it happened). The log is in {out / 'failed.log'}.\n"
    )
    assert "Traceback" in (out / "failed.log").read_text()
    debugged = invoke("fit", "--data", own_data, "--out", out, "--debug")
    assert isinstance(debugged.exception, ValueError)


def test_an_interrupt(own_data: Path, tmp_path: Path, breaking_fit: Any) -> None:
    breaking_fit(KeyboardInterrupt())
    out = tmp_path / "run"
    result = invoke("fit", "--data", own_data, "--out", out)
    assert result.exit_code == 130
    assert result.stderr == f"Interrupted. The log is in {out / 'failed.log'}.\n"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_real_interrupt_spares_the_earlier_run(own_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    succeeded("fit", "--data", own_data, "--out", out, *SHORT)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    endless = ["--encoder", "none", "--epochs-stage1", "100000", "--patience", "100000", "--no-verify"]
    command = [sys.executable, "-m", "pyro_chmm.cli.main", "fit", "--data", str(own_data), "--out", str(out)]
    process = subprocess.Popen([*command, "--overwrite", *endless, "-v"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "stage 1" in line.lower():
                break
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert stdout == ""
    assert stderr.splitlines()[-1] == f"Interrupted. The log is in {out / 'failed.log'}."
    assert "Traceback (most recent" not in stderr.splitlines()[-1]
    (out / "failed.log").unlink()
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "run"]


@pytest.mark.filterwarnings("always")
def test_warnings_go_to_the_log(own_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit = runs.SparseCHMM.fit

    def warning_fit(*arguments: Any, **options: Any) -> Any:
        warnings.warn("the moon is full", stacklevel=1)
        return fit(*arguments, **options)

    monkeypatch.setattr(runs.SparseCHMM, "fit", warning_fit)
    result = succeeded("fit", "--data", own_data, "--out", tmp_path / "run", *SHORT)
    assert "moon" not in result.output
    assert "the moon is full" in (tmp_path / "run" / "run.log").read_text()
    assert "moon" in succeeded("fit", "--data", own_data, "--out", tmp_path / "loud", *SHORT, "-v").stderr


def test_quiet_is_quiet_and_pipes_get_no_bars(own_data: Path, tmp_path: Path) -> None:
    assert succeeded("fit", "--data", own_data, "--out", tmp_path / "a", *SHORT, "-q").stderr == ""
    command = [sys.executable, "-m", "pyro_chmm.cli.main", "fit", "--data", str(own_data)]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "b"), *SHORT],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "40"},
    )
    assert time.perf_counter() - started < 60
    assert "━" not in done.stdout + done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert len(rows(done.stdout)["majority vote"]) == 6, "the table is cut in a narrow terminal"
