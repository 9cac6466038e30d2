"""A run that ends early goes on from its checkpoint, to the very weights of a run without a break."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pyro_chmm import SparseCHMM, load_dataset
from pyro_chmm.errors import ModelFileError
from pyro_chmm.model import checkpoint
from pyro_chmm.model.checkpoint import Checkpoints, read_checkpoint

SHORT: dict[str, Any] = {"encoder": "none", "epochs_stage1": 3, "epochs_stage2": 2, "epochs_stage3": 2, "verify": False}


def weights(model: SparseCHMM, folder: Path) -> bytes:
    model.save(folder)
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("epochs", [1, 3, 4, 6])
def test_a_killed_run_goes_on_to_the_same_weights(epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load_dataset("demo")
    whole = SparseCHMM(**SHORT).fit(data.train, data.valid)
    path = tmp_path / "checkpoint.safetensors"
    written, real = [0], Checkpoints.write

    def write_then_stop(self: Checkpoints, *arguments: Any) -> None:
        real(self, *arguments)
        written[0] += 1
        if written[0] == epochs:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "write", write_then_stop)
        with pytest.raises(KeyboardInterrupt):
            SparseCHMM(**SHORT).fit(data.train, data.valid, checkpoints=Checkpoints(path, {"data": "demo"}, every=0))
    torch.manual_seed(99)  # another process has other random numbers
    assert read_checkpoint(path).about == {"data": "demo"}
    resumed = SparseCHMM(**SHORT).fit(data.train, data.valid, checkpoints=Checkpoints(path, resume=True))
    assert weights(resumed, tmp_path / "b") == weights(whole, tmp_path / "a")
    assert resumed.best_stage_ == whole.best_stage_
    assert [(r.stage, r.epoch, r.loss) for r in resumed.history_] == [(r.stage, r.epoch, r.loss) for r in whole.history_]
    np.testing.assert_array_equal(resumed.predict_ids(data.test), whole.predict_ids(data.test))


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.safetensors"
    Checkpoints(path).write({"epoch": 1}, {"a": torch.ones(2)})

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.os, "fsync", full)
    with pytest.raises(ModelFileError, match="No space left on device"):
        Checkpoints(path).write({"epoch": 2}, {"a": torch.zeros(2)})
    assert read_checkpoint(path).state == {"epoch": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_files_that_are_no_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    with pytest.raises(ModelFileError, match="There is no checkpoint"):
        read_checkpoint(path)
    Checkpoints(path).write({"epoch": 1}, {"a": torch.ones(200)})
    whole = path.read_bytes()
    for size in (0, 5, 50, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelFileError, match="cannot be read"):
            read_checkpoint(path)
    path.write_bytes(whole)
    data = load_dataset("demo")
    with pytest.raises(ModelFileError, match="does not fit this run"):
        SparseCHMM(**SHORT).fit(data.train, data.valid, checkpoints=Checkpoints(path, resume=True))
