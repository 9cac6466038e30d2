"""CoNLL columns: a token a line, then one label column for each LF, then gold labels if any; a blank line ends a document.

::

    # lfs: dictionary, regex
    # id: review-7
    Anna    B-PER   O   B-PER
    Lee     I-PER   -   I-PER

Columns are separated by tabs, or by any white space in a file without tabs. ``-`` is an abstention. Before the first token,
comments may name things: ``# lfs:`` (their number says whether there is a gold column after them), ``# types:`` (the entity types,
in the order of their ids), ``# coarse:`` (see :mod:`pyro_chmm.data.coarse`), ``# posterior:`` (labels whose probabilities follow in
as many last columns). ``# id:`` names a document. Names are separated by commas, or a JSON list. Other comments, and
``-DOCSTART-`` lines, are skipped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.formats import Documents, expect_list, parse_json, read_text, write_lines
from pyro_chmm.errors import DataError

ABSTENTION = "-"
_COMMENT = re.compile(r"# *([A-Za-z][\w. ]*?)\s*[:=]\s*([^\t]*)$")
_LISTS = ("lfs", "types", "coarse", "posterior")
_SPACE = re.compile(r"\s")


@dataclass
class _File:
    """What has been read so far."""

    path: Path
    lists: dict[str, tuple[str, ...]] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    documents: list[list[list[str]]] = field(default_factory=list)  # [document][token][column]
    lines: list[int] = field(default_factory=list)  # where each document starts

    def start(self, name: str | None, line: int) -> None:
        self.names.append(str(len(self.names)) if name is None else name)
        self.documents.append([])
        self.lines.append(line)


def read(path: Path, columns: Sequence[str] | None = None) -> Documents:
    """Read a file.

    :param columns: what the columns after the token are: names of LFs, and ``gold`` for gold labels; those called ``_`` are
        skipped. None: what the file's own ``# lfs:`` says, else LF0, LF1, ... and no gold column.
    :raises DataError: with file and line, for whatever is wrong.
    """
    file = _parse(path, read_text(path))
    width = next((len(row) for rows in file.documents for row in rows), None)
    _check_widths(file, width)
    lfs, lf_places, gold_place = _roles(file, columns, width)
    tokens = [[row[0] for row in rows] for rows in file.documents]
    weak = [[[None if row[p] == ABSTENTION else row[p] for row in rows] for p in lf_places] for rows in file.documents]
    gold = None if gold_place is None else [[row[gold_place] for row in rows] for rows in file.documents]
    types, coarse = file.lists.get("types", ()), file.lists.get("coarse", ())
    return Documents(path, file.names, list(tokens), list(weak), gold, lfs, types, coarse)


def _parse(path: Path, text: str) -> _File:
    file, is_open = _File(path), False
    split_at = "\t" if "\t" in text else None
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.removesuffix("\r")
        if line.startswith("#") and (comment := _COMMENT.match(line)):
            key, value = comment.group(1), comment.group(2)
            if key in _LISTS:
                if file.documents:
                    raise DataError(f"{path}, line {number}: '# {key}:' must come before the first document.")
                file.lists[key] = _names(value, path, number)
            elif key == "id":
                file.start(_name(value, path, number), number)
                is_open = True
        elif "\t" not in line and not line.strip():
            is_open = False
        elif not line.startswith("-DOCSTART-"):
            if not is_open:
                file.start(None, number)
                is_open = True
            file.documents[-1].append(line.split(split_at))
    return file


def _names(value: str, path: Path, line: int) -> tuple[str, ...]:
    if not value.startswith("["):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    names = expect_list(parse_json(value, path, line), f"{path}, line {line}")
    if not all(isinstance(name, str) for name in names):
        raise DataError(f"{path}, line {line}: a list of names is expected, not {value}.")
    return tuple(names)


def _name(value: str, path: Path, line: int) -> str:
    if not value.startswith('"'):
        return value
    name = parse_json(value, path, line)
    return name if isinstance(name, str) else value


def _check_widths(file: _File, width: int | None) -> None:
    for first, rows in zip(file.lines, file.documents, strict=True):
        for place, row in enumerate(rows):
            if len(row) != width:
                raise DataError(
                    f"{file.path}, in the document at line {first}, token {place}: {len(row)} columns, where the file's first "
                    f"token has {width}."
                )


def _roles(
    file: _File, columns: Sequence[str] | None, width: int | None
) -> tuple[tuple[str, ...], list[int], int | None]:
    """The LFs' names, their columns, and the gold column."""
    extra = len(file.lists.get("posterior", ()))
    if columns is not None:
        if width is not None and width - 1 - extra != len(columns):
            beside = width - 1 - extra
            raise DataError(f"{file.path}: there are {beside} columns beside the tokens, but {len(columns)} names for them.")
        places = {name: place for place, name in enumerate(columns, start=1) if name not in ("gold", "_")}
        return tuple(places), list(places.values()), columns.index("gold") + 1 if "gold" in columns else None
    beside = 0 if width is None else width - 1 - extra
    lfs = file.lists.get("lfs", tuple(f"LF{number}" for number in range(beside)))
    if width is not None and beside - len(lfs) not in (0, 1):
        raise DataError(
            f"{file.path}: there are {beside} columns beside the tokens, but '# lfs:' names {len(lfs)} LFs; expected one column "
            "for each, and at most a gold column after them."
        )
    has_gold = beside > len(lfs)
    return lfs, list(range(1, len(lfs) + 1)), len(lfs) + 1 if has_gold else None


def write(path: Path, corpus: Corpus, posteriors: Sequence[NDArray[np.floating]] | None = None) -> None:
    """Write a corpus, in one step.

    :param posteriors: for each document (T, L) probabilities, as more columns.
    :raises DataError: for a token with a tab or a line break, which columns cannot hold, or other text that has no UTF-8.
    """
    single = corpus.num_lfs == 0 and corpus.gold is None and posteriors is None
    for name, document in zip(corpus.document_ids, corpus.tokens, strict=True):
        for place, token in enumerate(document):
            if any(mark in token for mark in "\t\n\r") or (single and (not token or _SPACE.search(token) or _COMMENT.match(token))):
                raise DataError(
                    f"{path}: document {name!r}, token {place}: {token!r} would break its line into other columns; "
                    "write JSON lines."
                )
            if token.startswith("-DOCSTART-"):
                raise DataError(f"{path}: document {name!r}, token {place}: {token!r} has a meaning here; write JSON lines.")
    try:
        write_lines(path, _lines(corpus, posteriors))
    except UnicodeEncodeError as error:
        raise DataError(f"{path}: {error.object[error.start]!r} in a token has no UTF-8; write JSON lines.") from None


def _lines(corpus: Corpus, posteriors: Sequence[NDArray[np.floating]] | None) -> Iterator[str]:
    lists = {"lfs": corpus.lf_names, "types": corpus.label_set.entity_types, "coarse": corpus.coarse_types}
    if posteriors is not None:
        lists["posterior"] = corpus.label_set.names
    for key, names in lists.items():
        if names or key == "lfs":
            plain = all(re.fullmatch(r"[^\s,\[\x00-\x1f][^,\s]*", name) and name.isprintable() for name in names)
            yield f"# {key}: {', '.join(names) if plain else json.dumps(list(names))}"
    labels = [*corpus.observed_set.names, ABSTENTION]  # -1 reaches the last
    for number, name in enumerate(corpus.document_ids):
        plain = bool(re.fullmatch(r"[^\s\"].*(?<!\s)", name)) and name.isprintable()
        yield f"# id: {name if plain else json.dumps(name)}"
        span = corpus.document_slice(number)
        for place, (token, ids) in enumerate(zip(corpus.tokens[number], corpus.observed_labels[span].tolist(), strict=True)):
            row = [token, *(labels[id] for id in ids)]
            if corpus.gold is not None:
                gold = int(corpus.gold[span][place])
                row.append(corpus.label_set.names[gold])
            if posteriors is not None:
                row += [f"{value:.6f}" for value in posteriors[number][place]]
            yield "\t".join(row)
        yield ""
