"""BIO label sets: names and ids, spans and labels, BIO and IO.

Ids are fixed by position: ``O`` is 0, ``B-`` of entity type ``e`` is ``1 + 2 e`` and ``I-`` of it ``2 + 2
e``; an LF that said nothing is :data:`ABSTAIN`, -1. So type, prefix and validity of an id are arithmetic,
and whole corpora are worked on as packed arrays with ``offsets`` of length B + 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyro_chmm.errors import DataError

O = 0  # noqa: E741 - the label's own name
"""Id of the label ``O``, in every label set."""

ABSTAIN = -1
"""Stands for "this LF said nothing about this token"."""

Span = tuple[int, int, str]
"""First token, one past the last token, entity type."""

Ids = NDArray[np.int16]


class PackedSpans(NamedTuple):
    """Spans of packed documents, ordered by start: three arrays of one length, int64."""

    start: NDArray[np.int64]
    """First token, counted from the start of the corpus."""
    end: NDArray[np.int64]
    """One past the last token."""
    type: NDArray[np.int64]
    """Index into ``entity_types``."""


@dataclass(frozen=True)
class LabelSet:
    """The BIO labels of some entity types: ``O, B-X, I-X, B-Y, I-Y, ...``; its length is L = 2 E + 1.

    :param entity_types: names of the E types, in the order that fixes the ids.
    :raises DataError: if there is no type, a name is empty or not a string, or one occurs twice.
    """

    entity_types: tuple[str, ...]

    def __post_init__(self) -> None:
        types = self.entity_types
        if isinstance(types, str) or not isinstance(types, Sequence):
            raise DataError(f"The entity types are {types!r}; a list of names is needed.")
        object.__setattr__(self, "entity_types", tuple(types))
        if not types:
            raise DataError("A label set needs at least one entity type, and none was given.")
        for name in types:
            if not isinstance(name, str) or not name:
                raise DataError(f"An entity type must be a name, but {name!r} is among {list(types)}.")
        if len(set(types)) < len(types):
            twice = next(name for name in types if types.count(name) > 1)
            raise DataError(f"The entity type {twice!r} is listed twice; each may occur once.")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The L label names; their positions are the ids."""
        return ("O", *(prefix + name for name in self.entity_types for prefix in ("B-", "I-")))

    @cached_property
    def ids(self) -> dict[str, int]:
        """Label name to id."""
        return {name: position for position, name in enumerate(self.names)}

    @cached_property
    def types(self) -> dict[str, int]:
        """Entity type to its index."""
        return {name: position for position, name in enumerate(self.entity_types)}

    def __len__(self) -> int:
        return 2 * len(self.entity_types) + 1

    def id(self, name: str) -> int:
        """The id of a label name; :class:`DataError` if the set has no such label."""
        try:
            return self.ids[name]
        except (KeyError, TypeError):
            raise DataError(
                f"{name!r} is not a label of this set; the labels are {', '.join(self.names)}."
            ) from None

    def name(self, id: int) -> str:
        """The name of a label id; :class:`DataError` outside 0 ... L - 1, and so for an abstention."""
        if not 0 <= id < len(self):
            raise DataError(f"{id} is not a label id of this set; the ids are 0 to {len(self) - 1}.")
        return self.names[id]

    def encode_spans(self, spans: Iterable[Span], length: int) -> Ids:
        """Labels of one document from its spans; overlapping ones as in :func:`resolve_overlaps`.

        :param length: number of tokens T.
        :returns: (T,) label ids.
        :raises DataError: for a span outside the document or of a type outside the set.
        """
        checked = []
        for start, end, kind in spans:
            if kind not in self.types:
                raise DataError(
                    f"The span ({start}, {end}, {kind!r}) has a type outside {list(self.entity_types)}."
                )
            if not 0 <= start < end <= length:
                raise DataError(
                    f"The span ({start}, {end}, {kind!r}) is not inside a document of {length} tokens."
                )
            checked.append((start, end, kind))
        ids = np.zeros(length, np.int16)
        for start, end, kind in resolve_overlaps(checked)[0]:
            ids[start:end] = 2 + 2 * self.types[kind]
            ids[start] -= 1
        return ids

    def decode_spans(self, ids: NDArray[np.integer]) -> list[Span]:
        """Spans of one document, strictly: each starts at ``B-X`` and goes on over ``I-X``.

        :param ids: (T,) label ids; abstentions count as O, and so does a stray ``I-X``.
        """
        found = find_spans(ids, np.array([0, len(ids)]))
        names = self.entity_types
        return [(s, e, names[k]) for s, e, k in zip(*(column.tolist() for column in found), strict=True)]

    def repair(self, ids: NDArray[np.integer], offsets: NDArray[np.int64] | None = None) -> Ids:
        """A copy in which each ``I-X`` that follows neither ``B-X`` nor ``I-X`` is ``B-X``.

        :param ids: (N,) label ids of one document, or of several with their ``offsets`` (B + 1,).
        """
        ids = np.asarray(ids, np.int16)
        stray = (ids > 0) & (ids % 2 == 0) & ~_continues(ids, offsets)
        return np.where(stray, ids - 1, ids).astype(np.int16)

    @staticmethod
    def to_io(ids: NDArray[np.integer]) -> Ids:
        """Drop the prefixes, in any shape: O stays 0, ``B-`` and ``I-`` of type e become e + 1, -1 stays."""
        ids = np.asarray(ids)
        return np.where(ids == ABSTAIN, ABSTAIN, (ids + 1) // 2).astype(np.int16)

    @staticmethod
    def from_io(type_ids: NDArray[np.integer], breaks: NDArray[np.int64] | None = None) -> Ids:
        """BIO labels from :meth:`to_io`'s ids: adjacent tokens of one type become one span.

        :param type_ids: (N,) 0 for O, e + 1 for type e, -1 for an abstention (kept).
        :param breaks: tokens at which a new span must start, such as the documents' ``offsets``.
        """
        type_ids = np.asarray(type_ids, np.int16)
        first = np.ones(len(type_ids), bool)
        first[1:] = type_ids[1:] != type_ids[:-1]
        if breaks is not None:
            first[breaks[breaks < len(first)]] = True
        return np.where(type_ids > 0, 2 * type_ids - first, type_ids).astype(np.int16)

    @cached_property
    def allowed_transitions(self) -> NDArray[np.bool_]:
        """(L, L) bool, (from, to): whether BIO allows it. Only ``B-X`` and ``I-X`` may go on to ``I-X``."""
        ids = np.arange(len(self))
        inside = (ids > 0) & (ids % 2 == 0)
        types = (ids + 1) // 2
        allowed: NDArray[np.bool_] = ~inside[None, :] | (types[:, None] == types[None, :])
        allowed.setflags(write=False)
        return allowed

    @cached_property
    def allowed_start(self) -> NDArray[np.bool_]:
        """(L,) bool: whether a document may start with the label, which is whether O may go on to it."""
        start: NDArray[np.bool_] = self.allowed_transitions[O]
        return start


def _continues(ids: NDArray[np.integer], offsets: NDArray[np.int64] | None) -> NDArray[np.bool_]:
    """(N,) bool: whether a token is ``I-X`` and the one before, in its document, ``B-X`` or ``I-X``."""
    result = np.zeros(len(ids), bool)
    result[1:] = (ids[1:] > 0) & (ids[1:] % 2 == 0) & ((ids[1:] + 1) // 2 == (ids[:-1] + 1) // 2)
    if offsets is not None:
        result[offsets[offsets < len(ids)]] = False
    return result


def find_spans(ids: NDArray[np.integer], offsets: NDArray[np.int64], lenient: bool = False) -> PackedSpans:
    """All spans of packed documents, without a Python loop.

    :param ids: (N,) label ids; abstentions count as O.
    :param offsets: (B + 1,) where each document starts; no span crosses a document's end.
    :param lenient: let a stray ``I-X`` start a span, as CoNLL's scorer does; otherwise it is no span.
    """
    ids = np.asarray(ids)
    starts = np.flatnonzero(
        ~_continues(ids, offsets)
    )  # cut before every token that does not go on the one before
    ends = np.append(starts[1:], len(ids))
    labels = ids[starts].astype(np.int64)
    wanted = labels > 0 if lenient else (labels > 0) & (labels % 2 == 1)
    return PackedSpans(starts[wanted], ends[wanted], (labels[wanted] - 1) // 2)


def resolve_overlaps(spans: Iterable[Span]) -> tuple[list[Span], int]:
    """Spans of one LF in one document, without overlaps: the longest first, then the leftmost.

    Of two types for one stretch, the first named is kept; a repetition of a span is no overlap.

    :returns: the spans kept, from left to right, and the number dropped.
    """
    unique = list(dict.fromkeys(spans))
    if all(left[1] <= right[0] for left, right in pairwise(unique)):  # as nearly all are written
        return unique, 0
    kept: list[Span] = []
    for span in sorted(unique, key=lambda span: (span[0] - span[1], span[0])):
        if all(span[1] <= other[0] or other[1] <= span[0] for other in kept):
            kept.append(span)
    return sorted(kept), len(unique) - len(kept)
