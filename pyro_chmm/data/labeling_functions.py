"""Labeling functions in Python: a function from a document's tokens to spans, dictionaries and regular expressions.

>>> @labeling_function()
... def capitals(tokens):
...     return [(i, i + 1, "NAME") for i, token in enumerate(tokens) if token.istitle()]
>>> cities = dictionary_matcher("cities", {"LOC": ["Oslo", "New York"]})
>>> corpus = apply_lfs([["in", "New", "York"]], [capitals, cities], entity_types=["NAME", "LOC"])

For more, there are spaCy and skweak, whose documents are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyro_chmm import progress
from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.labels import Span
from pyro_chmm.errors import DataError

Spans = Iterable[Span] | None


@dataclass(frozen=True)
class LabelingFunction:
    """A function from a document's tokens to spans (first token, one past the last, type), with a name.

    Tokens outside the spans are O. None: the LF abstains on the document.
    """

    name: str
    function: Callable[[Sequence[str]], Spans]

    def __call__(self, tokens: Sequence[str]) -> Spans:
        """The spans in one document, or None."""
        return self.function(tokens)


def labeling_function(name: str | None = None) -> Callable[[Callable[[Sequence[str]], Spans]], LabelingFunction]:
    """Make a labeling function of a function; it is called like the function unless a name is given."""

    def decorate(function: Callable[[Sequence[str]], Spans]) -> LabelingFunction:
        return LabelingFunction(name or function.__name__, function)

    return decorate


def dictionary_matcher(
    name: str,
    entries: Mapping[str, Iterable[str]],
    *,
    ignore_case: bool = False,
    split: Callable[[str], list[str]] = str.split,
) -> LabelingFunction:
    """Finds the entries of a dictionary, the longest at each place, from left to right.

    :param entries: for each entity type its names.
    :param split: cuts a name into tokens, as the documents are cut.
    :raises DataError: for an entry without a token, or one that has two types.
    """

    def key(tokens: Iterable[str]) -> tuple[str, ...]:
        return tuple(token.casefold() for token in tokens) if ignore_case else tuple(tokens)

    types: dict[tuple[str, ...], str] = {}
    for kind, names in entries.items():
        for entry in names:
            words = key(split(entry))
            if not words:
                raise DataError(f"LF {name!r}: the entry {entry!r} of {kind} has no token.")
            if types.setdefault(words, kind) != kind:
                raise DataError(f"LF {name!r}: the entry {entry!r} is in {types[words]} and in {kind}; keep one.")
    lengths = sorted({len(words) for words in types}, reverse=True)

    def match(tokens: Sequence[str]) -> list[Span]:
        words, place, found = key(tokens), 0, []
        while place < len(words):
            length = next((n for n in lengths if words[place : place + n] in types), 0)
            if length:
                found.append((place, place + length, types[words[place : place + length]]))
            place += max(length, 1)
        return found

    return LabelingFunction(name, match)


def regex_matcher(name: str, pattern: str | re.Pattern[str], entity_type: str) -> LabelingFunction:
    """Finds a regular expression in the tokens, joined by single spaces; a match in the middle of a token marks all of it.

    :raises DataError: for a pattern that is no regular expression.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise DataError(f"LF {name!r}: {pattern!r} is no regular expression: {error}.") from None

    def match(tokens: Sequence[str]) -> list[Span]:
        starts, position = [], 0
        for token in tokens:
            starts.append(position)
            position += len(token) + 1
        found: list[Span] = []
        for hit in compiled.finditer(" ".join(tokens)):
            inside = [i for i, start in enumerate(starts) if start < hit.end() and start + len(tokens[i]) > hit.start()]
            if inside:
                found.append((inside[0], inside[-1] + 1, entity_type))
        return found

    return LabelingFunction(name, match)


def apply_lfs(
    documents: Sequence[Sequence[str]],
    lfs: Sequence[LabelingFunction],
    *,
    entity_types: Sequence[str],
    document_ids: Sequence[str] | None = None,
    coarse_types: Sequence[str] = (),
) -> Corpus:
    """The corpus of what labeling functions say about documents; shows progress on the command line.

    :param documents: the tokens of each.
    :param coarse_types: see :mod:`pyro_chmm.data.coarse`.
    :raises DataError: where an LF fails or returns what are no spans, naming LF and document.
    """
    for lf in lfs:
        if not isinstance(lf, LabelingFunction):
            raise DataError(f"{lf!r} is no labeling function; put @labeling_function() before it.")
    weak: list[list[list[Span] | None]] = []
    with progress.task("labeling", total=len(documents), unit="documents") as advance:
        for number, tokens in enumerate(documents):
            weak.append([_apply(lf, tokens, number) for lf in lfs])
            advance()
    return Corpus.from_spans(
        documents, weak, entity_types, [lf.name for lf in lfs], document_ids=document_ids, coarse_types=coarse_types
    )


def _apply(lf: LabelingFunction, tokens: Sequence[str], number: int) -> list[Span] | None:
    try:
        spans = lf(tokens)
        return None if spans is None else list(spans)
    except Exception as error:
        raise DataError(f"LF {lf.name!r} failed on document number {number}: {type(error).__name__}: {error}.") from error
