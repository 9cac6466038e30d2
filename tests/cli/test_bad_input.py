"""Bad input gets one sentence and exit code 2, never a traceback, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result

from .conftest import SHORT, documents, invoke, write_jsonl


def refused(*arguments: object) -> str:
    """What the program says when it refuses; one sentence on standard error, and nothing else."""
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    message = result.stderr.splitlines()[-1]
    assert message.startswith("Error: ")
    assert result.stderr.count("Error: ") == 1
    return message


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def edited(change: Callable[[list[dict[str, Any]]], None]) -> list[dict[str, Any]]:
    records = documents()
    change(records)
    return records


BAD_DOCUMENTS = {
    "a label outside the set": (
        lambda d: d[0]["weak_labels"].update(a=[[0, 1, "DRUG"]]),
        ["'d0'", "a", "DRUG"],
    ),
    "a span outside the document": (
        lambda d: d[1]["weak_labels"].update(b=[[1, 3, "LOC"]]),
        ["'d1'", "b", "3"],
    ),
    "LFs that disagree": (lambda d: d[1]["weak_labels"].pop("b"), ["'d1'", "a"]),
    "too few gold labels": (lambda d: d[0]["labels"].pop(), ["'d0'"]),
    "tokens that are no strings": (lambda d: d[3].update(tokens=[1, 2, 3, 4]), ["'d3'", "tokens"]),
}


@pytest.mark.parametrize("command", ["fit", "lfs", "verify"])
@pytest.mark.parametrize("kind", BAD_DOCUMENTS)
def test_bad_documents(command: str, kind: str, own_data: Path, tmp_path: Path) -> None:
    change, named = BAD_DOCUMENTS[kind]
    write_jsonl(own_data / "test.jsonl", edited(change))
    before = contents(tmp_path)
    more = {"fit": ["--out", tmp_path / "run", *SHORT], "verify": ["--encoder", "none"]}.get(command, [])
    message = refused(command, "--data", own_data, *more)
    assert "test.jsonl" in message
    for part in named:
        assert part in message
    assert contents(tmp_path) == before


def test_malformed_json(own_data: Path, tmp_path: Path) -> None:
    with (own_data / "valid.jsonl").open("a") as file:
        file.write('{"tokens": [}\n')
    message = refused("fit", "--data", own_data, "--out", tmp_path / "run")
    assert "valid.jsonl" in message
    assert "line 5, column 13" in message


BAD_OPTIONS = {
    "unknown data set": (["--data", "wrench/laptops"], ["wrench/laptops", "wrench/laptop", "demo"]),
    "no data": ([], ["Missing option '--data'"]),
    "unknown LF": (["--data", "OWN", "--lfs", "a,zebra"], ["zebra", "a, b"]),
    "no LF": (["--data", "OWN", "--lfs", ","], ["at least one name"]),
    "contradictory LFs": (["--data", "OWN", "--lfs", "a", "--all-lfs"], ["--all-lfs and --lfs exclude"]),
    "missing split": (["--data", "OWN", "--train-split", "dev"], ["'dev'", "train, valid, test"]),
    "unknown preset": (["--data", "OWN", "--preset", "best"], ["'best'", "default", "paper-laptop", ".toml"]),
    "unknown choice": (["--data", "OWN", "--select", "luck"], ["'luck'", "'evidence'"]),
    "no number": (["--data", "OWN", "--h-n", "much"], ["'much'", "float"]),
    "negative number": (["--data", "OWN", "--h-n", "-1"], ["h_n", "-1", "positive"]),
    "not finite": (["--data", "OWN", "--h-n", "nan"], ["h_n", "nan"]),
    "no layers": (["--data", "OWN", "--layers", "three"], ["'three'", "3,6"]),
    "unknown prior": (["--data", "OWN", "--emission-prior", "flat:1"], ["flat:1", "symmetric"]),
    "unknown backend": (["--data", "OWN", "--backend", "tpu"], ["tpu", "cuda"]),
    "unknown encoder": (["--data", "OWN", "--encoder", "./no/such/model"], ["no/such/model"]),
    "unknown device": (["--data", "OWN", "--device", "tpu9"], ["'tpu9'", "expected cpu or cuda"]),
    "unsuitable device": (["--data", "OWN", "--device", "meta"], ["'meta'", "expected cpu or cuda"]),
    "missing device": (["--data", "OWN", "--device", "cuda:99"], ["cuda:99", "--device cpu"]),
    "unknown option": (["--data", "OWN", "--magic"], ["--magic"]),
}


@pytest.mark.parametrize("kind", BAD_OPTIONS)
def test_bad_options_of_fit(kind: str, own_data: Path, tmp_path: Path) -> None:
    arguments, named = BAD_OPTIONS[kind]
    before = contents(tmp_path)
    options = [own_data if argument == "OWN" else argument for argument in arguments]
    message = refused("fit", "--out", tmp_path / "run", "--encoder", "none", *options)
    for part in named:
        assert part in message
    assert contents(tmp_path) == before


def test_folders_that_cannot_be_written_to(own_data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert "is a file" in refused("fit", "--data", own_data, "--out", tmp_path / "file")
    assert "cannot be made" in refused("fit", "--data", own_data, "--out", tmp_path / "file" / "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    message = refused("fit", "--data", own_data, "--out", tmp_path / "mine", "--overwrite")
    assert "holds config.json, which no run of pyro-chmm wrote" in message
    assert (tmp_path / "mine" / "config.json").read_text() == "{}"


def test_no_gold_to_choose_epochs_by(own_data: Path, tmp_path: Path) -> None:
    write_jsonl(own_data / "valid.jsonl", documents(gold=False))
    message = refused("fit", "--data", own_data, "--out", tmp_path / "run", "--encoder", "none")
    assert "--select evidence" in message


def test_a_model_that_is_none(own_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    arguments = ["predict", "--data", own_data, "--split", "test", "--out", out, "--model"]
    assert "nowhere" in refused(*arguments, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "empty" in refused(*arguments, tmp_path / "empty")
    assert not out.exists()


def test_a_truncated_model(demo_run: tuple[Path, Result], tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_bytes((demo_run[0] / "config.json").read_bytes())
    (model / "model.safetensors").write_bytes((demo_run[0] / "model.safetensors").read_bytes()[:-10])
    assert "model.safetensors" in refused("evaluate", "--model", model, "--data", "demo")


def test_data_that_a_model_does_not_know(demo_run: tuple[Path, Result], own_data: Path, tmp_path: Path) -> None:
    arguments = ["--model", demo_run[0], "--data", own_data, "--split", "test"]
    assert "LF" in refused("predict", *arguments, "--out", tmp_path / "labels.jsonl")
    assert "LF" in refused("evaluate", *arguments)


def test_splits_have_to_be_named_and_known(demo_run: tuple[Path, Result], tmp_path: Path) -> None:
    arguments = ["--model", demo_run[0], "--data", "demo"]
    message = refused("predict", *arguments, "--out", tmp_path / "labels.jsonl")
    assert "train, valid, test; choose one with --split" in message
    assert "dev" in refused("evaluate", *arguments, "--split", "dev")
    assert "dev" in refused("lfs", "--data", "demo", "--split", "dev")


def test_gold_that_is_missing(own_data: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    assert invoke("fit", "--data", own_data, "--out", model, *SHORT).exit_code == 0
    data = write_jsonl(tmp_path / "test.jsonl", documents(gold=False))
    assert "no gold labels" in refused("evaluate", "--model", model, "--data", data)


def test_names_of_data_sets() -> None:
    for command in ("get", "path"):
        message = refused("data", command, "wrench/laptops")
        assert "wrench/laptops" in message
        assert "wrench/laptop," in message
    assert "Missing argument 'NAME'" in refused("data", "get")


def test_a_pipe_that_closes() -> None:
    command = [sys.executable, "-m", "pyro_chmm.cli.main", "data", "list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


def test_bad_meta(own_data: Path) -> None:
    (own_data / "meta.json").write_text(json.dumps({"entity_types": "PER"}))
    assert "meta.json" in refused("lfs", "--data", own_data)


def test_verify_on_a_gpu_that_is_not_there(own_data: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    message = refused("verify", "--data", own_data, "--encoder", "none", "--backend", "cuda")
    assert "cuda" in message
