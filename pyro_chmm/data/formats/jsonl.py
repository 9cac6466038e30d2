"""One document a line, as JSON: what ``predict`` writes, and a corpus that can say "abstain".

``{"id": "0", "tokens": [...], "labels": [...], "posterior": [...], "weak_labels": {...}}``, all but
``tokens`` optional:

* ``labels``: T BIO names; read as the gold labels;
* ``posterior``: for each token the labels' probabilities, ``{"O": 0.9, "B-X": 0.1}``; those that round to 0
  are left out;
* ``weak_labels``: for each LF, by name, a list of ``[start, end, type]`` (O outside them), or T BIO names
  with null where it abstains, or null if it abstains on the whole document.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.formats import (
    Documents,
    collect_gold,
    expect_list,
    expect_mapping,
    parse_json,
    read_text,
    write_lines,
)
from pyro_chmm.data.labels import ABSTAIN, Ids, LabelSet, O
from pyro_chmm.errors import DataError

_DIGITS = 6
"""Decimals of a written probability."""


def read(path: Path) -> Documents:
    """Read a file; :class:`DataError` names file, line or document for whatever is wrong."""
    names: list[str] = []
    tokens, golds = [], []
    weak: list[Sequence[Any]] = []
    lf_names: tuple[str, ...] | None = None
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        document = expect_mapping(parse_json(line, path, number), f"{path}, line {number}")
        name = document.get("id", str(len(names)))
        if not isinstance(name, str):
            raise DataError(f"{path}, line {number}: the 'id' {name!r} is not a string.")
        where = f"{path}: document {name!r}"
        tokens.append(expect_list(document.get("tokens"), f"{where}, 'tokens'"))
        columns = expect_mapping(document.get("weak_labels", {}), f"{where}, 'weak_labels'")
        if lf_names is None:
            lf_names = tuple(columns)
        if set(lf_names) != set(columns):
            there = ", ".join(columns) or "none"
            raise DataError(
                f"{where}: it has weak labels of the LFs {there}, "
                f"but document {names[0]!r} of {', '.join(lf_names) or 'none'}."
            )
        names.append(name)
        weak.append([columns[lf] for lf in lf_names])
        golds.append(document.get("labels"))
    return Documents(path, names, tokens, weak, collect_gold(golds, names, path), lf_names or ())


def write_predictions(
    path: Path,
    corpus: Corpus,
    label_ids: NDArray[np.integer],
    posteriors: Sequence[NDArray[np.floating]] | None = None,
) -> None:
    """Write tokens, labels and posteriors, one document a line, in one step: all of it or nothing.

    :param label_ids: (N,) predicted labels.
    :param posteriors: for each document (T, L) probabilities.
    :raises DataError: if a shape does not fit, or the file cannot be written.
    """
    if np.shape(label_ids) != (corpus.num_tokens,):
        raise DataError(f"There are labels of shape {np.shape(label_ids)} for {corpus.num_tokens} tokens.")
    if posteriors is not None and len(posteriors) != corpus.num_documents:
        raise DataError(f"There are {len(posteriors)} posteriors for {corpus.num_documents} documents.")
    names = [corpus.label_set.name(id) for id in label_ids.tolist()]

    def lines() -> Iterator[str]:
        for number in range(corpus.num_documents):
            document = _document(corpus, number)
            document["labels"] = names[corpus.document_slice(number)]
            if posteriors is not None:
                document["posterior"] = _posterior(corpus, number, posteriors[number])
            yield json.dumps(document, ensure_ascii=False)

    write_lines(path, lines())


def write(path: Path, corpus: Corpus) -> None:
    """Write a corpus with all that it holds, one document a line, in one step."""
    lines = []
    for number in range(corpus.num_documents):
        document, span = _document(corpus, number), corpus.document_slice(number)
        if corpus.gold is not None:
            document["labels"] = [corpus.label_set.names[id] for id in corpus.gold[span].tolist()]
        document["weak_labels"] = {
            lf: _column(ids, corpus.label_set)
            for lf, ids in zip(corpus.lf_names, corpus.weak_labels[span].T, strict=True)
        }
        lines.append(json.dumps(document, ensure_ascii=False))
    write_lines(path, lines)


def _document(corpus: Corpus, number: int) -> dict[str, Any]:
    return {"id": corpus.document_ids[number], "tokens": list(corpus.tokens[number])}


def _column(ids: Ids, label_set: LabelSet) -> Sequence[Any] | None:
    """A column as it is written: as spans if they say it all, else as names, with null for an abstention."""
    if len(ids) and (ids == ABSTAIN).all():
        return None
    spans = label_set.decode_spans(ids)
    if sum(end - start for start, end, _ in spans) == (ids != O).sum():
        return spans
    return [None if id == ABSTAIN else label_set.names[id] for id in ids.tolist()]


def _posterior(corpus: Corpus, number: int, probabilities: NDArray[np.floating]) -> list[dict[str, float]]:
    shape = (len(corpus.tokens[number]), len(corpus.label_set))
    if np.shape(probabilities) != shape:
        name = corpus.document_ids[number]
        raise DataError(
            f"Document {name!r} has a posterior of shape {np.shape(probabilities)}; {shape} is needed."
        )
    rounded = np.asarray(probabilities, np.float64).round(_DIGITS)
    result: list[dict[str, float]] = [{} for _ in range(shape[0])]
    tokens, labels = np.nonzero(rounded)
    for token, label, value in zip(
        tokens.tolist(), labels.tolist(), rounded[tokens, labels].tolist(), strict=True
    ):
        result[token][corpus.label_set.names[label]] = value
    return result
