"""Precision, recall and F1 of entities: the one place that scores labels.

Equal to seqeval's ``mode="strict", scheme=IOB2`` and to its default, which tests check on random labels;
computed on packed ids without a Python loop, because training scores the validation split after every epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyro_chmm.data.labels import LabelSet, PackedSpans, find_spans
from pyro_chmm.errors import DataError


@dataclass(frozen=True)
class Score:
    """Precision, recall and F1 in percent, 0 where undefined, and the counts of spans behind them."""

    precision: float
    recall: float
    f1: float
    true_positives: int
    predicted: int
    gold: int

    @classmethod
    def from_counts(cls, true_positives: int, predicted: int, gold: int) -> Score:
        """The score of some counts of spans."""
        precision, recall, f1 = (
            100.0 * part / whole if whole else 0.0
            for part, whole in (
                (true_positives, predicted),
                (true_positives, gold),
                (2 * true_positives, predicted + gold),
            )
        )
        return cls(precision, recall, f1, true_positives, predicted, gold)


def score(
    label_set: LabelSet,
    gold_ids: NDArray[np.integer],
    predicted_ids: NDArray[np.integer],
    offsets: NDArray[np.int64],
    mode: Literal["strict", "lenient"] = "strict",
) -> Score:
    """Score predicted spans: one is right if start, end and type are those of a gold span.

    :param gold_ids: (N,) label ids.
    :param predicted_ids: (N,) label ids; abstentions count as O.
    :param offsets: (B + 1,) where each document starts.
    :param mode: "strict": a span starts at ``B-X`` only (IOB2). "lenient": at an ``I-X`` that goes on no
        span, too.
    :raises DataError: if the shapes differ.
    """
    gold, predicted, right = _matched(gold_ids, predicted_ids, offsets, mode)
    return Score.from_counts(int(right.sum()), len(predicted.start), len(gold.start))


def score_by_type(
    label_set: LabelSet,
    gold_ids: NDArray[np.integer],
    predicted_ids: NDArray[np.integer],
    offsets: NDArray[np.int64],
    mode: Literal["strict", "lenient"] = "strict",
) -> dict[str, Score]:
    """As :func:`score`, for each entity type of the label set by itself."""
    gold, predicted, right = _matched(gold_ids, predicted_ids, offsets, mode)
    types = len(label_set.entity_types)
    counts = (
        np.bincount(which, minlength=types) for which in (predicted.type[right], predicted.type, gold.type)
    )
    return {
        name: Score.from_counts(*row)
        for name, row in zip(label_set.entity_types, np.stack(list(counts), axis=1).tolist(), strict=True)
    }


def _matched(
    gold_ids: NDArray[np.integer], predicted_ids: NDArray[np.integer], offsets: NDArray[np.int64], mode: str
) -> tuple[PackedSpans, PackedSpans, NDArray[np.bool_]]:
    """Gold spans, predicted spans, and which of the latter are among the former."""
    if np.shape(gold_ids) != np.shape(predicted_ids) or np.shape(gold_ids) != (int(offsets[-1]),):
        raise DataError(
            f"Gold labels of shape {np.shape(gold_ids)} and predicted ones of {np.shape(predicted_ids)} "
            f"cannot be compared: both must cover the {int(offsets[-1])} tokens."
        )
    if mode not in ("strict", "lenient"):
        raise DataError(f"The scoring mode is {mode!r}; it must be strict or lenient.")
    gold, predicted = (
        find_spans(ids, offsets, lenient=mode == "lenient") for ids in (gold_ids, predicted_ids)
    )
    return gold, predicted, spans_in(predicted, gold, int(offsets[-1]))


def spans_in(spans: PackedSpans, others: PackedSpans, num_tokens: int) -> NDArray[np.bool_]:
    """Which spans are, with start, end and type, among others (of which no two start together)."""
    end: NDArray[Any] = np.full(num_tokens, -1)
    kind: NDArray[Any] = np.full(num_tokens, -1)
    end[others.start], kind[others.start] = others.end, others.type
    found: NDArray[np.bool_] = (end[spans.start] == spans.end) & (kind[spans.start] == spans.type)
    return found
