"""Formats by name, and which one a file is in."""

from __future__ import annotations

import functools
import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.formats import Documents, conll, docbin, huggingface, jsonl, matrix, wrench
from pyro_chmm.data.labels import ABSTAIN, O
from pyro_chmm.errors import DataError

Posteriors = Sequence[NDArray[np.floating]]


@dataclass(frozen=True)
class Format:
    """How a format is read and written.

    ``suffix`` is that of the files written; ``lost`` says what is not written.
    """

    name: str
    suffix: str
    read: Callable[[Path], Documents]
    write: Callable[[Path, Corpus, Posteriors | None], None]
    lost: str = ""


_META = "names of LFs and types, unless meta.json beside the file has them"
FORMATS: dict[str, Format] = {
    item.name: item
    for item in (
        Format("wrench", ".json", wrench.read, wrench.write, _META),
        Format("wrench-bio", ".json", wrench.read, functools.partial(wrench.write, layout="bio"), _META),
        Format("conll", ".conll", conll.read, conll.write),
        Format("docbin", ".spacy", docbin.read, docbin.write),
        Format("jsonl", ".jsonl", jsonl.read, jsonl.write),
        Format("matrix", ".npz", matrix.read, matrix.write),
        Format("hf", "", huggingface.read, huggingface.write),
    )
}
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".conll": "conll",
    ".tsv": "conll",
    ".bio": "conll",
    ".iob": "conll",
    ".iob2": "conll",
    ".spacy": "docbin",
    ".npz": "matrix",
}
SPLIT_SUFFIXES = (".json", *_SUFFIXES)
"""Suffixes of files that may be a split of a data set in a folder."""
_HEAD = 1 << 16


def find_format(name: str) -> Format:
    """A format by name; :class:`DataError` for an unknown one, naming those there are."""
    if name not in FORMATS:
        raise DataError(f"There is no format {name!r}; the formats are {', '.join(FORMATS)}.")
    return FORMATS[name]


def format_to_write(path: Path, name: str | None) -> Format:
    """The format to write a file in: the one named, else the one that the suffix says.

    :raises DataError: for an unknown name, or a suffix that says nothing.
    """
    if name is not None:
        return find_format(name)
    by_suffix = {".json": "wrench", **_SUFFIXES}
    if path.suffix not in by_suffix:
        known = ", ".join(f"{suffix} ({form})" for suffix, form in by_suffix.items())
        raise DataError(f"{path}: {path.suffix or 'no suffix'} says no format; name one with --to or --format, or use {known}.")
    return FORMATS[by_suffix[path.suffix]]


def detect(path: Path) -> Format:
    """The format of a file or folder, by its suffix where that says it, else by its content.

    :raises DataError: if it cannot be read.
    """
    if path.is_dir():
        return FORMATS["hf"]
    if path.suffix in _SUFFIXES:
        return FORMATS[_SUFFIXES[path.suffix]]
    if not path.is_file():
        raise DataError(f"{path} cannot be read: No such file or directory.")
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None
    if path.suffix == ".json":
        return FORMATS["jsonl" if _is_json_line(head) else "wrench"]
    if head.startswith(b"PK"):
        return FORMATS["matrix"]
    if _is_compressed(head):
        return FORMATS["docbin"]
    if not head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"[")):
        return FORMATS["conll"]
    return FORMATS["jsonl" if _is_json_line(head) else "wrench"]


def _is_compressed(head: bytes) -> bool:
    try:
        return bool(zlib.decompressobj().decompress(head, 16))
    except zlib.error:
        return False


def _is_json_line(head: bytes) -> bool:
    """Whether the first line that is not blank is a document, and not the start of Wrench's one object."""
    text = head.decode("utf-8-sig", "replace").lstrip()
    line, _, rest = text.partition("\n")
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):  # longer than the head, for one
        return not rest and line.startswith(('{"id":', '{"tokens":', '{"text":'))
    keys = {"text": str, "tokens": list, "lf_names": list, "entity_types": list, "coarse_types": list}
    return isinstance(value, dict) and any(isinstance(value.get(key), kind) for key, kind in keys.items())


def has_content(path: Path) -> bool:
    """Whether a folder is itself a data set (of the format hf), and not one with a file for each split."""
    return any((path / name).is_file() for name in ("dataset_info.json", "dataset_dict.json"))


def write_labels(
    path: Path, corpus: Corpus, ids: NDArray[np.integer], posteriors: Iterable[NDArray[np.floating]], form: Format
) -> None:
    """Write tokens, labels found and their posterior, in one step: the labels are where a corpus has its gold ones.

    :param ids: (N,) labels.
    :param posteriors: for each document (T, L) probabilities; JSON lines are written as they come.
    """
    if form.name == "jsonl":
        jsonl.write_predictions(path, corpus, ids, posteriors)
        return
    form.write(path, labelled(corpus, ids), list(posteriors))


def labelled(corpus: Corpus, ids: NDArray[np.integer]) -> Corpus:
    """The documents with labels in the place of gold ones, and without LFs."""
    none = np.zeros((corpus.num_tokens, 0), np.int16)
    return Corpus(
        corpus.label_set,
        (),
        corpus.tokens,
        corpus.offsets,
        none,
        np.where(np.asarray(ids) == ABSTAIN, O, ids).astype(np.int16),
        corpus.document_ids,
    )
