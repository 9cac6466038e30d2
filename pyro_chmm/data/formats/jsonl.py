"""One document a line, as JSON: what ``predict`` writes, and a corpus that can say "abstain".

``{"id": "0", "tokens": [...], "labels": [...], "posterior": [...], "weak_labels": {...}}``, all but
``tokens`` optional:

* ``labels``: T BIO names, or spans; read as the gold labels;
* ``posterior``: for each token the labels' probabilities, ``{"O": 0.9, "B-X": 0.1}``; those that round to 0
  are left out;
* ``weak_labels``: for each LF, by name, a list of ``[start, end, type]`` (O outside them), or T BIO names
  with null where it abstains, or null if it abstains on the whole document;
* ``text``: with it, a span may be ``{"start": 0, "end": 4, "label": "PER"}``, in characters of the text. A document with a text and
  no ``tokens`` is cut into words and punctuation marks, and all its offsets are in characters. A span that cuts a token is widened
  to whole tokens; how many were is reported.

A first line without tokens or text may declare what the documents do not show: ``{"lf_names": [...], "entity_types": [...],
"coarse_types": [...]}``, each optional.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
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
    json_text,
    parse_json,
    read_text,
    write_lines,
)
from pyro_chmm.data.formats.characters import TokenPlaces
from pyro_chmm.data.labels import ABSTAIN, Ids, LabelSet, O
from pyro_chmm.errors import DataError

_log = logging.getLogger(__name__)

_DECLARATIONS = ("lf_names", "entity_types", "coarse_types")
_DIGITS = 6
"""Decimals of a written probability."""


def read(path: Path) -> Documents:
    """Read a file; :class:`DataError` names file, line or document for whatever is wrong."""
    names: list[str] = []
    tokens, golds = [], []
    weak: list[Sequence[Any]] = []
    lf_names: tuple[str, ...] | None = None
    declared: dict[str, tuple[str, ...]] = {}
    widened = 0
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        document = expect_mapping(parse_json(line, path, number), f"{path}, line {number}")
        if not names and not declared and {*document} & {*_DECLARATIONS} and "tokens" not in document and "text" not in document:
            declared = _declarations(document, f"{path}, line {number}")
            lf_names = declared.get("lf_names")
            continue
        name = document.get("id", str(len(names)))
        if not isinstance(name, str):
            raise DataError(f"{path}, line {number}: the 'id' {name!r} is not a string.")
        where = f"{path}: document {name!r}"
        if "text" in document:
            document, cut = _in_tokens(document, where)
            widened += cut
        tokens.append(expect_list(document.get("tokens"), f"{where}, 'tokens'"))
        columns = expect_mapping(document.get("weak_labels", {}), f"{where}, 'weak_labels'")
        if lf_names is None:
            lf_names = tuple(columns)
        if set(lf_names) != set(columns):
            there = ", ".join(columns) or "none"
            raise DataError(
                f"{where}: it has weak labels of the LFs {there}, "
                f"but {f'document {names[0]!r}' if names else 'its first line'} of {', '.join(lf_names) or 'none'}."
            )
        names.append(name)
        weak.append([columns[lf] for lf in lf_names])
        golds.append(document.get("labels"))
    if widened:
        _log.warning("%s: %d spans that cut a token were widened to whole tokens.", path, widened)
    types, coarse = declared.get("entity_types", ()), declared.get("coarse_types", ())
    return Documents(path, names, tokens, weak, collect_gold(golds, names, path), lf_names or (), types, coarse)


def _declarations(line: Mapping[str, Any], where: str) -> dict[str, tuple[str, ...]]:
    result = {}
    for key in (key for key in _DECLARATIONS if key in line):
        values = expect_list(line[key], f"{where}, {key!r}")
        if not all(isinstance(value, str) for value in values):
            raise DataError(f"{where}, {key!r}: a list of names is expected.")
        result[key] = tuple(values)
    return result


def _in_tokens(document: Mapping[str, Any], where: str) -> tuple[dict[str, Any], int]:
    """A document with a text, all its offsets in tokens, and how many spans were widened."""
    text, given = document["text"], document.get("tokens")
    if not isinstance(text, str):
        raise DataError(f"{where}: its 'text' must be a string.")
    columns = expect_mapping(document.get("weak_labels", {}), f"{where}, 'weak_labels'")
    everything = [*columns.values(), document.get("labels")]
    if given is not None and not any(type(entry) is dict for column in everything if type(column) is list for entry in column):
        return dict(document), 0
    places = TokenPlaces(text, None if given is None else expect_list(given, f"{where}, 'tokens'"), where)

    def converted(column: Any) -> Any:
        return [_span(entry, places, given is None) for entry in column] if isinstance(column, list) else column

    result: dict[str, Any] = {**document, "tokens": places.tokens}
    result["weak_labels"] = {lf: converted(column) for lf, column in columns.items()}
    result["labels"] = converted(document.get("labels"))
    return result, places.widened


def _span(entry: Any, places: TokenPlaces, characters: bool) -> Any:
    if isinstance(entry, dict):
        return places.span(entry.get("start"), entry.get("end"), entry.get("label"))
    return places.span(*entry) if characters and isinstance(entry, list) and len(entry) == 3 else entry


def write_predictions(
    path: Path,
    corpus: Corpus,
    label_ids: NDArray[np.integer],
    posteriors: Iterable[NDArray[np.floating]] | None = None,
) -> None:
    """Write tokens, labels and posteriors, one document a line, in one step: all of it or nothing.

    :param label_ids: (N,) predicted labels.
    :param posteriors: for each document (T, L) probabilities; one is asked for at a time.
    :raises DataError: if a shape does not fit, or the file cannot be written.
    """
    if np.shape(label_ids) != (corpus.num_tokens,):
        raise DataError(f"There are labels of shape {np.shape(label_ids)} for {corpus.num_tokens} tokens.")
    found = None if posteriors is None else iter(posteriors)

    def lines() -> Iterator[str]:
        for number in range(corpus.num_documents):
            document = _document(corpus, number)
            document["labels"] = [corpus.label_set.name(id) for id in label_ids[corpus.document_slice(number)].tolist()]
            if found is not None:
                posterior = next(found, None)
                if posterior is None:
                    raise DataError(f"There are {number} posteriors for {corpus.num_documents} documents.")
                document["posterior"] = _posterior(corpus, number, posterior)
            yield json_text(document)

    write_lines(path, lines())


def write(
    path: Path, corpus: Corpus, posteriors: Sequence[NDArray[np.floating]] | None = None, *, declare: bool = True
) -> None:
    """Write a corpus with all that it holds, one document a line, in one step.

    :param declare: write a first line where the documents do not show all; a ``meta.json`` beside the file does as well.
    """
    declarations = _first_line(corpus) if declare else []
    write_lines(path, chain(map(json_text, declarations), document_lines(corpus, posteriors)))


def document_lines(corpus: Corpus, posteriors: Sequence[NDArray[np.floating]] | None = None) -> Iterator[str]:
    """The documents as they are written, a line each."""
    for number in range(corpus.num_documents):
        document, span = _document(corpus, number), corpus.document_slice(number)
        if corpus.gold is not None:
            document["labels"] = [corpus.label_set.names[id] for id in corpus.gold[span].tolist()]
        if posteriors is not None:
            document["posterior"] = _posterior(corpus, number, posteriors[number])
        document["weak_labels"] = {
            lf: _column(ids, corpus.observed_set)
            for lf, ids in zip(corpus.lf_names, corpus.observed_labels[span].T, strict=True)
        }
        yield json_text(document)


def _first_line(corpus: Corpus) -> list[dict[str, Sequence[str]]]:
    """What the documents do not show, if there is anything: names in another order than that of their kind, or unused."""
    line: dict[str, Sequence[str]] = {}
    used = {*np.unique((corpus.weak_labels[corpus.weak_labels > 0] - 1) // 2).tolist()}
    if corpus.gold is not None:
        used |= {*np.unique((corpus.gold[corpus.gold > 0] - 1) // 2).tolist()}
    types = corpus.label_set.entity_types
    if types != tuple(sorted(types)) or len(used) < len(types):
        line["entity_types"] = types
    if corpus.coarse_types:
        line["coarse_types"] = corpus.coarse_types
    if not corpus.num_documents:
        line["lf_names"] = corpus.lf_names
    return [line] if line else []


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
