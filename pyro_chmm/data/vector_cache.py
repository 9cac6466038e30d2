"""Vectors on disk: one folder an entry, memory-mapped, written whole or not at all."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import platformdirs
from numpy.typing import NDArray

log = logging.getLogger(__name__)

#: Part of every key; a change to what vectors mean makes old entries unused.
FORMAT = 1
_TOKENS, _DOCUMENTS, _DESCRIPTION = "tokens.npy", "documents.npy", "entry.json"

Half = NDArray[np.float16]


@dataclass(frozen=True)
class EntryShape:
    """How many vectors an entry holds, and how long they are."""

    tokens: int
    documents: int
    width: int


def default_directory() -> Path:
    """``$PYRO_CHMM_CACHE``, or the user's cache folder."""
    chosen = os.environ.get("PYRO_CHMM_CACHE")
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("pyro-chmm")) / "vectors"


def read(directory: Path, key: str, shape: EntryShape) -> tuple[Half, Half] | None:
    """Token and document vectors of an entry, or None where there is none; a damaged one is reported and counts as none."""
    folder = directory / key
    if not folder.is_dir():
        return None
    try:
        description = json.loads((folder / _DESCRIPTION).read_text(encoding="utf-8"))
        tokens = _open(folder / _TOKENS, (shape.tokens, shape.width))
        documents = _open(folder / _DOCUMENTS, (shape.documents, shape.width))
        if description != {"format": FORMAT, "key": key}:
            raise ValueError("it describes another entry")
    except (OSError, ValueError) as error:
        log.warning("The cached vectors in %s are damaged (%s); they are made again.", folder, error)
        shutil.rmtree(folder, ignore_errors=True)
        return None
    return tokens, documents


def write(
    directory: Path, key: str, shape: EntryShape, fill: Callable[[Half, Half], None]
) -> tuple[Half, Half]:
    """Let ``fill`` write into two memory-mapped arrays, then move the finished entry into place.

    Two processes may make the same entry at once: the later one takes the earlier one's.
    """
    directory.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=directory, prefix=f".{key[:12]}."))
    try:
        tokens = _create(temporary / _TOKENS, (shape.tokens, shape.width))
        documents = _create(temporary / _DOCUMENTS, (shape.documents, shape.width))
        fill(tokens, documents)
        for array in (tokens, documents):
            if isinstance(array, np.memmap):
                array.flush()
        del tokens, documents
        (temporary / _DESCRIPTION).write_text(json.dumps({"format": FORMAT, "key": key}), encoding="utf-8")
        try:
            os.rename(temporary, directory / key)
        except OSError:
            log.debug("another process has made the entry %s", key)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    entry = read(directory, key, shape)
    if entry is None:
        raise OSError(f"{directory / key} could not be read back")
    return entry


def _create(path: Path, shape: tuple[int, int]) -> Half:
    if 0 in shape:  # an empty file cannot be memory-mapped
        np.save(path, np.zeros(shape, np.float16), allow_pickle=False)
        return np.zeros(shape, np.float16)
    return np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=shape)


def _open(path: Path, shape: tuple[int, int]) -> Half:
    array: Half = np.load(path, mmap_mode=None if 0 in shape else "r", allow_pickle=False)
    if array.shape != shape or array.dtype != np.float16:
        raise ValueError(f"{path.name} holds {array.dtype} {array.shape}, expected float16 {shape}")
    return array
