"""Packs documents that come as lists, from a file or a user, into a corpus, and checks them on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyro_chmm.data.coarse import coarse_allows
from pyro_chmm.data.corpus import GOLD, Corpus, CorpusReport, who_says
from pyro_chmm.data.labels import ABSTAIN, Ids, LabelSet, Span, resolve_overlaps
from pyro_chmm.errors import DataError


class CorpusBuilder:
    """Takes documents one by one, as lists out of a file, checks them, and packs them into a :class:`Corpus`.

    A *column* is what one LF (or a human) says about one document: a list of ``[start, end, type]``, with O
    outside them; a list of T BIO names, with None where the LF abstains; or None if it abstains throughout.

    :param source: the file, for messages.
    :param has_gold: whether every document comes with gold labels.
    :param coarse_types: coarse labels that LFs may use beside the label set's (see :mod:`pyro_chmm.data.coarse`).
    """

    def __init__(
        self,
        label_set: LabelSet,
        lf_names: Sequence[str],
        has_gold: bool,
        source: str = "",
        coarse_types: Sequence[str] = (),
    ) -> None:
        coarse_allows(label_set, coarse_types)  # refuses what is none
        self._coarse_types = tuple(coarse_types)
        self._observed_set = LabelSet((*label_set.entity_types, *coarse_types))
        self.label_set, self.lf_names, self.has_gold = label_set, tuple(lf_names), has_gold
        self._source = f"{source}: " if source else ""
        self._names: tuple[str, ...] = (*self.lf_names, GOLD)
        self._tokens: list[tuple[str, ...]] = []
        self._document_ids: dict[str, int] = {}
        self._blocks: list[Ids] = []
        self._dropped: dict[str, int] = {}
        self._repaired: dict[str, int] = {}

    def add(self, name: str, tokens: Sequence[str], weak: Sequence[Any], gold: Any = None) -> None:
        """Append a document; :class:`DataError` names source, document and LF if anything is wrong."""
        where = f"{self._source}document {name!r}"
        if not isinstance(tokens, Sequence) or isinstance(tokens, str) or not set(map(type, tokens)) <= {str}:
            raise DataError(f"{where}: its tokens must be a list of strings.")
        number = len(self._tokens) + 1
        first = self._document_ids.setdefault(name, number)
        if first != number:
            raise DataError(
                f"{where}: documents number {first} and {number} both have this name; give each its own, by which messages "
                "and explanations call it."
            )
        if not isinstance(weak, (list, tuple)) or len(weak) != len(self.lf_names):
            there = (
                f"{len(weak)} LFs" if isinstance(weak, (list, tuple)) else f"the kind {type(weak).__name__}"
            )
            raise DataError(
                f"{where}: its weak labels are of {there}, where those of {len(self.lf_names)} LFs are "
                "expected."
            )
        if self.has_gold and gold is None:
            raise DataError(f"{where}: it has no gold labels, while other documents have them.")
        block = np.zeros((len(tokens), len(self._names)), np.int16)
        for place, column in enumerate(weak):
            if type(column) is not list or column:  # most LFs say nothing: the loop's hot path
                self._fill(block[:, place], column, self._names[place], where)
        if self.has_gold:
            self._fill(block[:, -1], gold, GOLD, where)
        self._tokens.append(tuple(tokens))
        self._blocks.append(block)

    def _fill(self, target: Ids, column: Any, who: str, where: str) -> None:
        if column is None:
            target[:] = ABSTAIN
        elif not isinstance(column, (list, tuple)):
            raise DataError(
                f"{where}, {who_says(who)}: a list of spans or of BIO labels is expected, not {column!r}."
            )
        elif column and not isinstance(column[0], (list, tuple)):
            self._fill_names(target, column, who, where)
        else:
            self._fill_spans(target, column, who, where)

    def _fill_names(self, target: Ids, column: Sequence[Any], who: str, where: str) -> None:
        if len(column) != len(target):
            raise DataError(f"{where}, {who_says(who)}: {len(column)} labels for {len(target)} tokens.")
        labels = self._labels_of(who)
        known = labels.ids
        for place, label in enumerate(column):
            if label is None and who != GOLD:
                target[place] = ABSTAIN
            elif isinstance(label, str) and label in known:
                target[place] = known[label]
            else:
                raise DataError(
                    f"{where}, {who_says(who)}, token {place}: the label {label!r} is not in the label set "
                    f"(O, and B- or I- of {', '.join(labels.entity_types)})."
                )
        if who != GOLD:  # gold is scored as it was written
            repaired = labels.repair(target)
            changed = int((repaired != target).sum())
            if changed:
                target[:] = repaired
                self._repaired[who] = self._repaired.get(who, 0) + changed

    def _fill_spans(self, target: Ids, column: Sequence[Any], who: str, where: str) -> None:
        types, length = self._labels_of(who).types, len(target)
        spans: list[Span] = []
        for span in column:
            if not isinstance(span, (list, tuple)) or len(span) != 3:
                raise DataError(f"{where}, {who_says(who)}: {span!r} is not a span [start, end, type].")
            start, end, kind = span
            if type(start) is not int or type(end) is not int or type(kind) is not str:
                raise DataError(f"{where}, {who_says(who)}: {span!r} is not a span [start, end, type].")
            if kind not in types:
                raise DataError(
                    f"{where}, {who_says(who)}: the label {kind!r} of the span {list(span)} is not among the "
                    f"entity types {', '.join(types)}."
                )
            if not 0 <= start < end <= length:
                raise DataError(
                    f"{where}, {who_says(who)}: the span {list(span)} is not inside its {length} tokens."
                )
            spans.append((start, end, kind))
        if len(spans) > 1:
            spans, dropped = resolve_overlaps(spans)
            if dropped:
                self._dropped[who] = self._dropped.get(who, 0) + dropped
        for start, end, kind in spans:
            target[start:end] = 2 + 2 * types[kind]
            target[start] -= 1

    def _labels_of(self, who: str) -> LabelSet:
        return self.label_set if who == GOLD else self._observed_set

    def finish(self) -> Corpus:
        """The corpus of all documents added; what was changed is in its report."""
        packed = np.concatenate([*self._blocks, np.zeros((0, len(self._names)), np.int16)])
        lengths = [len(document) for document in self._tokens]
        weak, coarse = packed[:, :-1], None
        if self._coarse_types:
            is_coarse = weak >= len(self.label_set)
            coarse = np.where(is_coarse, weak - len(self.label_set), ABSTAIN)
            weak = np.where(is_coarse, ABSTAIN, weak)
        return Corpus(
            label_set=self.label_set,
            lf_names=self.lf_names,
            tokens=tuple(self._tokens),
            offsets=np.cumsum([0, *lengths]),
            weak_labels=weak,
            gold=packed[:, -1] if self.has_gold else None,
            document_ids=tuple(self._document_ids),
            report=CorpusReport(self._dropped, self._repaired),
            coarse_types=self._coarse_types,
            coarse_labels=coarse,
        )
