"""The corpus: documents, what the LFs said about their tokens, and gold labels where known; immutable."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyro_chmm.data.coarse import coarse_allows
from pyro_chmm.data.labels import ABSTAIN, Ids, LabelSet, Span
from pyro_chmm.errors import DataError

_log = logging.getLogger(__name__)

GOLD = "gold labels"
"""Stands for the gold labels where an LF's name would: in messages and in :class:`CorpusReport`."""


@dataclass(frozen=True)
class CorpusReport:
    """What was changed in the labels when they were read, by LF or :data:`GOLD`; empty where nothing was."""

    overlaps_dropped: Mapping[str, int] = field(default_factory=dict)
    """Spans dropped because they overlap one that :func:`~pyro_chmm.data.labels.resolve_overlaps` keeps."""
    labels_repaired: Mapping[str, int] = field(default_factory=dict)
    """``I-X`` labels of LFs that followed neither ``B-X`` nor ``I-X`` and were read as ``B-X``."""

    def lines(self) -> list[str]:
        """One sentence for each kind of change, for people."""
        kinds = (
            (
                self.overlaps_dropped,
                "overlapping spans were dropped (the longest is kept, then the leftmost)",
            ),
            (self.labels_repaired, "I- labels without a B- before them were read as B-"),
        )
        return [
            f"{sum(counts.values())} {what}: "
            + ", ".join(f"{name} {count}" for name, count in counts.items())
            + "."
            for counts, what in kinds
            if counts
        ]

    def log(self, source: str) -> None:
        """Say what was changed, as warnings; ``source`` is the file, or empty."""
        for line in self.lines():
            _log.warning("%s%s", f"{source}: " if source else "", line)

    def only(self, lf_names: Iterable[str]) -> CorpusReport:
        """The part about some LFs and the gold labels."""
        wanted = {*lf_names, GOLD}
        dropped, repaired = (
            {name: count for name, count in counts.items() if name in wanted}
            for counts in (self.overlaps_dropped, self.labels_repaired)
        )
        return CorpusReport(dropped, repaired)


@dataclass(frozen=True, eq=False)
class Corpus:
    """Packed documents: B documents, N tokens in all, K LFs, L labels.

    :param label_set: the L labels.
    :param lf_names: the K names of the LFs.
    :param tokens: the words of each document; empty documents are kept.
    :param offsets: (B + 1,) int64; document m is the tokens ``offsets[m]`` to ``offsets[m + 1]``.
    :param weak_labels: (N, K) int16 label ids, -1 where an LF abstained.
    :param gold: (N,) int16 label ids, or None.
    :param document_ids: the documents' B names.
    :param report: what was changed when the labels were read.
    :param coarse_types: the C coarse labels that LFs use, such as ``ENT`` or ``NOT_X`` (see :mod:`pyro_chmm.data.coarse`).
    :param coarse_labels: (N, K) int16: 2 c for ``B-`` and 2 c + 1 for ``I-`` of coarse label c, -1 for none; where there is
        one, the weak label is -1. None: -1 everywhere.
    :raises DataError: when shapes do not fit, or an id is outside the label set (LF, document and label are
        named).
    """

    label_set: LabelSet
    lf_names: tuple[str, ...]
    tokens: Sequence[Sequence[str]]
    offsets: NDArray[np.int64]
    weak_labels: Ids
    gold: Ids | None
    document_ids: tuple[str, ...]
    report: CorpusReport = field(default_factory=CorpusReport)
    coarse_types: tuple[str, ...] = ()
    coarse_labels: Ids | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "lf_names", tuple(self.lf_names))
        put(self, "document_ids", tuple(self.document_ids))
        put(self, "offsets", _frozen(self.offsets, np.int64, "offsets"))
        put(self, "weak_labels", _frozen(self.weak_labels, np.int16, "weak_labels"))
        if self.gold is not None:
            put(self, "gold", _frozen(self.gold, np.int16, "gold"))
        put(self, "coarse_types", tuple(self.coarse_types))
        if self.coarse_labels is not None:
            coarse = _frozen(self.coarse_labels, np.int16, "coarse_labels")
            put(self, "coarse_labels", coarse if (coarse != ABSTAIN).any() else None)
        self._check_shapes()
        self._check_ids(self.weak_labels, ABSTAIN, self.lf_names)
        if self.gold is not None:
            self._check_ids(self.gold[:, None], 0, (GOLD,))
        self._check_coarse()

    def _check_shapes(self) -> None:
        lengths = np.fromiter(map(len, self.tokens), np.int64, len(self.tokens))
        expected = np.concatenate([[0], np.cumsum(lengths)])
        if not np.array_equal(self.offsets, expected):
            raise DataError(
                f"The offsets must be 0 and then the running total of the numbers of tokens in the "
                f"{len(lengths)} documents."
            )
        if len(self.document_ids) != len(lengths):
            raise DataError(f"There are {len(self.document_ids)} document ids for {len(lengths)} documents.")
        if len(set(self.lf_names)) < len(self.lf_names):
            twice = next(name for name in self.lf_names if self.lf_names.count(name) > 1)
            raise DataError(f"The LF name {twice!r} occurs twice; each LF needs a name of its own.")
        shape = (int(expected[-1]), len(self.lf_names))
        if self.weak_labels.shape != shape:
            raise DataError(
                f"The weak labels have shape {self.weak_labels.shape}; {shape[0]} tokens and {shape[1]} LFs "
                f"need {shape}."
            )
        if self.gold is not None and self.gold.shape != shape[:1]:
            raise DataError(
                f"The gold labels have shape {self.gold.shape}; {shape[0]} tokens need {shape[:1]}."
            )

    def _check_coarse(self) -> None:
        labels, known = self.coarse_labels, len(coarse_allows(self.label_set, self.coarse_types))
        if labels is None:
            return
        if labels.shape != self.weak_labels.shape:
            raise DataError(f"The coarse labels have shape {labels.shape}; the weak labels have {self.weak_labels.shape}.")
        if labels.min() < ABSTAIN or labels.max() >= known or ((labels != ABSTAIN) & (self.weak_labels != ABSTAIN)).any():
            raise DataError(f"Coarse labels must be -1 to {known - 1}, and -1 wherever there is a weak label.")

    def _check_ids(self, ids: Ids, lowest: int, names: Sequence[str]) -> None:
        outside = (ids < lowest) | (ids >= len(self.label_set))
        if outside.any():
            token, column = np.argwhere(outside)[0]
            document = self.document_index[token]
            raise DataError(
                f"Document {self.document_ids[document]!r}, {who_says(names[column])}, "
                f"token {token - self.offsets[document]}: {ids[token, column]} is not a label id; "
                f"the {len(self.label_set)} labels have the ids {lowest} to {len(self.label_set) - 1}."
            )

    @property
    def num_documents(self) -> int:
        """B"""
        return len(self.document_ids)

    @property
    def num_tokens(self) -> int:
        """N"""
        return len(self.weak_labels)

    @property
    def num_lfs(self) -> int:
        """K"""
        return len(self.lf_names)

    @cached_property
    def observed_set(self) -> LabelSet:
        """The labels that LFs may use: those of ``label_set``, then ``B-`` and ``I-`` of the coarse types."""
        return LabelSet((*self.label_set.entity_types, *self.coarse_types)) if self.coarse_types else self.label_set

    @cached_property
    def observed_labels(self) -> Ids:
        """(N, K) what the LFs said, coarse or not, as ids of ``observed_set``; -1 where they abstained."""
        if self.coarse_labels is None:
            return self.weak_labels
        coarse = self.coarse_labels
        return np.where(coarse == ABSTAIN, self.weak_labels, coarse + len(self.label_set)).astype(np.int16)

    def document_slice(self, document: int) -> slice:
        """Where a document's tokens are in the packed arrays."""
        return slice(int(self.offsets[document]), int(self.offsets[document + 1]))

    @cached_property
    def document_index(self) -> NDArray[np.int64]:
        """(N,) the number of each token's document."""
        index = np.repeat(np.arange(self.num_documents), np.diff(self.offsets))
        index.setflags(write=False)
        return index

    def select_lfs(self, names: Iterable[str]) -> Corpus:
        """Some LFs only, in the order given; :class:`DataError` for none or an unknown one."""
        names = (names,) if isinstance(names, str) else tuple(names)
        if not names:
            raise DataError("No LF was chosen; name at least one.")
        places = {name: place for place, name in enumerate(self.lf_names)}
        for name in names:
            if name not in places:
                raise DataError(
                    f"There is no LF {name!r}; the LFs are {', '.join(self.lf_names) or '(none)'}."
                )
        columns = [places[name] for name in names]
        coarse = None if self.coarse_labels is None else self.coarse_labels[:, columns]
        report = self.report.only(names)
        return replace(self, lf_names=names, weak_labels=self.weak_labels[:, columns], coarse_labels=coarse, report=report)

    def relabeled(self, label_set: LabelSet) -> Corpus:
        """The corpus with the ids of another label set; :class:`DataError` where that lacks one of its entity types."""
        if label_set == self.label_set:
            return self
        table = np.array([*(label_set.id(name) for name in self.label_set.names), ABSTAIN], np.int16)  # -1 reaches the last
        gold = None if self.gold is None else table[self.gold]
        return replace(self, label_set=label_set, weak_labels=table[self.weak_labels], gold=gold)

    def select_documents(self, indices: Sequence[int] | NDArray[np.integer]) -> Corpus:
        """Some documents only, in the order given; :class:`DataError` for one that is not there."""
        chosen = np.asarray(indices, np.int64).reshape(-1)
        for number in chosen[(chosen < 0) | (chosen >= self.num_documents)][:1]:
            raise DataError(
                f"There is no document number {number}; the corpus has {self.num_documents} documents."
            )
        lengths = np.diff(self.offsets)[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][chosen] - offsets[:-1], lengths)
        return replace(
            self,
            tokens=tuple(self.tokens[m] for m in chosen.tolist()),
            offsets=offsets,
            weak_labels=self.weak_labels[rows],
            gold=None if self.gold is None else self.gold[rows],
            coarse_labels=None if self.coarse_labels is None else self.coarse_labels[rows],
            document_ids=tuple(self.document_ids[m] for m in chosen.tolist()),
        )

    def without_gold(self) -> Corpus:
        """The corpus as it is before anybody labelled it by hand."""
        return replace(self, gold=None)

    @staticmethod
    def concatenate(corpora: Sequence[Corpus]) -> Corpus:
        """One corpus of all documents; gold labels only if every part has them.

        :raises DataError: if there is no part, or label sets or LFs differ.
        """
        if not corpora:
            raise DataError("There is no corpus to put together.")
        first = corpora[0]
        for other in corpora[1:]:
            if (other.observed_set, other.lf_names) != (first.observed_set, first.lf_names):
                raise DataError(
                    "Corpora can be put together only if their entity types and LFs are the same, in order, "
                    "and their coarse labels."
                )
        coarse = [np.full_like(c.weak_labels, ABSTAIN) if c.coarse_labels is None else c.coarse_labels for c in corpora]
        golds = [corpus.gold for corpus in corpora if corpus.gold is not None]
        lengths = np.concatenate([np.diff(corpus.offsets) for corpus in corpora])
        return replace(
            first,
            tokens=tuple(document for corpus in corpora for document in corpus.tokens),
            offsets=np.concatenate([[0], np.cumsum(lengths)]),
            weak_labels=np.concatenate([corpus.weak_labels for corpus in corpora]),
            gold=np.concatenate(golds) if len(golds) == len(corpora) else None,
            coarse_labels=np.concatenate(coarse),
            document_ids=tuple(name for corpus in corpora for name in corpus.document_ids),
            report=CorpusReport(
                _sum_counts(corpus.report.overlaps_dropped for corpus in corpora),
                _sum_counts(corpus.report.labels_repaired for corpus in corpora),
            ),
        )

    @staticmethod
    def from_spans(
        tokens: Sequence[Sequence[str]],
        weak_spans: Sequence[Sequence[Sequence[Span] | None]],
        entity_types: Sequence[str],
        lf_names: Sequence[str],
        gold_spans: Sequence[Sequence[Span]] | None = None,
        document_ids: Sequence[str] | None = None,
        coarse_types: Sequence[str] = (),
    ) -> Corpus:
        """A corpus from Python lists.

        :param tokens: the words of each document.
        :param weak_spans: ``weak_spans[document][lf]`` is a list of (start, end, type); tokens outside are
            O. None: the LF abstained on the whole document.
        :param gold_spans: ``gold_spans[document]``, likewise.
        :param document_ids: names of the documents; "0", "1", ... if not given.
        :param coarse_types: coarse labels that weak spans may have beside the entity types (see :mod:`pyro_chmm.data.coarse`).
        :raises DataError: for spans outside their document, types outside the set, or lists of different
            lengths.
        """
        from pyro_chmm.data.building import CorpusBuilder  # it makes corpora, so it imports this module

        if len(weak_spans) != len(tokens) or (gold_spans is not None and len(gold_spans) != len(tokens)):
            raise DataError(
                "There must be one list of weak spans, and of gold spans if any, for each of the "
                f"{len(tokens)} documents."
            )
        if document_ids is not None and len(document_ids) != len(tokens):
            raise DataError(f"There are {len(document_ids)} document ids for {len(tokens)} documents.")
        label_set, has_gold = LabelSet(tuple(entity_types)), gold_spans is not None
        builder = CorpusBuilder(label_set, lf_names, has_gold, coarse_types=coarse_types)
        for number, words in enumerate(tokens):
            name = str(number) if document_ids is None else document_ids[number]
            builder.add(name, words, weak_spans[number], None if gold_spans is None else gold_spans[number])
        corpus = builder.finish()
        corpus.report.log("")
        return corpus

    def fingerprint(self) -> str:
        """SHA-256 over the tokens alone, in order, in hexadecimal: what an encoder's vectors depend on."""
        digest = hashlib.sha256()
        for document in self.tokens:
            # lengths before contents, so that no two ways of cutting the text give the same bytes
            encoded = [token.encode("utf-8", "surrogatepass") for token in document]
            digest.update(b"%d:" % len(encoded) + b",".join(b"%d" % len(token) for token in encoded) + b";")
            digest.update(b"".join(encoded))
        return digest.hexdigest()


@dataclass(frozen=True)
class CorpusSplits:
    """The splits of a data set, such as train, valid and test; ``name`` says which data set, in messages."""

    name: str
    splits: Mapping[str, Corpus]

    def get(self, name: str) -> Corpus | None:
        """A split, or None if there is none of that name."""
        return self.splits.get(name)

    def __getitem__(self, name: str) -> Corpus:
        """A split; :class:`DataError`, naming those that there are, if there is none of that name."""
        if name not in self.splits:
            there = ", ".join(self.splits) or "none at all"
            raise DataError(f"{self.name} has no {name} split here; its splits are: {there}.")
        return self.splits[name]

    def chosen(self, name: str | None) -> str:
        """The name of a split to look at: that given, else ``test``, else the only one there is.

        :raises DataError: where there is none of that name, or there are several and none is ``test``.
        """
        if name is None and len(self.splits) == 1:
            return next(iter(self.splits))
        if name is None and "test" not in self.splits:
            raise DataError(f"{self.name} has the splits {', '.join(self.splits) or 'none'}; choose one with --split.")
        found = "test" if name is None else name
        self[found]  # says which there are, where it is not there
        return found

    @property
    def train(self) -> Corpus:
        """The training split; :class:`DataError` if it is missing."""
        return self["train"]

    @property
    def valid(self) -> Corpus:
        """The validation split; :class:`DataError` if it is missing."""
        return self["valid"]

    @property
    def test(self) -> Corpus:
        """The test split; :class:`DataError` if it is missing."""
        return self["test"]


def who_says(name: str) -> str:
    """An LF, or the gold labels, as messages call them."""
    return name if name == GOLD else f"LF {name!r}"


def _frozen(values: Any, dtype: Any, what: str) -> NDArray[Any]:
    """A read-only copy; refuses numbers that the conversion would change."""
    given = np.asarray(values)
    copy = np.array(given, dtype=dtype, order="C")
    if given.dtype != copy.dtype and given.size and not (given.dtype.kind in "iu" and (copy == given).all()):
        raise DataError(f"{what} must hold whole numbers that fit {np.dtype(dtype)}, not {given.dtype}.")
    copy.setflags(write=False)
    return copy


def _sum_counts(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            total[name] = total.get(name, 0) + count
    return total
