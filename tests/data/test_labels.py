"""Label sets: ids, spans, repair, IO space, allowed transitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyro_chmm.data.labels import ABSTAIN, LabelSet, O, find_spans, resolve_overlaps
from pyro_chmm.errors import DataError

LABELS = LabelSet(("PER", "LOC"))
label_ids = st.lists(st.integers(ABSTAIN, 4), max_size=12).map(lambda ids: np.array(ids, np.int16))


def ids(*names: str | None) -> np.ndarray:
    return np.array([ABSTAIN if name is None else LABELS.id(name) for name in names], np.int16)


def test_ids_follow_from_the_order_of_the_types() -> None:
    assert LABELS.names == ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
    assert len(LABELS) == 5
    assert LABELS.id("O") == O == 0
    assert [LABELS.name(LABELS.id(name)) for name in LABELS.names] == list(LABELS.names)


@pytest.mark.parametrize("types", [(), ("PER", "PER"), ("",), (3,), "PER", 7])
def test_refuses_types_that_make_no_label_set(types: object) -> None:
    with pytest.raises(DataError):
        LabelSet(types)  # type: ignore[arg-type]


def test_unknown_names_and_ids_are_refused_with_those_that_there_are() -> None:
    with pytest.raises(DataError, match="'B-ORG' is not a label of this set; the labels are O, B-PER"):
        LABELS.id("B-ORG")
    for wrong in (ABSTAIN, 5):
        with pytest.raises(DataError, match="the ids are 0 to 4"):
            LABELS.name(wrong)


def test_spans_become_labels_and_labels_spans() -> None:
    spans = [(0, 2, "PER"), (2, 3, "PER"), (4, 6, "LOC")]
    encoded = LABELS.encode_spans(spans, 6)
    np.testing.assert_array_equal(encoded, ids("B-PER", "I-PER", "B-PER", "O", "B-LOC", "I-LOC"))
    assert LABELS.decode_spans(encoded) == spans
    assert LABELS.decode_spans(LABELS.encode_spans([], 0)) == []


@pytest.mark.parametrize("span", [(0, 4, "PER"), (-1, 1, "PER"), (2, 2, "PER"), (2, 1, "PER")])
def test_spans_outside_the_document_are_refused(span: tuple[int, int, str]) -> None:
    with pytest.raises(DataError, match="not inside a document of 3 tokens"):
        LABELS.encode_spans([span], 3)


def test_types_outside_the_set_are_refused() -> None:
    with pytest.raises(DataError, match="'ORG'"):
        LABELS.encode_spans([(0, 1, "ORG")], 3)


def test_a_stray_inside_label_is_no_span() -> None:
    assert LABELS.decode_spans(ids("I-PER", "O", "B-PER", "I-LOC", "I-LOC", "B-LOC", None, "I-LOC")) == [
        (2, 3, "PER"),
        (5, 6, "LOC"),
    ]


def test_repair_turns_a_stray_inside_label_into_a_beginning() -> None:
    np.testing.assert_array_equal(
        LABELS.repair(ids("I-PER", "I-PER", "O", "I-LOC", "B-PER", "I-LOC", None, "I-PER")),
        ids("B-PER", "I-PER", "O", "B-LOC", "B-PER", "B-LOC", None, "B-PER"),
    )


def test_repair_and_spans_stop_at_the_end_of_a_document() -> None:
    packed, offsets = ids("B-PER", "I-PER", "I-PER"), np.array([0, 2, 2, 3])
    np.testing.assert_array_equal(LABELS.repair(packed, offsets), ids("B-PER", "I-PER", "B-PER"))
    assert find_spans(packed, offsets).end.tolist() == [2]
    lenient = find_spans(packed, offsets, lenient=True)
    assert [column.tolist() for column in lenient] == [[0, 2], [2, 3], [0, 0]]


@given(label_ids)
def test_repaired_labels_are_valid_and_hold_the_lenient_spans(labels: np.ndarray) -> None:
    repaired = LABELS.repair(labels)
    steps = np.concatenate([[O], repaired])
    steps[steps == ABSTAIN] = O
    assert LABELS.allowed_transitions[steps[:-1], steps[1:]].all()
    offsets = np.array([0, len(labels)])
    for strict, lenient in zip(find_spans(repaired, offsets), find_spans(labels, offsets, True), strict=True):
        np.testing.assert_array_equal(strict, lenient)


@given(label_ids)
def test_io_space_keeps_types_and_merges_neighbours(labels: np.ndarray) -> None:
    types = LABELS.to_io(labels)
    back = LABELS.from_io(types)
    np.testing.assert_array_equal(LABELS.to_io(back), types)
    np.testing.assert_array_equal(back == ABSTAIN, labels == ABSTAIN)
    np.testing.assert_array_equal(LABELS.repair(back), back)
    assert not ((back[1:] % 2 == 1) & (types[1:] == types[:-1]) & (back[1:] > 0)).any()


def test_io_space_by_hand() -> None:
    labels = ids("B-PER", "B-PER", "I-LOC", "O", None, "B-LOC")
    types = LABELS.to_io(labels)
    assert types.tolist() == [1, 1, 2, 0, -1, 2]
    np.testing.assert_array_equal(LABELS.from_io(types), ids("B-PER", "I-PER", "B-LOC", "O", None, "B-LOC"))
    assert LABELS.from_io(np.array([1, 1, 1]), np.array([0, 2, 3])).tolist() == [1, 2, 1]
    assert LABELS.to_io(labels.reshape(2, 3)).shape == (2, 3)


def test_allowed_transitions_are_those_of_bio() -> None:
    for source in LABELS.names:
        for target in LABELS.names:
            allowed = not target.startswith("I-") or source[1:] == target[1:]
            assert LABELS.allowed_transitions[LABELS.id(source), LABELS.id(target)] == allowed
    assert LABELS.allowed_start.tolist() == [True, True, False, True, False]
    with pytest.raises(ValueError, match="read-only"):
        LABELS.allowed_transitions[0, 0] = False


@pytest.mark.parametrize(
    ("spans", "kept", "dropped"),
    [
        ([(0, 4, "ORG"), (1, 2, "LOC")], [(0, 4, "ORG")], 1),  # skweak#2550's nested spans
        ([(1, 2, "LOC"), (0, 4, "ORG")], [(0, 4, "ORG")], 1),
        ([(1, 3, "A"), (0, 2, "B")], [(0, 2, "B")], 1),  # as long: the leftmost
        ([(0, 2, "A"), (0, 2, "B")], [(0, 2, "A")], 1),  # the same stretch: the first named
        ([(0, 2, "A"), (0, 2, "A")], [(0, 2, "A")], 0),  # a repetition is no overlap
        ([(0, 2, "A"), (1, 5, "B"), (4, 6, "C")], [(1, 5, "B")], 2),
        ([(3, 4, "A"), (0, 2, "B"), (2, 3, "A")], [(0, 2, "B"), (2, 3, "A"), (3, 4, "A")], 0),
        ([], [], 0),
    ],
)
def test_overlaps_keep_the_longest_then_the_leftmost(
    spans: list[tuple[int, int, str]], kept: list[tuple[int, int, str]], dropped: int
) -> None:
    assert resolve_overlaps(spans) == (kept, dropped)
