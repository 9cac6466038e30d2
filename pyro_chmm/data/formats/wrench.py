"""Wrench's JSON: one object of documents, in the order of the file.

Two layouts share the file names and are told apart by content:

* spans (the authors of Sparse-CHMM): ``weak_labels[lf]`` is a list of ``[start, end, type]``, and so is
  ``label``;
* BIO (Wrench): ``weak_labels[token][lf]`` is a label's name, and ``label[token]`` too.

In both, ``data.text`` is the list of words, and an LF that marks nothing at a token says O there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.formats import (
    Documents,
    collect_gold,
    expect_list,
    expect_mapping,
    json_text,
    parse_json,
    read_text,
    write_lines,
)
from pyro_chmm.data.labels import ABSTAIN, Ids, LabelSet, find_spans
from pyro_chmm.errors import DataError


def read(path: Path) -> Documents:
    """Read a file of either layout; :class:`DataError` names file and document for whatever is wrong."""
    content = expect_mapping(parse_json(read_text(path), path), str(path))
    names, tokens, golds = list(content), [], []
    weak: list[Sequence[Any]] = []
    for name, document in content.items():
        where = f"{path}: document {name!r}"
        fields = expect_mapping(document, where)
        for key in ("data", "weak_labels"):
            if key not in fields:
                raise DataError(f"{where}: it has no {key!r}.")
        data = expect_mapping(fields["data"], f"{where}, 'data'")
        tokens.append(expect_list(data.get("text"), f"{where}, 'data', 'text'"))
        weak.append(expect_list(fields["weak_labels"], f"{where}, 'weak_labels'"))
        golds.append(fields.get("label"))
    if any(_is_row(entry) for entries in weak for entry in entries):
        weak = _columns_of_rows(weak, tokens, names, path)
    for name, columns in zip(names, weak, strict=True):
        if len(columns) != len(weak[0]):
            raise DataError(
                f"{path}: document {name!r} has weak labels of {len(columns)} LFs, "
                f"but document {names[0]!r} of {len(weak[0])}."
            )
    return Documents(path, names, tokens, weak, collect_gold(golds, names, path), None)


def _is_row(entry: Any) -> bool:
    """Whether an entry of ``weak_labels`` is a token's labels, by name, and not an LF's spans."""
    return isinstance(entry, list) and bool(entry) and (entry[0] is None or isinstance(entry[0], str))


def _columns_of_rows(
    weak: list[Sequence[Any]], tokens: list[list[Any]], names: list[str], path: Path
) -> list[Sequence[Any]]:
    """From ``[token][lf]`` to ``[lf][token]``; a document without tokens has as many LFs as the others."""
    num_lfs = max(len(row) for rows in weak for row in rows if isinstance(row, list))
    result: list[Sequence[Any]] = []
    for name, words, rows in zip(names, tokens, weak, strict=True):
        where = f"{path}: document {name!r}"
        if len(rows) != len(words):
            raise DataError(f"{where}: it has weak labels for {len(rows)} tokens, but {len(words)} tokens.")
        for place, row in enumerate(rows):
            if not isinstance(row, list) or len(row) != num_lfs:
                given = f"{len(row)} labels" if isinstance(row, list) else repr(row)
                raise DataError(
                    f"{where}, token {place}: {num_lfs} LFs label the file's tokens, but here are {given}."
                )
        result.append(
            [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(num_lfs)]
        )
    return result


def write(
    path: Path,
    corpus: Corpus,
    posteriors: Sequence[NDArray[np.floating]] | None = None,
    layout: Literal["spans", "bio"] = "spans",
) -> None:
    """Write a corpus, without its LF names and types (those are ``meta.json``'s), in one step.

    :param posteriors: for each document (T, L) probabilities, under the key ``posterior``, in the order of the label set.

    :raises DataError: if an LF abstains anywhere, which these layouts cannot say.
    """
    if (corpus.observed_labels == ABSTAIN).any():
        raise DataError(
            f"{path}: Wrench's JSON has no way to say that an LF abstains; write a .jsonl file instead."
        )
    columns = [(corpus.observed_labels[:, place], corpus.observed_set) for place in range(corpus.num_lfs)]
    if corpus.gold is not None:
        columns.append((corpus.gold, corpus.label_set))
    by_column = [(_spans if layout == "spans" else _labels)(corpus, ids, label_set) for ids, label_set in columns]
    lines = []
    for number, name in enumerate(corpus.document_ids):
        entries = [column[number] for column in by_column]
        document: dict[str, Any] = {"data": {"text": list(corpus.tokens[number])}}
        if corpus.gold is not None:
            document["label"] = entries.pop()
        if posteriors is not None:
            document["posterior"] = np.asarray(posteriors[number], np.float64).round(6).tolist()
        document["weak_labels"] = entries if layout == "spans" else list(zip(*entries, strict=True))
        lines.append(f"{json.dumps(name)}: {json_text(document)}")
    write_lines(path, ["{", ",\n".join(lines), "}"])


def _spans(corpus: Corpus, ids: Ids, label_set: LabelSet) -> list[list[Any]]:
    """``[start, end, type]`` of every document."""
    found = find_spans(ids, corpus.offsets)
    result: list[list[Any]] = [[] for _ in corpus.document_ids]
    for start, end, kind in zip(*(column.tolist() for column in found), strict=True):
        document = corpus.document_index[start]
        base = corpus.offsets[document]
        result[document].append([int(start - base), int(end - base), label_set.entity_types[kind]])
    return result


def _labels(corpus: Corpus, ids: Ids, label_set: LabelSet) -> list[list[Any]]:
    """Label names of every document."""
    names = [label_set.names[id] for id in ids.tolist()]
    return [names[corpus.document_slice(number)] for number in range(corpus.num_documents)]
