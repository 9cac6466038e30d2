"""The folder of one run: written aside, put in place at the end, never in place of what it does not know."""

from __future__ import annotations

import glob
import json
import logging
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

from pyro_chmm.errors import ConfigError, PyroCHMMError, TrainingError

logger = logging.getLogger(__name__)

CONFIG, MODEL, METRICS, HISTORY = "config.json", "model.safetensors", "metrics.json", "history.csv"
PREDICTIONS, LOG = "predictions", "run.log"
FAILED_LOG = "failed.log"
_HOST = platform.node().replace(os.sep, "_") or "here"
_ENTRIES = (CONFIG, MODEL, METRICS, HISTORY, PREDICTIONS, LOG)


class RunFolder:
    """Collects a run's files in a hidden folder beside ``directory`` and moves them there on success.

    Use it as a context manager: files are written below :attr:`path`; :meth:`commit` puts them in place.
    Without a commit, whatever ``directory`` held is untouched. After an interrupt, an error in training or one
    that is not the user's, the log stays as ``directory/failed.log``, and a note of the error says so.

    :param overwrite: replace the files of an earlier run. Files that no run writes are left alone.
    :raises ConfigError: when ``directory`` holds another run (without ``overwrite``), holds files that have
        a run's names but belong to no run, or cannot be written to.
    """

    def __init__(self, directory: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        self.directory = Path(directory).expanduser().resolve()
        self.overwrite = overwrite
        self._given = str(directory)
        self._check()
        self.path = self._beside(f"unfinished-{_HOST}-{os.getpid()}")
        self._committed = False

    def _beside(self, what: str) -> Path:
        return self.directory.parent / f".{self.directory.name}.{what}-{uuid4().hex[:8]}"

    def __enter__(self) -> Self:
        self._sweep()
        try:
            self.path.mkdir(parents=True)
        except OSError as error:
            raise ConfigError(f"The output folder {self._given} cannot be made ({error.strerror}): choose another one.") from error
        self._log = _logging_to(self.path / LOG)
        self._log.__enter__()
        return self

    def _sweep(self) -> None:
        """Remove what runs to this place left that were killed: those of processes of this machine that are no more."""
        for left in self.directory.parent.glob(f".{glob.escape(self.directory.name)}.unfinished-{glob.escape(_HOST)}-*"):
            process = left.name.rsplit("-", 2)[-2]
            if process.isdigit() and not _alive(int(process)):
                shutil.rmtree(left, ignore_errors=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is not None:
            logger.debug("The run ended early.", exc_info=error)
        self._log.__exit__(None, None, None)
        if self._committed:
            return
        if error is not None and (isinstance(error, TrainingError) or not isinstance(error, PyroCHMMError)):
            self.directory.mkdir(exist_ok=True)
            kept = self.directory / FAILED_LOG
            os.replace(self.path / LOG, kept)
            error.add_note(f"The log is in {kept}.")
        shutil.rmtree(self.path)

    def commit(self) -> None:
        """Put the files in place. An earlier run is replaced as a whole, or, if a move fails, put back.

        :raises ConfigError: when another run took the place meanwhile. After any error the finished files
            stay where they are.
        """
        self._committed = True
        complete = self._beside("complete")
        try:
            os.rename(self.path, complete)
            self.path = complete
            self._check()
            self._move()
        except BaseException as error:
            error.add_note(f"This run is complete; its files are in {self.path}.")
            raise

    def _move(self) -> None:
        if not self.directory.exists():
            os.rename(self.path, self.directory)
            return
        _replace_entries(self.path, self.directory)
        (self.directory / FAILED_LOG).unlink(missing_ok=True)
        self.path.rmdir()

    def _check(self) -> None:
        if self.directory.exists() and not self.directory.is_dir():
            raise ConfigError(f"The output folder {self._given} is a file: choose another one.")
        found = [name for name in _ENTRIES if (self.directory / name).exists()]
        if not found:
            return
        if not _is_run(self.directory):
            raise ConfigError(
                f"The output folder {self._given} holds {found[0]}, which no run of pyro-chmm wrote: choose another folder."
            )
        if not self.overwrite:
            raise ConfigError(
                f"The output folder {self._given} holds another run: choose another folder, or replace it with --overwrite."
            )


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


def _is_run(directory: Path) -> bool:
    try:
        config = json.loads((directory / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and "run" in config and "model" in config


def _replace_entries(source: Path, target: Path) -> None:
    """Move a run's entries from ``source`` to ``target``; on any failure everything is moved back."""
    backup = source.with_name(source.name.replace(".complete-", ".replaced-"))
    backup.mkdir()
    moves = [(target / name, backup / name) for name in _ENTRIES if (target / name).exists()]
    moves += [(entry, target / entry.name) for entry in sorted(source.iterdir())]
    done: list[tuple[Path, Path]] = []
    try:
        for move in moves:
            os.rename(*move)
            done.append(move)
    except BaseException:
        for origin, destination in reversed(done):
            os.rename(destination, origin)
        backup.rmdir()
        raise
    shutil.rmtree(backup)


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """What the package logs, and Python warnings where they are captured, also goes to the file ``path``."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    ours, warned = logging.getLogger("pyro_chmm"), logging.getLogger("py.warnings")
    before = ours.level
    ours.setLevel(logging.DEBUG)
    ours.addHandler(handler)
    warned.addHandler(handler)
    try:
        yield
    finally:
        for logger_ in (ours, warned):
            logger_.removeHandler(handler)
        ours.setLevel(before)
        handler.close()
