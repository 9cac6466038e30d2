"""A dense matrix of labels in NumPy's ``.npz``, as label models for classification take it.

* ``tokens``: (N,) text; ``offsets``: (B + 1,) whole numbers, document m is the tokens ``offsets[m]`` to ``offsets[m + 1]``;
* ``labels``: (N, K) whole numbers, -1 where an LF abstains;
* ``label_names``: what the numbers mean: ``["O", "B-PER", "I-PER", ...]``, in any order, or types without prefixes
  (``["O", "PER", ...]``), of which neighbours are taken for one entity;
* optional: ``lf_names`` (K,), ``gold`` (N,), ``document_ids`` (B,), ``entity_types`` (E,) in the order of their ids,
  ``coarse_types`` (see :mod:`pyro_chmm.data.coarse`), ``posterior`` (N, L).

No member is ever unpickled, and none leaves the archive.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.formats import MAX_BYTES, Documents, read_bytes, replacing_path
from pyro_chmm.errors import DataError

_REQUIRED = ("tokens", "offsets", "labels", "label_names")
_KINDS = {"U": "text", "iu": "whole numbers"}
# name -> kind of its entries, number of axes
_MEMBERS = {
    **dict.fromkeys(("tokens", "label_names", "lf_names", "document_ids", "entity_types", "coarse_types"), ("U", 1)),
    **dict.fromkeys(("offsets", "gold"), ("iu", 1)),
    "labels": ("iu", 2),
}


def read(path: Path) -> Documents:
    """Read a file; :class:`DataError` names the member that is missing or does not fit."""
    members = _load(path)
    tokens, offsets, labels = members["tokens"], members["offsets"].astype(np.int64), members["labels"]
    lf_names = members.get("lf_names", np.array([f"LF{number}" for number in range(labels.shape[1])], "U"))
    document_ids = members.get("document_ids", np.array([str(number) for number in range(len(offsets) - 1)], "U"))
    lengths = {"tokens": len(tokens), "labels": len(labels), **({"gold": len(members["gold"])} if "gold" in members else {})}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name!r} has {rows} rows" for name, rows in lengths.items())
        raise DataError(f"{path}: {found}; one for each token is expected.")
    if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(tokens) or (np.diff(offsets) < 0).any():
        raise DataError(f"{path}: 'offsets' must ascend from 0 to the number of tokens, {len(tokens)}.")
    for name, given, expected in (("lf_names", lf_names, labels.shape[1]), ("document_ids", document_ids, len(offsets) - 1)):
        if len(given) != expected:
            raise DataError(f"{path}: {name!r} has {len(given)} names; {expected} are expected.")
    names = [str(name) for name in members["label_names"]]
    columns = [_column(path, labels[:, place], names, offsets, str(lf)) for place, lf in enumerate(lf_names)]
    gold = None if "gold" not in members else _column(path, members["gold"], names, offsets, "gold")
    bounds = list(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
    words = tokens.tolist()
    return Documents(
        path,
        document_ids.tolist(),
        [words[start:end] for start, end in bounds],
        [[column[start:end] for column in columns] for start, end in bounds],
        None if gold is None else [gold[start:end] for start, end in bounds],
        tuple(lf_names.tolist()),
        tuple(members["entity_types"].tolist()) if "entity_types" in members else (),
        tuple(members["coarse_types"].tolist()) if "coarse_types" in members else (),
    )


def _load(path: Path) -> dict[str, NDArray[Any]]:
    """The members that are known, checked for kind and number of axes."""
    content = read_bytes(path)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            sizes = sum(member.file_size for member in archive.infolist())
        if sizes > MAX_BYTES:
            raise DataError(f"{path} unpacks to {sizes:,} bytes; up to {MAX_BYTES:,} are read: split it.")
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            members = {name: np.asarray(archive[name]) for name in _MEMBERS if name in archive.files}
    except DataError:
        raise
    except Exception as error:  # zipfile, zlib and NumPy's header parser raise what they please on damaged bytes
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise DataError(f"{path} is not an .npz file that NumPy can read without pickle ({reason}).") from None
    for name in _REQUIRED:
        if name not in members:
            raise DataError(f"{path} has no {name!r}; expected {', '.join(_REQUIRED)}.")
    for name, array in members.items():
        kind, axes = _MEMBERS[name]
        if (array.dtype.kind not in kind and array.size) or array.ndim != axes:
            expected = f"{_KINDS[kind]} with {axes} axes"
            raise DataError(f"{path}: {name!r} holds {array.dtype} of shape {array.shape}; expected {expected}.")
    return members


def _column(path: Path, ids: NDArray[Any], names: list[str], offsets: NDArray[np.int64], who: str) -> list[str | None]:
    wrong = np.flatnonzero((ids < -1) | (ids >= len(names)))
    if len(wrong):
        document = int(np.searchsorted(offsets, wrong[0], side="right")) - 1
        raise DataError(
            f"{path}: document number {document}, {who!r}, token {wrong[0] - offsets[document]}: {ids[wrong[0]]} is no label; "
            f"'label_names' has {len(names)} names."
        )
    column = [None if id == -1 else names[id] for id in ids.tolist()]
    if any(name[:2] in ("B-", "I-") for name in names):
        return column
    starts = set(offsets.tolist())
    return [
        name if name in (None, "O") else f"{'B' if place in starts or place == 0 or column[place - 1] != name else 'I'}-{name}"
        for place, name in enumerate(column)
    ]


def write(path: Path, corpus: Corpus, posteriors: Sequence[NDArray[np.floating]] | None = None) -> None:
    """Write a corpus, in one step; :class:`DataError` for a text that ends in NUL, which NumPy cuts off."""
    tokens = [token for document in corpus.tokens for token in document]
    texts = {
        "tokens": tokens,
        "document_ids": corpus.document_ids,
        "lf_names": corpus.lf_names,
        "label_names": corpus.observed_set.names,
        "entity_types": corpus.label_set.entity_types,
        "coarse_types": corpus.coarse_types,
    }
    for name, values in texts.items():
        for value in values:
            if value.endswith("\0"):
                raise DataError(f"{path}: {value!r} among the {name} ends in a NUL, which NumPy would cut off; write JSON lines.")
    arrays: dict[str, NDArray[Any]] = {name: np.array(values, "U") for name, values in texts.items()}
    arrays |= {"offsets": corpus.offsets, "labels": corpus.observed_labels}
    if corpus.gold is not None:
        arrays["gold"] = corpus.gold
    if posteriors is not None:
        rows = [np.asarray(part, np.float32) for part in posteriors]
        arrays["posterior"] = np.concatenate([np.zeros((0, len(corpus.label_set)), np.float32), *rows])
    with replacing_path(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
