"""One document a line: corpora, predictions, and everything that can be wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.datasets import load_dataset
from pyro_chmm.data.formats import jsonl
from pyro_chmm.data.labels import ABSTAIN
from pyro_chmm.errors import DataError


def read(folder: Path, *documents: Any) -> Corpus:
    lines = [line if isinstance(line, str) else json.dumps(line) for line in documents]
    (folder / "valid.jsonl").write_text("\n".join(lines))
    return load_dataset(folder / "valid.jsonl").valid


def test_a_corpus_is_written_and_read_again(tmp_path: Path, tiny: Corpus) -> None:
    labels = tiny.weak_labels.copy()
    labels[0, 2] = ABSTAIN
    tiny = Corpus(
        tiny.label_set, tiny.lf_names, tiny.tokens, tiny.offsets, labels, tiny.gold, tiny.document_ids
    )
    jsonl.write(tmp_path / "train.jsonl", tiny)
    (tmp_path / "meta.json").write_text('{"entity_types": ["PER", "LOC"]}')
    again = load_dataset(tmp_path).train
    assert (again.tokens, again.document_ids, again.lf_names) == (
        tiny.tokens,
        tiny.document_ids,
        tiny.lf_names,
    )
    np.testing.assert_array_equal(again.weak_labels, tiny.weak_labels)
    np.testing.assert_array_equal(again.gold, tiny.gold)  # type: ignore[arg-type]
    jsonl.write(tmp_path / "train.jsonl", tiny.without_gold())
    assert load_dataset(tmp_path).train.gold is None


def test_all_that_an_lf_can_say(tmp_path: Path) -> None:
    weak = {"spans": [[0, 1, "X"]], "names": ["O", None], "nothing": [], "abstains": None}
    corpus = read(
        tmp_path,
        {"tokens": ["a", "b"], "weak_labels": weak},
        "",
        {"tokens": [], "weak_labels": weak | {"spans": [], "names": []}},
    )
    assert corpus.lf_names == ("spans", "names", "nothing", "abstains")
    assert corpus.weak_labels.tolist() == [[1, 0, 0, ABSTAIN], [0, ABSTAIN, 0, ABSTAIN]]
    assert corpus.document_ids == ("0", "1")
    assert corpus.label_set.entity_types == ("X",)


def test_lfs_are_found_by_name_in_any_order(tmp_path: Path) -> None:
    one, two = {"a": [[0, 1, "X"]], "b": []}, {"b": [], "a": [[0, 1, "X"]]}
    corpus = read(tmp_path, {"tokens": ["w"], "weak_labels": one}, {"tokens": ["w"], "weak_labels": two})
    assert corpus.weak_labels.tolist() == [[1, 0], [1, 0]]
    (tmp_path / "meta.json").write_text('{"lf": ["b", "a"]}')
    assert load_dataset(tmp_path / "valid.jsonl").valid.weak_labels.tolist() == [[0, 1], [0, 1]]
    (tmp_path / "meta.json").write_text('{"lf": ["b", "c"]}')
    with pytest.raises(DataError, match="its LFs are a, b, but the data set's are b, c"):
        load_dataset(tmp_path / "valid.jsonl")


def test_predictions_are_written_in_order_with_their_posterior(tmp_path: Path, tiny: Corpus) -> None:
    ids = np.array([1, 2, 0, 0, 3, 0])
    posterior = np.full((6, 5), 0.05) + 0.75 * np.eye(5)[ids]
    posterior[0] = [1e-9, 1 - 1e-9, 0, 0, 0]
    parts = [posterior[tiny.document_slice(number)] for number in range(3)]
    target = tmp_path / "new" / "labels.jsonl"
    jsonl.write_predictions(target, tiny, ids, parts)
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert [line["id"] for line in lines] == ["x", "y", "z"]
    assert lines[0]["tokens"] == ["Anna", "Lee", "sings"]
    assert lines[0]["labels"] == ["B-PER", "I-PER", "O"]
    assert lines[1] == {"id": "y", "tokens": [], "labels": [], "posterior": []}
    assert lines[0]["posterior"][0] == {"B-PER": 1.0}
    assert lines[2]["posterior"][1] == {"O": 0.05, "B-PER": 0.05, "I-PER": 0.05, "B-LOC": 0.8, "I-LOC": 0.05}
    again = load_dataset(target)["train"]  # what predict writes can be read, its labels as gold labels
    assert again.num_lfs == 0
    assert again.gold is not None
    names = [again.label_set.name(label) for label in again.gold]
    assert names == ["B-PER", "I-PER", "O", "O", "B-LOC", "O"]
    jsonl.write_predictions(target, tiny, ids)
    assert "posterior" not in target.read_text()


def test_predictions_replace_a_file_whole_or_not_at_all(tmp_path: Path, tiny: Corpus) -> None:
    target = tmp_path / "labels.jsonl"
    target.write_text("precious")
    ids = np.zeros(6, np.int16)
    wrong: list[tuple[Any, Any, str]] = [
        (ids[:5], None, r"shape \(5,\) for 6 tokens"),
        (ids, [np.zeros((3, 5))], "1 posteriors for 3 documents"),
        (
            ids,
            [np.zeros((3, 5)), np.zeros((0, 5)), np.zeros((3, 4))],
            r"'z' has a posterior of shape \(3, 4\)",
        ),
        (ids - 1, None, "-1 is not a label id"),
    ]
    for labels, posteriors, message in wrong:
        with pytest.raises(DataError, match=message):
            jsonl.write_predictions(target, tiny, labels, posteriors)
    assert target.read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == ["labels.jsonl"]


def test_a_place_that_cannot_be_written_to(tmp_path: Path, tiny: Corpus) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for target in (tmp_path / "folder", tmp_path / "file" / "below.jsonl"):
        with pytest.raises(DataError, match="cannot be written"):
            jsonl.write(target, tiny)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (['{"tokens": ["a"]}', '{"tokens": ['], "valid.jsonl, line 2, column 13: malformed JSON"),
        (['{"tokens": [], "tokens": []}'], "line 1: malformed JSON: the key 'tokens' occurs twice"),
        ([[]], "line 1: a JSON object is expected, not a list"),
        ([{"id": 3, "tokens": []}], "line 1: the 'id' 3 is not a string"),
        ([{}], "document '0', 'tokens': a list is expected, not nothing"),
        ([{"tokens": [None], "labels": ["B-X"]}], "its tokens must be a list of strings"),
        ([{"tokens": ["a"], "weak_labels": [[]]}], "'weak_labels': a JSON object is expected, not a list"),
        (
            [{"tokens": ["a"], "weak_labels": {"p": []}}, {"tokens": ["a"], "weak_labels": {"q": []}}],
            "document '1': it has weak labels of the LFs q, but document '0' of p",
        ),
        (
            [{"tokens": ["a"], "weak_labels": {"p": []}}, {"tokens": ["a"]}],
            "document '1': it has weak labels of the LFs none, but document '0' of p",
        ),
        (
            [{"tokens": ["a"], "weak_labels": {"p": ["B-"]}, "labels": ["B-X"]}],
            "LF 'p', token 0: the label 'B-'",
        ),
        (
            [{"tokens": ["a"], "weak_labels": {"p": "X"}, "labels": ["B-X"]}],
            "LF 'p': a list of spans or of BIO",
        ),
        ([{"tokens": ["a"], "labels": ["B-X"]}, {"tokens": ["a"]}], "document '1' has no gold labels"),
        ([{"tokens": ["a"], "labels": ["O"]}], "no label names an entity type"),
    ],
)
def test_bad_files_are_refused_in_one_sentence(tmp_path: Path, documents: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path, *documents)
    assert "valid.jsonl" in str(caught.value)
    assert "\n" not in str(caught.value)
