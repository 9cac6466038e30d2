"""The corpus: shape, validation, selection, and what readers of all kinds refuse."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyro_chmm.data.corpus import Corpus, CorpusSplits
from pyro_chmm.data.datasets import load_dataset
from pyro_chmm.data.labels import ABSTAIN, LabelSet
from pyro_chmm.errors import DataError


def test_spans_become_packed_labels(tiny: Corpus) -> None:
    assert (tiny.num_documents, tiny.num_tokens, tiny.num_lfs) == (3, 6, 3)
    assert tiny.label_set == LabelSet(("PER", "LOC"))
    assert tiny.offsets.tolist() == [0, 3, 3, 6]
    assert tiny.document_index.tolist() == [0, 0, 0, 2, 2, 2]
    assert tiny.weak_labels.T.tolist() == [
        [1, 2, 0, 0, 3, 0],
        [1, 0, 0, 0, 1, 0],
        [0, 0, 0, ABSTAIN, ABSTAIN, ABSTAIN],
    ]
    assert tiny.gold is not None
    assert tiny.gold.tolist() == [1, 2, 0, 0, 3, 0]
    assert tiny.tokens[1] == ()  # deidentify#49: empty documents keep their place
    assert tiny.document_slice(2) == slice(3, 6)


def test_arrays_are_read_only_copies(tiny: Corpus) -> None:
    mine = np.zeros((6, 3), np.int16)
    corpus = replace(tiny, weak_labels=mine)
    mine[0, 0] = 1
    assert corpus.weak_labels[0, 0] == 0
    for array in (corpus.weak_labels, corpus.offsets, corpus.gold, corpus.document_index):
        assert array is not None
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offsets": [0, 3, 6]}, "offsets"),
        ({"weak_labels": np.zeros((6, 2), np.int16)}, r"shape \(6, 2\); 6 tokens and 3 LFs"),
        ({"weak_labels": np.zeros((6, 3))}, "whole numbers"),
        ({"weak_labels": np.full((6, 3), 70_000)}, "whole numbers that fit int16"),
        ({"gold": np.zeros(5, np.int16)}, r"gold labels have shape \(5,\)"),
        ({"gold": np.full(6, ABSTAIN)}, "'x', gold labels, token 0: -1 is not a label id"),
        ({"document_ids": ("x",)}, "1 document ids for 3 documents"),
        ({"lf_names": ("a", "a", "b")}, "'a' occurs twice"),
    ],
)
def test_what_does_not_fit_is_refused(tiny: Corpus, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        replace(tiny, **changes)


def test_an_id_outside_the_set_names_lf_document_and_label(tiny: Corpus) -> None:
    labels = tiny.weak_labels.copy()
    labels[4, 1] = 5  # snorkel#1316
    with pytest.raises(DataError, match="Document 'z', LF 'b', token 1: 5 is not a label id; the 5 labels"):
        replace(tiny, weak_labels=labels)


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([(0, 1, "DRUG")], "document '0', LF 'a': the label 'DRUG' .* entity types Disease"),
        (
            [(0, 4, "Disease")],
            r"document '0', LF 'a': the span \[0, 4, 'Disease'\] is not inside its 3 tokens",
        ),
        ([(2, 2, "Disease")], "is not inside"),
        ([(0, 1)], "is not a span"),
        ([(0, True, "Disease")], "is not a span"),
        ([(0.0, 1, "Disease")], "is not a span"),
        ([(0, 1, ["Disease"])], "is not a span"),
        ("Disease", "a list of spans or of BIO labels is expected"),
        (7, "a list of spans or of BIO labels is expected"),
        ({}, "a list of spans or of BIO labels is expected"),
        (["B-Disease", "O"], "2 labels for 3 tokens"),
        (["B-DRUG", "O", "O"], "LF 'a', token 0: the label 'B-DRUG' is not in the label set"),
        (["O", 3, "O"], "token 1: the label 3"),
    ],
)
def test_what_an_lf_may_not_say(spans: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Corpus.from_spans([["a", "b", "c"]], [[spans]], ["Disease"], ["a"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tokens": [["a"], ["b"]]}, "for each of the 2 documents"),
        ({"gold_spans": []}, "for each of the 1 documents"),
        ({"document_ids": []}, "0 document ids for 1 documents"),
        ({"weak_spans": [[[], []]]}, "its weak labels are of 2 LFs, where those of 1 LFs"),
        ({"weak_spans": [7]}, "its weak labels are of the kind int"),
        ({"tokens": ["word"]}, "a list of strings"),
        ({"tokens": [["a", 3]]}, "a list of strings"),
    ],
)
def test_lists_that_do_not_fit_are_refused(arguments: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "tokens": [["a"]],
        "weak_spans": [[[]]],
        "entity_types": ["X"],
        "lf_names": ["a"],
        "gold_spans": [[]],
    }
    with pytest.raises(DataError, match=message):
        Corpus.from_spans(**(good | arguments))


def test_overlapping_spans_are_counted_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        corpus = Corpus.from_spans(
            [list("abcde")],
            [[[(0, 4, "ORG"), (1, 2, "LOC")], [(4, 5, "LOC")]]],
            ["ORG", "LOC"],
            ["nested", "tidy"],
        )
    assert corpus.report.overlaps_dropped == {"nested": 1}
    assert corpus.weak_labels[:, 0].tolist() == [1, 2, 2, 2, 0]
    assert caplog.messages == [
        "1 overlapping spans were dropped (the longest is kept, then the leftmost): nested 1."
    ]
    assert corpus.select_lfs(["tidy"]).report.lines() == []
    assert Corpus.concatenate([corpus, corpus]).report.overlaps_dropped == {"nested": 2}


def test_choosing_lfs(tiny: Corpus) -> None:
    chosen = tiny.select_lfs(["c", "a"])
    assert chosen.lf_names == ("c", "a")
    np.testing.assert_array_equal(chosen.weak_labels, tiny.weak_labels[:, [2, 0]])
    assert tiny.select_lfs("b").lf_names == ("b",)
    with pytest.raises(DataError, match="There is no LF 'd'; the LFs are a, b, c"):
        tiny.select_lfs(["d"])
    with pytest.raises(DataError, match="name at least one"):
        tiny.select_lfs([])


def test_choosing_documents(tiny: Corpus) -> None:
    chosen = tiny.select_documents([2, 1, 2])
    assert chosen.document_ids == ("z", "y", "z")
    assert chosen.tokens == (("in", "Oslo", "today"), (), ("in", "Oslo", "today"))
    np.testing.assert_array_equal(chosen.weak_labels, np.tile(tiny.weak_labels[3:], (2, 1)))
    assert tiny.select_documents([]).num_tokens == 0
    for wrong in (3, -1):
        with pytest.raises(DataError, match=f"no document number {wrong}"):
            tiny.select_documents([wrong])


def test_putting_corpora_together(tiny: Corpus) -> None:
    both = Corpus.concatenate([tiny, tiny.select_documents([2])])
    assert both.document_ids == ("x", "y", "z", "z")
    np.testing.assert_array_equal(both.weak_labels, np.concatenate([tiny.weak_labels, tiny.weak_labels[3:]]))
    assert both.gold is not None
    assert Corpus.concatenate([tiny, tiny.without_gold()]).gold is None
    with pytest.raises(DataError, match="only if their entity types and LFs"):
        Corpus.concatenate([tiny, tiny.select_lfs(["a"])])
    with pytest.raises(DataError, match="no corpus"):
        Corpus.concatenate([])


def test_labels_are_brought_into_another_label_sets_order(tiny: Corpus) -> None:
    wider = LabelSet(("ORG", "LOC", "PER"))
    found = tiny.relabeled(wider)
    assert found.label_set == wider
    assert tiny.gold is not None
    assert found.gold is not None
    for before, after in ((tiny.weak_labels, found.weak_labels), (tiny.gold, found.gold)):
        names = [None if id == ABSTAIN else tiny.label_set.name(int(id)) for id in before.flat]
        assert [None if id == ABSTAIN else wider.name(int(id)) for id in after.flat] == names
    assert tiny.without_gold().relabeled(wider).gold is None
    assert tiny.relabeled(tiny.label_set) is tiny
    with pytest.raises(DataError, match="B-ORG"):
        found.relabeled(tiny.label_set)


def test_the_fingerprint_is_of_the_tokens_and_their_order(tiny: Corpus) -> None:
    def of(*tokens: list[str]) -> str:
        return Corpus.from_spans(tokens, [[[]]] * len(tokens), ["X"], ["a"]).fingerprint()

    assert tiny.fingerprint() == tiny.without_gold().select_lfs(["a"]).fingerprint()
    assert tiny.fingerprint() != tiny.select_documents([2, 1, 0]).fingerprint()
    different = [
        of(["ab", "c"]),
        of(["a", "bc"]),
        of(["ab"], ["c"]),
        of(["abc"]),
        of(["abc"], []),
        of(["a,b"]),
    ]
    assert len(set(different)) == len(different)
    assert of(["\ud800", "\u200b"])  # a lone surrogate, as JSON may hold, is no obstacle


def test_splits_that_are_missing_say_what_there_is(tiny: Corpus) -> None:
    splits = CorpusSplits("mine", {"valid": tiny, "test": tiny})
    assert splits.valid is splits.get("valid") is splits["test"] is splits.test
    assert splits.get("train") is None
    with pytest.raises(DataError, match="mine has no train split here; its splits are: valid, test"):
        _ = splits.train


def test_two_documents_of_one_name_are_refused(tmp_path: Path) -> None:
    lines = [{"id": name, "tokens": ["a"], "weak_labels": {"x": []}} for name in ("d", "e", "d")]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(DataError, match=r"train.jsonl.*'d': documents number 1 and 3 both have this name"):
        load_dataset(tmp_path)
