"""Every format: what is written is read again without loss, and a file's format is found by its content."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyro_chmm import Corpus, LabelSet, load_dataset
from pyro_chmm.data.datasets import load_path
from pyro_chmm.data.formats import conll
from pyro_chmm.data.formats.registry import FORMATS, detect, labelled, write_labels
from pyro_chmm.errors import DataError

ALL = ["wrench", "wrench-bio", "conll", "docbin", "jsonl", "matrix", "hf"]
_SETTINGS = settings(
    max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

SURROGATES = st.characters(categories=["Cs"])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@st.composite
def corpora(draw: st.DrawFn, tokens: st.SearchStrategy[str], *, abstain: bool = True) -> Corpus:
    """A corpus with tokens of one kind, types in any order, coarse labels, gold labels or none, empty documents."""
    names = st.text(st.characters(categories=["L", "N", "P", "Zs"]), min_size=1, max_size=5).map(str.strip).filter(bool)
    usable = names.filter(lambda name: not name.startswith(("NOT_", "ENT")) and name not in ("gold", "pyro_chmm"))
    types = draw(st.lists(usable, min_size=1, max_size=3, unique=True))
    lfs = draw(st.lists(usable, min_size=1, max_size=3, unique=True))
    coarse = draw(st.sampled_from([[], ["ENT"], ["ENT", f"NOT_{types[0]}"]]))
    documents = draw(st.lists(st.lists(tokens, max_size=5), max_size=4))
    has_gold = draw(st.booleans())

    def column(label_set: LabelSet, lowest: int) -> st.SearchStrategy[list[int]]:
        return st.lists(st.integers(lowest, len(label_set) - 1), min_size=total, max_size=total)

    total = sum(map(len, documents))
    offsets = np.cumsum([0, *map(len, documents)])
    label_set, observed = LabelSet(tuple(types)), LabelSet((*types, *coarse))
    columns = [observed.repair(np.array(draw(column(observed, -1 if abstain else 0)), int), offsets) for _ in lfs]
    weak = np.stack(columns, axis=1).astype(np.int16) if lfs else np.zeros((total, 0), np.int16)
    gold = label_set.repair(np.array(draw(column(label_set, 0)), int), offsets) if has_gold else None
    is_coarse = weak >= len(label_set)
    ids = draw(st.lists(TEXT.filter(lambda name: "\0" not in name), min_size=len(documents), max_size=len(documents), unique=True))
    return Corpus(
        label_set,
        tuple(lfs),
        tuple(map(tuple, documents)),
        offsets,
        np.where(is_coarse, -1, weak),
        gold,
        tuple(ids),
        coarse_types=tuple(coarse),
        coarse_labels=np.where(is_coarse, weak - len(label_set), -1),
    )


def equal(found: Corpus, expected: Corpus) -> None:
    assert found.label_set == expected.label_set
    assert found.lf_names == expected.lf_names
    assert found.coarse_types == expected.coarse_types
    assert [tuple(document) for document in found.tokens] == [tuple(document) for document in expected.tokens]
    assert found.document_ids == expected.document_ids
    np.testing.assert_array_equal(found.observed_labels, expected.observed_labels)
    assert (found.gold is None) == (expected.gold is None) or not expected.num_tokens
    if expected.gold is not None and found.gold is not None:
        np.testing.assert_array_equal(found.gold, expected.gold)


def again(folder: Path, corpus: Corpus, name: str, number: list[int], meta: bool = False) -> Corpus:
    """Write and read."""
    number[0] += 1
    place = folder / f"{name}-{number[0]}"
    place.mkdir()
    if meta:
        described = {
            "lf": corpus.lf_names,
            "entity_types": corpus.label_set.entity_types,
            "coarse_types": corpus.coarse_types,
        }
        (place / "meta.json").write_text(json.dumps(described))
    path = place / f"test{FORMATS[name].suffix}"
    FORMATS[name].write(path, corpus, None)
    return load_path(path, "again").test


def no_tab(token: str) -> bool:
    return not any(mark in token for mark in "\t\n\r") and not token.startswith("-DOCSTART-")


KINDS: dict[str, tuple[st.SearchStrategy[str], bool, bool]] = {  # tokens, whether an LF may abstain, whether it needs a meta.json
    "wrench": (TEXT | SURROGATES, False, True),
    "wrench-bio": (TEXT | SURROGATES, False, True),
    "conll": (TEXT.filter(no_tab), True, False),
    "docbin": (TEXT.filter(bool), True, False),
    "jsonl": (TEXT | SURROGATES, True, False),
    "matrix": ((TEXT | SURROGATES).filter(lambda token: not token.endswith("\0")), True, False),
    "hf": (TEXT, True, False),
}


@pytest.mark.parametrize("name", ALL)
def test_what_is_written_is_read_again(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tokens, abstain, meta = KINDS[name]
    number = [0]
    caplog.set_level(logging.ERROR)

    @_SETTINGS
    @given(corpora(tokens, abstain=abstain))
    def check(corpus: Corpus) -> None:
        if name in ("wrench", "docbin", "jsonl", "hf") and not corpus.num_documents:
            return
        if name == "wrench-bio" and not corpus.num_tokens:
            return  # no document, or no token: nothing that holds the names
        equal(again(tmp_path, corpus, name, number, meta), corpus)

    check()


@pytest.mark.parametrize("name", ALL)
def test_the_format_is_found_by_its_content(name: str, tmp_path: Path, tiny: Corpus) -> None:
    corpus = tiny if name not in ("wrench", "wrench-bio") else tiny.select_lfs(["a", "b"])
    path = tmp_path / "data"
    FORMATS[name].write(path, corpus, None)
    assert detect(path).name == name.removesuffix("-bio")
    found = load_dataset(path).train
    assert [tuple(document) for document in found.tokens] == [tuple(document) for document in corpus.tokens]
    assert sorted(found.label_set.entity_types) == ["LOC", "PER"]


@pytest.mark.parametrize("name", ALL)
def test_labels_found_are_written_with_their_posterior(name: str, tmp_path: Path, tiny: Corpus) -> None:
    assert tiny.gold is not None
    posteriors = [np.full((length, 5), 0.2) for length in (3, 0, 3)]
    path = tmp_path / f"labels{FORMATS[name].suffix}"
    write_labels(path, tiny, tiny.gold, posteriors, FORMATS[name])
    found = load_dataset(path).train
    assert found.num_lfs == 0
    assert found.gold is not None
    labels = [found.label_set.names[id] for id in found.gold.tolist()]
    assert labels == ["B-PER", "I-PER", "O", "O", "B-LOC", "O"]


REFUSED: dict[str, tuple[Callable[[Path, Corpus], None], list[str]]] = {
    "conll: a line break": (lambda path, c: FORMATS["conll"].write(path, c, None), ["a\nb"]),
    "conll: a tab": (lambda path, c: FORMATS["conll"].write(path, c, None), ["a\tb"]),
    "conll: a surrogate": (lambda path, c: FORMATS["conll"].write(path, c, None), ["\ud800"]),
    "conll: nothing": (lambda path, c: FORMATS["conll"].write(path, labelled_none(c), None), [""]),
    "docbin: nothing": (lambda path, c: FORMATS["docbin"].write(path, c, None), [""]),
    "docbin: a surrogate": (lambda path, c: FORMATS["docbin"].write(path, c, None), ["x", "\ud800"]),
    "matrix: a NUL": (lambda path, c: FORMATS["matrix"].write(path, c, None), ["a\0"]),
    "hf: a surrogate": (lambda path, c: FORMATS["hf"].write(path, c, None), ["\ud800"]),
}


def labelled_none(corpus: Corpus) -> Corpus:
    return labelled(corpus, np.zeros(corpus.num_tokens)).without_gold()


@pytest.mark.parametrize("kind", REFUSED)
def test_tokens_that_a_format_cannot_hold_are_refused(kind: str, tmp_path: Path) -> None:
    write, tokens = REFUSED[kind]
    corpus = Corpus.from_spans([tokens], [[[]]], ["X"], ["a"], document_ids=["d"])
    with pytest.raises(DataError, match=r"out"):
        write(tmp_path / "out", corpus)
    assert list(tmp_path.iterdir()) == []


def test_conll_columns_by_hand(tmp_path: Path) -> None:
    """skweak#9 and #76: a file of columns, with spaces, Windows line ends and no header."""
    path = tmp_path / "reviews.txt"
    path.write_bytes(b"-DOCSTART- -X- O O\r\n\r\nAnna B-PER O B-PER\r\nLee I-PER - I-PER\r\n\r\n# O O O\r\n")
    found = load_dataset(path).train
    assert found.lf_names == ("LF0", "LF1", "LF2")
    assert [tuple(document) for document in found.tokens] == [("Anna", "Lee"), ("#",)]
    assert found.weak_labels.tolist() == [[1, 0, 1], [2, -1, 2], [0, 0, 0]]
    named = conll.read(path, columns=["dictionary", "_", "gold"])
    assert named.lf_names == ("dictionary",)
    assert named.gold == [["B-PER", "I-PER"], ["O"]]
    path.write_text("# lfs: x, y\n# types: PER, LOC\nAnna B-PER O B-PER\n")
    found = load_dataset(path).train
    assert found.lf_names == ("x", "y")
    assert found.label_set.entity_types == ("PER", "LOC")
    assert found.gold is not None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Anna O\nLee\n", "token 1: 1 columns, where the file's first token has 2"),
        ("# lfs: a, b, c\nAnna O\n", "1 columns beside the tokens, but '# lfs:' names 3 LFs"),
        ("# lfs: [1]\nAnna O\n", "line 1: a list of names is expected"),
        ("Anna B-X\nLee Y\n", "LF 'LF0', token 1: the label 'Y'"),
        ("Anna B-X\n\n# lfs: a\n", "line 3: '# lfs:' must come before the first document"),
        ("# types: PER\nAnna B-X\n", "the label 'B-X' is not in the label set"),
    ],
)
def test_bad_columns(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "data.conll"
    path.write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        load_dataset(path)
    assert "data.conll" in str(caught.value)


def test_a_matrix_by_hand(tmp_path: Path) -> None:
    """skweak#76: types without prefixes; neighbours of one type are one entity, but not across documents."""
    path = tmp_path / "m.npz"
    members = {
        "tokens": np.array(["Anna", "Lee", "Oslo", "Rome"]),
        "offsets": np.array([0, 3, 4]),
        "labels": np.array([[1, -1], [1, 0], [2, 0], [2, 0]]),
        "label_names": np.array(["O", "PER", "LOC"]),
    }
    np.savez(path, **members)
    found = load_dataset(path).train
    assert found.lf_names == ("LF0", "LF1")
    assert [found.label_set.names[id] for id in found.weak_labels[:, 0]] == ["B-PER", "I-PER", "B-LOC", "B-LOC"]
    assert found.weak_labels[:, 1].tolist() == [-1, 0, 0, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": np.zeros((3, 2), int)}, "'tokens' has 2 rows, 'labels' has 3 rows"),
        ({"labels": np.full((2, 1), 7)}, "document number 0, 'LF0', token 0: 7 is no label"),
        ({"labels": np.zeros((2, 1))}, "'labels' holds float64"),
        ({"offsets": np.array([0, 1])}, "'offsets' must ascend"),
        ({"lf_names": np.array(["a", "b"])}, "'lf_names' has 2 names; 1 are expected"),
        ({"tokens": np.array([{}, {}], object)}, "without pickle"),
    ],
)
def test_bad_matrices(change: dict[str, np.ndarray], message: str, tmp_path: Path) -> None:
    good = {
        "tokens": np.array(["a", "b"]),
        "offsets": np.array([0, 2]),
        "labels": np.zeros((2, 1), int),
        "label_names": np.array(["O", "B-X"]),
    }
    np.savez(tmp_path / "m.npz", **good | change)
    with pytest.raises(DataError, match=message):
        load_dataset(tmp_path / "m.npz")


def test_spacy_documents_as_skweak_leaves_them(tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy")
    vocab = spacy.vocab.Vocab()
    first, second = (spacy.tokens.Doc(vocab, words=words) for words in (["Anna", "sings"], ["in", "Oslo"]))
    first.spans["names"] = [spacy.tokens.Span(first, 0, 1, label="PER")]
    first.spans["places"] = []
    second.spans["places"] = [spacy.tokens.Span(second, 1, 2, label="LOC")]
    spacy.tokens.DocBin(docs=[first, second]).to_disk(tmp_path / "docs.spacy")
    found = load_dataset(tmp_path / "docs.spacy").train
    assert found.lf_names == ("names", "places")
    assert found.gold is None
    assert found.weak_labels.tolist() == [[3, 0], [0, 0], [-1, 0], [-1, 1]]


CHARACTERS = [
    {"text": "Anna Lee sings.", "weak_labels": {"a": [[0, 8, "PER"]]}, "labels": [{"start": 0, "end": 8, "label": "PER"}]},
    {
        "text": "in Oslo",
        "tokens": ["in", "Oslo"],
        "weak_labels": {"a": [{"start": 3, "end": 7, "label": "LOC"}]},
        "labels": ["O", "O"],
    },
    {"text": "Annas", "weak_labels": {"a": [[0, 4, "PER"]]}, "labels": []},
]


def test_character_offsets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tool.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in CHARACTERS))
    found = load_dataset(path).train
    assert [tuple(document) for document in found.tokens] == [("Anna", "Lee", "sings", "."), ("in", "Oslo"), ("Annas",)]
    assert [found.label_set.names[id] for id in found.weak_labels[:, 0]] == ["B-PER", "I-PER", "O", "O", "O", "B-LOC", "B-PER"]
    assert found.gold is not None
    assert found.gold.tolist() == [3, 4, 0, 0, 0, 0, 0]
    assert "1 spans that cut a token were widened" in caplog.text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"text": "a b", "weak_labels": {"x": [[0, 9, "P"]]}}, r"the span \[0, 9, 'P'\] is not inside its 3 characters"),
        ({"text": "a b", "weak_labels": {"x": [[1, 2, "P"]]}}, "touches no token"),
        ({"text": "a b", "tokens": ["b", "a"], "weak_labels": {"x": [{"start": 0, "end": 1, "label": "P"}]}}, "token 1, 'a'"),
        ({"text": 3, "weak_labels": {"x": []}}, "'text' must be a string"),
        ({"text": "a", "weak_labels": {"x": [{"start": "0", "end": 1, "label": "P"}]}}, "is not inside"),
    ],
)
def test_bad_character_offsets(line: dict[str, object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "tool.jsonl"
    path.write_text(json.dumps(line))
    with pytest.raises(DataError, match=message):
        load_dataset(path)


def test_coarse_labels_are_declared_in_meta_or_in_the_file(tmp_path: Path) -> None:
    line = json.dumps({"tokens": ["Anna", "in"], "weak_labels": {"a": [[0, 1, "ENT"]], "b": [[0, 1, "PER"]]}})
    (tmp_path / "one.jsonl").write_text('{"coarse_types": ["ENT"]}\n' + line)
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "train.jsonl").write_text(line)
    (tmp_path / "two" / "meta.json").write_text('{"coarse_types": ["ENT"], "entity_types": ["PER"]}')
    for name in ("one.jsonl", "two"):
        found = load_dataset(tmp_path / name).train
        assert found.label_set.entity_types == ("PER",)
        assert found.observed_labels.tolist() == [[3, 1], [0, 0]]


def test_what_is_no_regular_file_or_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="not a regular file"):
        FORMATS["jsonl"].read(Path("/dev/zero"))
    (tmp_path / "a.jsonl").write_text("{}")
    monkeypatch.setattr("pyro_chmm.data.formats.MAX_BYTES", 1)
    with pytest.raises(DataError, match="2 bytes; files of up to 1 are read"):
        load_dataset(tmp_path / "a.jsonl")
