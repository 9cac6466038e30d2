"""File formats: each module has ``read(path) -> Documents`` and ``write(path, corpus, posteriors=None)``.

``wrench`` (both layouts), ``conll``, ``docbin``, ``jsonl``, ``matrix`` and ``huggingface``; ``registry`` finds the one of a file.
A reader checks what belongs to its layout; :class:`Documents` then becomes a corpus with the label set and LF names of the data
set.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pyro_chmm import atomic
from pyro_chmm.data.building import CorpusBuilder
from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.labels import LabelSet
from pyro_chmm.errors import DataError

MAX_BYTES = 4 * 2**30
"""Largest file that is read, and the most that a compressed one may grow to."""


@dataclass(frozen=True)
class Documents:
    """The documents of one file, as lists: the columns are those that :class:`CorpusBuilder` takes."""

    source: Path
    names: list[str]
    tokens: list[Any]
    weak: list[Sequence[Any]]
    """``weak[document][lf]``, a column; as many for every document."""
    gold: list[Any] | None
    lf_names: tuple[str, ...] | None
    """Names of the LFs if the file holds them."""
    declared_types: tuple[str, ...] = ()
    """Entity types in the order of their ids if the file holds them; empty: those that occur."""
    coarse_types: tuple[str, ...] = ()
    """Coarse labels that the file declares."""

    @property
    def num_lfs(self) -> int:
        """How many LFs the documents have weak labels of."""
        return len(self.weak[0]) if self.weak else 0

    def entity_types(self) -> set[str]:
        """The types that occur in weak or gold labels, for files without a list of types."""
        columns = [column for columns in self.weak for column in columns] + (self.gold or [])
        types: set[str] = set()
        for column in columns:
            for entry in column if isinstance(column, list) else ():
                if isinstance(entry, str) and entry[:2] in ("B-", "I-"):
                    types.add(entry[2:])
                elif isinstance(entry, list) and len(entry) == 3 and isinstance(entry[2], str):
                    types.add(entry[2])
        return types - {""}

    def corpus(self, label_set: LabelSet, lf_names: Sequence[str], coarse_types: Sequence[str] = ()) -> Corpus:
        """The corpus; :class:`DataError` with file, document, LF and token for anything that does not fit."""
        with naming(self.source):
            builder = CorpusBuilder(label_set, lf_names, self.gold is not None, str(self.source), coarse_types)
            for number, name in enumerate(self.names):
                builder.add(
                    name, self.tokens[number], self.weak[number], None if self.gold is None else self.gold[number]
                )
            return builder.finish()


@contextmanager
def naming(source: Path) -> Iterator[None]:
    """Put the file before a :class:`DataError` that does not name it."""
    try:
        yield
    except DataError as error:
        if str(source) in str(error):
            raise
        raise DataError(f"{source}: {error}") from None


def read_bytes(path: Path) -> bytes:
    """What a regular file of bearable size holds; :class:`DataError` otherwise: reading a device or a pipe might never end."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise DataError(f"{path} is not a regular file.")
        if status.st_size > MAX_BYTES:
            raise DataError(f"{path} has {status.st_size:,} bytes; files of up to {MAX_BYTES:,} are read: split it.")
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with or without a byte order mark; :class:`DataError` if there is none."""
    content = read_bytes(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not UTF-8 text; save the file as UTF-8.") from None


def parse_json(text: str, source: Path, line: int | None = None) -> Any:
    """The value of a JSON text; :class:`DataError` with line and column if it is malformed or names a key
    twice.

    :param line: the number of the text's first line in the file, if it is not the whole file.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno + (line or 1) - 1}, column {error.colno}"
        raise DataError(f"{source}, {where}: malformed JSON: {error.msg}.") from None
    except (ValueError, RecursionError) as error:
        where = "" if line is None else f", line {line}"
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise DataError(f"{source}{where}: malformed JSON: {reason}.") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(
            f"the key {next(key for key in keys if keys.count(key) > 1)!r} occurs twice in one object"
        )
    return result


def collect_gold(golds: list[Any], names: Sequence[str], source: Path) -> list[Any] | None:
    """Gold columns of all documents, or None if none has one; :class:`DataError` if only some have."""
    missing = [name for name, gold in zip(names, golds, strict=True) if gold is None]
    if len(missing) == len(golds):
        return None
    if missing:
        raise DataError(
            f"{source}: document {missing[0]!r} has no gold labels, while others have; give all or none."
        )
    return golds


def expect_mapping(value: Any, where: str) -> Mapping[str, Any]:
    """The value, if it is a JSON object; else :class:`DataError`."""
    if not isinstance(value, dict):
        raise DataError(f"{where}: a JSON object is expected, not {_kind(value)}.")
    return value


def expect_list(value: Any, where: str) -> list[Any]:
    """The value, if it is a JSON list; else :class:`DataError`."""
    if not isinstance(value, list):
        raise DataError(f"{where}: a list is expected, not {_kind(value)}.")
    return value


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "a truth value", type(None): "nothing"}
    return kinds.get(type(value), "a number")


@contextmanager
def replacing(path: Path) -> Iterator[IO[str]]:
    """A text file that takes its place in one step if the block ends well, and else leaves nothing."""
    with replacing_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        yield file


@contextmanager
def replacing_path(path: Path) -> Iterator[Path]:
    """The path of an empty file, which takes its place in one step if the block ends well, and else leaves nothing."""
    try:
        with atomic.replacing(Path(path)) as temporary:
            yield temporary
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}; choose another place.") from None


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """A folder that appears in one step; nothing that exists is replaced."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise DataError(f"{path} exists already; choose another folder.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}.") from None
    try:
        yield temporary
        temporary.chmod(0o755)
        os.replace(temporary, path)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def json_text(value: Any) -> str:
    """JSON that people can read, in Unicode; escaped where a lone surrogate has no UTF-8."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines to a file, in one step."""
    with replacing(path) as file:
        for line in lines:
            file.write(line + "\n")
