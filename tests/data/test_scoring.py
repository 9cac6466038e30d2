"""Scores: against seqeval on random labels, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import classification_report, f1_score, precision_score, recall_score
from seqeval.scheme import IOB2

from pyro_chmm.data.labels import ABSTAIN, LabelSet
from pyro_chmm.data.scoring import Score, score, score_by_type
from pyro_chmm.errors import DataError

LABELS = LabelSet(("PER", "LOC", "MISC"))
documents = st.lists(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=8), min_size=1, max_size=5
)


def packed(
    pairs: list[list[tuple[int, int]]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[list[str]], list[list[str]]]:
    """Gold ids, predicted ids, offsets, and both as names for seqeval."""
    flat = np.array([pair for document in pairs for pair in document], np.int16)
    offsets = np.cumsum([0, *map(len, pairs)])
    gold, predicted = (
        [[LABELS.name(pair[side]) for pair in document] for document in pairs] for side in (0, 1)
    )
    return flat[:, 0], flat[:, 1], offsets, gold, predicted


@settings(deadline=None)
@given(documents)
def test_strict_and_lenient_scores_are_those_of_seqeval(pairs: list[list[tuple[int, int]]]) -> None:
    gold, predicted, offsets, gold_names, predicted_names = packed(pairs)
    for mode, options in (("strict", {"mode": "strict", "scheme": IOB2}), ("lenient", {})):
        expected = [
            measure(gold_names, predicted_names, zero_division=0, **options)
            for measure in (precision_score, recall_score, f1_score)
        ]
        found = score(LABELS, gold, predicted, offsets, mode)  # type: ignore[arg-type]
        assert (found.precision, found.recall, found.f1) == pytest.approx([100 * x for x in expected])


@settings(deadline=None)
@given(documents)
def test_scores_by_type_are_those_of_seqeval(pairs: list[list[tuple[int, int]]]) -> None:
    gold, predicted, offsets, gold_names, predicted_names = packed(pairs)
    found = score_by_type(LABELS, gold, predicted, offsets)
    assert set(found) == set(LABELS.entity_types)
    if not any(label[0] == "B" for document in (*gold_names, *predicted_names) for label in document):
        return  # seqeval's report fails without a span
    report = classification_report(
        gold_names, predicted_names, mode="strict", scheme=IOB2, output_dict=True, zero_division=0
    )
    for name, result in found.items():
        row = report.get(name, {"precision": 0, "recall": 0, "f1-score": 0, "support": 0})
        assert result.f1 == pytest.approx(100 * row["f1-score"])
        assert result.precision == pytest.approx(100 * row["precision"])
        assert result.gold == row["support"]


def test_a_stray_inside_label_counts_leniently_only() -> None:
    gold, predicted = np.array([1, 2, 0]), np.array([2, 2, 0])  # B-PER I-PER against I-PER I-PER
    offsets = np.array([0, 3])
    assert score(LABELS, gold, predicted, offsets) == Score(0.0, 0.0, 0.0, 0, 0, 1)
    assert score(LABELS, gold, predicted, offsets, "lenient") == Score(100.0, 100.0, 100.0, 1, 1, 1)


def test_counts_by_hand_with_abstentions_and_documents() -> None:
    gold = np.array([1, 2, 0, 3, 0, 1])
    predicted = np.array([1, 2, ABSTAIN, 3, 4, 1])  # the second span is one token too long
    found = score(LABELS, gold, predicted, np.array([0, 3, 3, 6]))
    assert (found.true_positives, found.predicted, found.gold) == (2, 3, 3)
    assert found.f1 == pytest.approx(200 / 3)


def test_nothing_to_score_is_zero_and_no_error() -> None:
    empty = np.array([], np.int16)
    assert score(LABELS, empty, empty, np.array([0])) == Score(0.0, 0.0, 0.0, 0, 0, 0)


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(DataError, match="cannot be compared"):
        score(LABELS, np.zeros(3), np.zeros(2), np.array([0, 3]))
    with pytest.raises(DataError, match="strict or lenient"):
        score(LABELS, np.zeros(3), np.zeros(3), np.array([0, 3]), "mild")  # type: ignore[arg-type]
