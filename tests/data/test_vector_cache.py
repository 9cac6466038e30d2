"""Vectors on disk: whole or not at all."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from pyro_chmm.data.vector_cache import VectorEntry, default_directory


def entry(directory: Path, tokens: int = 3, documents: int = 2) -> VectorEntry:
    return VectorEntry(directory, "a" * 64, tokens, documents)


def write(place: VectorEntry, value: float = 1.5) -> None:
    with place.writing(4, {"name": "test"}) as (tokens, documents):
        tokens[:] = value
        documents[:] = -value


def test_what_was_written_is_read(tmp_path: Path) -> None:
    assert entry(tmp_path).read() is None
    write(entry(tmp_path))
    found = entry(tmp_path).read()
    assert found is not None
    np.testing.assert_array_equal(found[0], np.full((3, 4), 1.5, np.float16))
    np.testing.assert_array_equal(found[1], np.full((2, 4), -1.5, np.float16))
    assert isinstance(found[0], np.memmap)
    assert not found[0].flags.writeable
    assert [path.name for path in tmp_path.iterdir()] == ["a" * 64]


def test_no_tokens_and_no_documents(tmp_path: Path) -> None:
    write(entry(tmp_path, 0, 0))
    found = entry(tmp_path, 0, 0).read()
    assert found is not None
    assert [array.shape for array in found] == [(0, 4), (0, 4)]


def test_nothing_is_left_of_a_failed_write(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="stopped"), entry(tmp_path).writing(4, {}):
        raise RuntimeError("stopped")
    assert list(tmp_path.iterdir()) == []


def cut_short(folder: Path) -> None:
    content = (folder / "tokens.npy").read_bytes()
    (folder / "tokens.npy").write_bytes(content[:-2])


def other_shape(folder: Path) -> None:
    np.save(folder / "tokens.npy", np.zeros((4, 3), np.float16))  # as many bytes as before


def other_key(folder: Path) -> None:
    description = json.loads((folder / "entry.json").read_text())
    (folder / "entry.json").write_text(json.dumps({**description, "key": "b"}))


DAMAGE = {
    "cut short": cut_short,
    "another shape": other_shape,
    "another entry": other_key,
    "a file gone": lambda folder: (folder / "documents.npy").unlink(),
    "no description": lambda folder: (folder / "entry.json").unlink(),
    "a description that is no JSON": lambda folder: (folder / "entry.json").write_text("{"),
    "a description of another kind": lambda folder: (folder / "entry.json").write_text("[]"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_reported_and_counts_as_none(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    place = entry(tmp_path)
    write(place)
    DAMAGE[damage](place.folder)
    with caplog.at_level(logging.WARNING):
        assert place.read() is None
    assert "damaged" in caplog.text
    assert str(place.folder) in caplog.text
    write(place)
    assert place.read() is not None


def test_the_first_of_two_writers_wins(tmp_path: Path) -> None:
    with entry(tmp_path).writing(4, {}) as (tokens, documents):
        tokens[:], documents[:] = 7.0, 7.0
        write(entry(tmp_path), 1.5)
    found = entry(tmp_path).read()
    assert found is not None
    assert found[0][0, 0] == 1.5
    assert len(list(tmp_path.iterdir())) == 1


def test_what_killed_processes_left_is_removed_after_days(tmp_path: Path) -> None:
    old, new = tmp_path / ".unfinished-old", tmp_path / ".unfinished-new"
    old.mkdir()
    new.mkdir()
    os.utime(old, (time.time() - 3 * 24 * 3600,) * 2)
    write(entry(tmp_path))
    assert (old.exists(), new.exists()) == (False, True)


def test_where_vectors_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYRO_CHMM_CACHE", str(tmp_path))
    assert default_directory() == tmp_path
    monkeypatch.delenv("PYRO_CHMM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert default_directory() == tmp_path / "home" / "pyro-chmm" / "vectors"


def test_an_open_entry_outlives_its_removal(tmp_path: Path) -> None:
    place = entry(tmp_path)
    write(place)
    found = place.read()
    shutil.rmtree(place.folder)
    assert found is not None
    assert found[0].sum() == 18.0
