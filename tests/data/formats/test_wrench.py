"""Wrench's JSON in both layouts, and everything that can be wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.datasets import load_dataset
from pyro_chmm.data.formats import wrench
from pyro_chmm.data.labels import ABSTAIN
from pyro_chmm.errors import DataError

META = {"lf": ["a", "b"], "entity_types": ["PER", "LOC"], "lf_rec": ["a", "b"], "test_size ": 99}
SPANS = {
    "7": {
        "data": {"text": ["Anna", "Lee", "sings"]},
        "label": [[0, 2, "PER"]],
        "weak_labels": [[[0, 2, "PER"]], []],
    },
    "3": {"data": {"text": []}, "label": [], "weak_labels": [[], []]},
    "10": {"len": 2, "data": {"text": ["in", "Oslo"]}, "label": [], "weak_labels": [[], [[1, 2, "LOC"]]]},
}
BIO = {
    "7": {
        "data": {"text": ["Anna", "Lee", "sings"]},
        "label": ["B-PER", "I-PER", "O"],
        "weak_labels": [["B-PER", "O"], ["I-PER", "O"], ["O", "O"]],
    },
    "3": {"data": {"text": []}, "label": [], "weak_labels": []},
    "10": {
        "data": {"text": ["in", "Oslo"]},
        "label": ["O", "O"],
        "weak_labels": [["O", "O"], ["O", "B-LOC"]],
    },
}


def save(folder: Path, content: Any, meta: Any = META) -> Path:
    folder.mkdir(exist_ok=True)
    if meta is not None:
        (folder / "meta.json").write_text(json.dumps(meta))
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / "train.json").write_text(text, encoding="utf-8")
    return folder


def train(folder: Path, content: Any, meta: Any = META) -> Corpus:
    return load_dataset(save(folder, content, meta)).train


@pytest.mark.parametrize("content", [SPANS, BIO])
def test_both_layouts_give_the_same_corpus(tmp_path: Path, content: Any) -> None:
    corpus = train(tmp_path, content)
    assert corpus.document_ids == ("7", "3", "10")  # as in the file, the empty one included
    assert corpus.tokens == (("Anna", "Lee", "sings"), (), ("in", "Oslo"))
    assert corpus.weak_labels.T.tolist() == [[1, 2, 0, 0, 0], [0, 0, 0, 0, 3]]
    assert corpus.gold is not None
    assert corpus.gold.tolist() == [1, 2, 0, 0, 0]


@pytest.mark.parametrize("layout", ["spans", "bio"])
def test_what_is_written_is_read_again(tmp_path: Path, layout: Any) -> None:
    corpus = train(tmp_path, SPANS)
    wrench.write(tmp_path / "valid.json", corpus, layout=layout)
    again = load_dataset(tmp_path).valid
    assert again.tokens == corpus.tokens
    assert again.document_ids == corpus.document_ids
    np.testing.assert_array_equal(again.weak_labels, corpus.weak_labels)
    np.testing.assert_array_equal(again.gold, corpus.gold)  # type: ignore[arg-type]
    wrench.write(tmp_path / "test.json", corpus.without_gold(), layout=layout)
    assert load_dataset(tmp_path).test.gold is None


def test_abstentions_cannot_be_written(tmp_path: Path, tiny: Corpus) -> None:
    with pytest.raises(DataError, match="no way to say that an LF abstains"):
        wrench.write(tmp_path / "x.json", tiny)
    assert list(tmp_path.iterdir()) == []


def test_documents_without_any_vote(tmp_path: Path) -> None:
    """skweak#40: nobody says anything about the one in the middle."""
    silent = {"data": {"text": ["no", "one"]}, "weak_labels": [[], []]}
    voted = {"data": {"text": ["Anna"]}, "weak_labels": [[[0, 1, "PER"]], []]}
    corpus = train(tmp_path, {"0": voted, "1": silent, "2": voted})
    assert corpus.weak_labels[corpus.document_slice(1)].tolist() == [[0, 0], [0, 0]]
    assert corpus.gold is None


def test_null_in_the_bio_layout_is_an_abstention(tmp_path: Path) -> None:
    document = {"data": {"text": ["Anna", "Lee"]}, "weak_labels": [[None, "B-PER"], ["O", "I-PER"]]}
    assert train(tmp_path, {"0": document}).weak_labels.T.tolist() == [[ABSTAIN, 0], [1, 2]]


def test_stray_inside_labels_of_lfs_are_repaired_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    document = {
        "data": {"text": ["Anna", "Lee"]},
        "weak_labels": [["I-PER", "O"], ["I-PER", "I-LOC"]],
        "label": ["I-PER", "I-PER"],
    }
    corpus = train(tmp_path, {"0": document})
    assert corpus.weak_labels.T.tolist() == [[1, 2], [0, 3]]
    assert corpus.report.labels_repaired == {"a": 1, "b": 1}
    assert "2 I- labels without a B- before them were read as B-: a 1, b 1." in caplog.messages[0]
    assert corpus.gold is not None
    assert corpus.gold.tolist() == [2, 2]  # scored as they were written


def test_without_meta_names_and_types_are_those_that_occur(tmp_path: Path) -> None:
    corpus = train(tmp_path, SPANS, meta=None)
    assert corpus.label_set.entity_types == ("LOC", "PER")
    assert corpus.lf_names == ("LF0", "LF1")


def document(**changes: Any) -> dict[str, Any]:
    good = {"data": {"text": ["Anna", "Lee"]}, "label": [], "weak_labels": [[], []]}
    return {name: value for name, value in (good | changes).items() if value != "absent"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"0": {"data": ]}', r"train.json, line 1, column 16: malformed JSON: Expecting value"),
        ('{\n"0": 1,\n', "train.json, line 3, column 1: malformed JSON"),
        ('{"0": {}, "0": {}}', "the key '0' occurs twice"),
        ("[" * 100_000, "nested too deeply"),
        ('{"0": ' + "9" * 5000 + "}", "malformed JSON"),
        ("", "line 1, column 1: malformed JSON"),
        ([], "a JSON object is expected, not a list"),
        ({"0": 3}, "document '0': a JSON object is expected, not a number"),
        ({"0": document(data="absent")}, "document '0': it has no 'data'"),
        ({"0": document(weak_labels="absent")}, "document '0': it has no 'weak_labels'"),
        ({"0": document(data=None)}, "'data': a JSON object is expected, not nothing"),
        ({"0": document(data={})}, "'data', 'text': a list is expected, not nothing"),
        ({"0": document(data={"text": "Anna"})}, "'text': a list is expected, not a string"),
        ({"0": document(data={"text": ["Anna", True]})}, "its tokens must be a list of strings"),
        ({"0": document(weak_labels={})}, "'weak_labels': a list is expected, not an object"),
        ({"0": document(weak_labels=[[], 3])}, "LF 'b': a list of spans or of BIO labels is expected, not 3"),
        ({"0": document(weak_labels=[[[0, 1, "X"]], []])}, "document '0', LF 'a': the label 'X'"),
        ({"0": document(weak_labels=[[[0, 3, "PER"]], []])}, "LF 'a': the span .* not inside its 2 tokens"),
        ({"0": document(weak_labels=[[[0, "1", "PER"]], []])}, "is not a span"),
        ({"0": document(weak_labels=[[3], []])}, "2 tokens|1 labels"),
        (
            {"0": document(), "1": document(weak_labels=[[]])},
            "'1' has weak labels of 1 LFs, but document '0' of 2",
        ),
        ({"0": document(weak_labels=[[]])}, "'0' has weak labels of 1 LFs, but the data set has 2: a, b"),
        ({"0": document(weak_labels=[["O", "O"]])}, "weak labels for 1 tokens, but 2 tokens"),
        ({"0": document(weak_labels=[["O", "O"], ["O"]])}, "token 1: 2 LFs label .* but here are 1 labels"),
        ({"0": document(weak_labels=[["O", "O"], 7])}, "token 1: 2 LFs label .* but here are 7"),
        ({"0": document(weak_labels=[["O", "B-X"], ["O", "O"]])}, "LF 'b', token 0: the label 'B-X'"),
        ({"0": document(label=[[0, 9, "PER"]])}, "document '0', gold labels: the span"),
        ({"0": document(label=["O"])}, "gold labels: 1 labels for 2 tokens"),
        ({"0": document(label=["O", None])}, "gold labels, token 1: the label None"),
        ({"0": document(label=3)}, "gold labels: a list of spans or of BIO labels is expected"),
        (
            {"0": document(), "1": document(label="absent")},
            "document '1' has no gold labels, while others have",
        ),
    ],
)
def test_bad_files_are_refused_in_one_sentence(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        train(tmp_path, content)
    assert "train.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_text_that_is_not_utf8_or_not_there(tmp_path: Path) -> None:
    save(tmp_path, SPANS)
    (tmp_path / "train.json").write_bytes(b'{"0": "\xff"}')
    with pytest.raises(DataError, match="byte 7 is not UTF-8"):
        load_dataset(tmp_path)
    with pytest.raises(DataError, match="cannot be read: No such file"):
        wrench.read(tmp_path / "absent.json")


def test_a_byte_order_mark_is_no_obstacle(tmp_path: Path) -> None:
    save(tmp_path, "\ufeff" + json.dumps(SPANS))
    assert load_dataset(tmp_path).train.num_documents == 3
