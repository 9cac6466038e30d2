"""Vectors on disk: one folder an entry, memory-mapped, written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

log = logging.getLogger(__name__)

#: Part of every key; a change to what vectors mean makes old entries unused.
FORMAT = 2

Half = NDArray[np.float16]

_TOKENS, _DOCUMENTS, _DESCRIPTION = "tokens.npy", "documents.npy", "entry.json"
_UNFINISHED = ".unfinished-"
_ABANDONED_SECONDS = 2 * 24 * 3600.0


def default_directory() -> Path:
    """``$PYRO_CHMM_CACHE``, or the user's cache folder."""
    import platformdirs

    chosen = os.environ.get("PYRO_CHMM_CACHE")
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("pyro-chmm")) / "vectors"


class VectorEntry:
    """The place of one corpus's vectors in the cache.

    :param directory: the cache's folder; made when something is written.
    :param key: what the entry is called; no two different contents share one.
    :param tokens: number of token vectors, N.
    :param documents: number of document vectors, B.
    """

    def __init__(self, directory: Path, key: str, tokens: int, documents: int) -> None:
        self.directory, self.folder, self._key = directory, directory / key, key
        self._rows = {_TOKENS: tokens, _DOCUMENTS: documents}

    def read(self) -> tuple[Half, Half] | None:
        """Token vectors ``(N, width)`` and document vectors ``(B, width)``, read-only, or None where there are none.

        A damaged entry is reported, removed, and counts as none.
        """
        if not self.folder.is_dir():
            return None
        try:
            description = json.loads((self.folder / _DESCRIPTION).read_text(encoding="utf-8"))
            return self._open(_TOKENS, description), self._open(_DOCUMENTS, description)
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("The cached vectors in %s are damaged (%s); they are made again.", self.folder, error)
            shutil.rmtree(self.folder, ignore_errors=True)
            return None

    def _open(self, name: str, description: dict[str, Any]) -> Half:
        path, expected = self.folder / name, description["files"][name]
        if description["key"] != self._key:
            raise ValueError(f"{_DESCRIPTION} describes another entry")
        if path.stat().st_size != expected["bytes"]:
            raise ValueError(f"{name} has {path.stat().st_size} bytes, not {expected['bytes']}")
        array: Half = np.load(path, mmap_mode="r" if self._rows[name] else None, allow_pickle=False)
        if array.dtype != np.float16 or array.shape != (self._rows[name], expected["width"]):
            raise ValueError(f"{name} holds {array.dtype} of shape {array.shape}")
        array.flags.writeable = False
        return array

    @contextmanager
    def writing(self, width: int, about: dict[str, Any]) -> Iterator[tuple[Half, Half]]:
        """Two arrays to fill; when the block ends without an error, the entry appears.

        Two processes may make the same entry at once: the first to end keeps its own, the other's is dropped.

        :param about: what the vectors are, in JSON's types, for people who look into the folder.
        :raises OSError: where there is no room or no permission.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self._remove_abandoned()
        unfinished = Path(tempfile.mkdtemp(dir=self.directory, prefix=_UNFINISHED))
        try:
            arrays = {name: _create(unfinished / name, (rows, width)) for name, rows in self._rows.items()}
            yield arrays[_TOKENS], arrays[_DOCUMENTS]
            files = {}
            for name, array in arrays.items():
                if isinstance(array, np.memmap):
                    array.flush()
                files[name] = {"bytes": (unfinished / name).stat().st_size, "width": width}
            description = {"format": FORMAT, "key": self._key, "files": files, "about": about}
            (unfinished / _DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
            unfinished.chmod(0o755)  # a temporary folder is its owner's alone, a cache may be shared
            try:
                unfinished.rename(self.folder)
            except OSError:
                if not self.folder.is_dir():
                    raise
                log.debug("another process has made the entry %s", self._key)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def _remove_abandoned(self) -> None:
        """What killed processes left; a run that takes two days is not expected."""
        for folder in self.directory.glob(f"{_UNFINISHED}*"):
            with contextlib.suppress(OSError):
                if time.time() - folder.stat().st_mtime > _ABANDONED_SECONDS:
                    shutil.rmtree(folder, ignore_errors=True)


def _create(path: Path, shape: tuple[int, int]) -> Half:
    if not shape[0]:
        np.save(path, np.zeros(shape, np.float16), allow_pickle=False)
        return np.zeros(shape, np.float16)
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=shape)
    if hasattr(os, "posix_fallocate"):
        # a full disk is an error here; later, writing into the map, it would end the process
        with path.open("r+b") as stream:
            os.posix_fallocate(stream.fileno(), 0, path.stat().st_size)
    return array
