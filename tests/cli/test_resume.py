"""``fit`` that is killed, and ``fit --resume``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from pyro_chmm.data.batching import PackedBatch
from pyro_chmm.model.checkpoint import Checkpoints
from pyro_chmm.model.sparse_chmm import SparseCHMMModel

from .conftest import invoke, succeeded

# enough epochs that a signal finds the process in the midst of them
OPTIONS = ["--encoder", "none", "--epochs-stage1", "6", "--epochs-stage2", "2", "--epochs-stage3", "2", "--no-verify"]


def test_a_run_that_is_killed_goes_on(tmp_path: Path) -> None:
    """SIGKILL as soon as there is a checkpoint; the resumed run has the weights and labels of one that was left alone."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    succeeded("fit", "--data", "demo", "--out", whole, *OPTIONS)
    code = (
        "import sys, time, pyro_chmm.model.checkpoint as c\n"
        "real = c.Checkpoints.write\n"
        "c.Checkpoints.due = lambda self: True\n"
        "c.Checkpoints.write = lambda self, *a: (real(self, *a), time.sleep(0.2))\n"
        "from pyro_chmm.cli.main import main\n"
        "main(sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", code, "fit", "--data", "demo", "--out", str(killed), *OPTIONS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not (killed / "checkpoint.safetensors").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    message = invoke("fit", "--data", "demo", "--out", killed, *OPTIONS)
    assert message.exit_code == 2
    assert f"pyro-chmm fit --resume {killed}" in message.stderr.replace("\n", " ")
    result = succeeded("fit", "--resume", killed)
    assert f"The run is in {killed}." in result.stdout
    assert (killed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert (killed / "predictions" / "test.jsonl").read_bytes() == (whole / "predictions" / "test.jsonl").read_bytes()
    assert not (killed / "checkpoint.safetensors").exists()


def test_an_interrupt_names_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Checkpoints.write

    def write_then_stop(self: Checkpoints, *arguments: Any) -> None:
        real(self, *arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoints, "due", lambda self: True)
    monkeypatch.setattr(Checkpoints, "write", write_then_stop)
    result = invoke("fit", "--data", "demo", "--out", tmp_path / "run", *OPTIONS)
    assert result.exit_code == 130
    assert f"Interrupted. The checkpoint is {tmp_path / 'run' / 'checkpoint.safetensors'}" in result.stderr
    assert not (tmp_path / "run" / "config.json").exists()


def test_nothing_to_resume(tmp_path: Path) -> None:
    result = invoke("fit", "--resume", tmp_path)
    assert result.exit_code == 2
    assert "There is no checkpoint" in result.stderr
    (tmp_path / "checkpoint.safetensors").write_bytes(b"{}")
    result = invoke("fit", "--resume", tmp_path)
    assert result.exit_code == 2
    assert "cannot be read" in result.stderr
    Checkpoints(tmp_path / "checkpoint.safetensors", json.loads('{"options": 3}')).write({}, {})
    assert "does not say what run" in invoke("fit", "--resume", tmp_path).stderr


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of resources")
def test_a_disk_that_is_full_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    """The system lets no file grow beyond 40 kB once a checkpoint is there, and fails the writes as a full disk does."""
    whole, full = tmp_path / "whole", tmp_path / "full"
    succeeded("fit", "--data", "demo", "--out", whole, *OPTIONS)
    code = (
        "import resource, sys, pyro_chmm.model.checkpoint as c\n"
        "real, calls = c.Checkpoints.write, [0]\n"
        "def write(self, *arguments):\n"
        "    calls[0] += 1\n"
        "    if calls[0] == 3:\n"
        "        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, resource.RLIM_INFINITY))\n"
        "    real(self, *arguments)\n"
        "c.Checkpoints.due, c.Checkpoints.write = (lambda self: True), write\n"
        "from pyro_chmm.cli.main import main\n"
        "main(sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", code, "fit", "--data", "demo", "--out", str(full), *OPTIONS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    message = " ".join(done.stderr.split())
    assert "cannot be written (File too large); the last is kept" in message
    assert "--resume" in message
    assert not [path for path in full.iterdir() if path.name.startswith(".checkpoint")]
    succeeded("fit", "--resume", full)
    assert (full / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def interrupted(monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> None:
    """A run that stops after its first checkpoint."""
    real = Checkpoints.write

    def write_then_stop(self: Checkpoints, *parts: Any) -> None:
        real(self, *parts)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "due", lambda self: True)
        patch.setattr(Checkpoints, "write", write_then_stop)
        assert invoke("fit", *arguments, *OPTIONS).exit_code == 130


def test_a_run_goes_on_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir(), second.mkdir()
    succeeded("convert", "demo", first / "own", "--to", "jsonl")
    monkeypatch.chdir(first)
    interrupted(monkeypatch, "--data", "own", "--out", "run")
    monkeypatch.chdir(second)
    succeeded("fit", "--resume", "../first/run")
    assert (first / "run" / "model.safetensors").exists()


@pytest.mark.parametrize(("option", "there"), [("-v", True), ("-q", False)])
def test_what_is_said_while_a_run_goes_on(
    option: str, there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(monkeypatch, "--data", "demo", "--out", tmp_path / "run")
    said = succeeded("fit", "--resume", tmp_path / "run", option).stderr
    assert ("stage 1, epoch 2" in said) == there
    assert there or said == ""


def test_out_of_memory_leaves_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An allocation that no machine can serve, in the third epoch: the run says what to do and goes on to the same end."""
    whole, run = tmp_path / "whole", tmp_path / "run"
    succeeded("fit", "--data", "demo", "--out", whole, *OPTIONS)
    real, steps = SparseCHMMModel.forward, iter(range(10**6))

    def greedy(self: SparseCHMMModel, batch: PackedBatch) -> None:
        if next(steps) == 5:
            torch.empty(2**50)
        real(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "due", lambda self: True)
        patch.setattr(SparseCHMMModel, "forward", greedy)
        result = invoke("fit", "--data", "demo", "--out", run, *OPTIONS)
    assert result.exit_code == 2
    assert "ran out of memory at stage 1, epoch" in result.stderr.replace("\n", " ")
    assert f"go on with `pyro-chmm fit --resume {run}`" in result.stderr.replace("\n", " ")
    succeeded("fit", "--resume", run)
    assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
