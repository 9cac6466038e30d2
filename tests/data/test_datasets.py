"""Data sets by name and path: where they are looked for, and which LFs are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pyro_chmm.data import datasets
from pyro_chmm.data.datasets import dataset_path, fetch_dataset, find_dataset, list_datasets, load_dataset
from pyro_chmm.errors import DataError

NAMES = ["demo", "wrench/laptop", "wrench/ncbi", "wrench/bc5cdr", "wrench/conll", "wrench/ontonotes"]


@pytest.fixture(autouse=True)
def nothing_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No environment variable, and an empty cache."""
    monkeypatch.delenv("PYRO_CHMM_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pyro-chmm" / "data"


def put(root: Path, name: str = "wrench/laptop", splits: tuple[str, ...] = ("train",), **meta: Any) -> Path:
    """A small data set under a root, as the published ones are."""
    folder = root / name
    folder.mkdir(parents=True)
    for split in splits:
        document = {"data": {"text": [root.name]}, "weak_labels": [[[0, 1, "TERM"]], []]}
        (folder / f"{split}.json").write_text(json.dumps({"0": document}))
    described = {"lf": ["a", "b"], "lf_rec": ["b"], "entity_types": ["TERM"]} | meta
    (folder / "meta.json").write_text(json.dumps(described))
    return folder


def test_places_are_searched_in_order(
    tmp_path: Path, nothing_at_hand: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = put(nothing_at_hand, splits=("train", "valid", "test"))
    assert find_dataset("wrench/laptop") == cached
    variable = put(tmp_path / "variable")
    monkeypatch.setenv("PYRO_CHMM_DATA", str(tmp_path / "variable"))
    assert find_dataset("wrench/laptop") == variable
    argument = put(tmp_path / "argument")
    assert find_dataset("wrench/laptop", tmp_path / "argument") == argument
    assert load_dataset("wrench/laptop", data_root=tmp_path / "argument").train.tokens == (("argument",),)
    (tmp_path / "empty").mkdir()
    assert find_dataset("wrench/laptop", tmp_path / "empty") == variable


def test_a_cache_with_a_file_missing_does_not_count(nothing_at_hand: Path) -> None:
    put(nothing_at_hand, splits=("train", "valid"))
    assert find_dataset("wrench/laptop") is None


def test_every_known_name_is_listed_with_its_place(tmp_path: Path) -> None:
    folder = put(tmp_path, splits=("valid", "test"))
    places = {place.name: place for place in list_datasets(tmp_path)}
    assert list(places) == NAMES
    assert (places["wrench/laptop"].path, places["wrench/laptop"].splits) == (folder, ("valid", "test"))
    assert (places["wrench/ncbi"].path, places["wrench/ncbi"].splits) == (None, ())
    assert places["demo"].splits == ("train", "valid", "test")
    assert dataset_path("demo") == fetch_dataset("demo") == places["demo"].path


@pytest.mark.parametrize(
    "name", ["wrench/latpop", "../secrets", "wrench/../../etc", "/etc", "", "demo/..", "x" * 9999]
)
def test_unknown_names_are_refused_and_the_known_ones_named(name: str, tmp_path: Path) -> None:
    for function in (find_dataset, dataset_path, fetch_dataset):
        with pytest.raises(DataError, match=r"the known ones are demo, wrench/laptop, .*wrench/ontonotes"):
            function(name)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("name", ["wrench/latpop", "no/such/folder", "x" * 9999, "a\0b"])
def test_what_is_neither_name_nor_path_is_refused(name: str) -> None:
    with pytest.raises(DataError, match="neither a file or folder nor a known data set; those are demo, "):
        load_dataset(name)


def test_a_data_set_that_is_not_here(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="fetch it with: pyro-chmm data get wrench/laptop"):
        load_dataset("wrench/laptop", download=False)
    with pytest.raises(DataError, match="fetch it with"):
        dataset_path("wrench/laptop")
    with pytest.raises(DataError, match=r"data root '.*nowhere' is not a folder"):
        load_dataset("wrench/laptop", data_root=tmp_path / "nowhere")


def test_a_data_set_that_is_not_here_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = put(tmp_path / "fetched")
    monkeypatch.setattr(datasets, "fetch_dataset", lambda name: folder)
    assert load_dataset("wrench/laptop").train.tokens == (("fetched",),)


def test_which_lfs_are_kept(tmp_path: Path) -> None:
    folder = put(tmp_path)
    assert load_dataset(folder).train.lf_names == ("b",)
    assert load_dataset(folder, lfs="all").train.lf_names == ("a", "b")
    assert load_dataset(folder, lfs=["a"]).train.weak_labels.tolist() == [[1]]
    for wrong, message in ((["c"], "no LF 'c'"), ([], "name at least one"), ("a,b", 'give "all", or a list')):
        with pytest.raises(DataError, match=message):
            load_dataset(folder, lfs=wrong)
    (folder / "meta.json").write_text('{"lf": ["a", "b"]}')
    assert load_dataset(folder).train.lf_names == ("a", "b")


def test_a_single_file_is_one_split_named_after_it(tmp_path: Path) -> None:
    folder = put(tmp_path, splits=("valid",))
    assert list(load_dataset(folder / "valid.json").splits) == ["valid"]
    (folder / "valid.json").rename(folder / "mine.json")
    assert list(load_dataset(str(folder / "mine.json")).splits) == ["train"]
    with pytest.raises(DataError, match="holds no split; expected train, valid, test"):
        load_dataset(folder)
    (folder / "mine.json").rename(folder / "mine.txt")
    assert list(load_dataset(folder / "mine.txt").splits) == ["train"]  # known by its content


def test_a_missing_split_names_those_that_there_are(tmp_path: Path) -> None:
    put(tmp_path, "wrench/conll", splits=("valid", "test"))
    splits = load_dataset("wrench/conll", data_root=tmp_path)
    with pytest.raises(DataError, match="wrench/conll has no train split here; its splits are: valid, test"):
        _ = splits.train


def test_two_files_for_one_split_are_refused(tmp_path: Path) -> None:
    folder = put(tmp_path)
    (folder / "train.jsonl").touch()
    with pytest.raises(DataError, match=r"holds train\.json and train\.jsonl; keep one"):
        load_dataset(folder)


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ("[]", "meta.json: a JSON object is expected"),
        ('{"lf": "a"}', "meta.json, 'lf': a list is expected"),
        ('{"lf": ["a", 3]}', "meta.json, 'lf': 3 is not a name"),
        ('{"lf": ["a", "a"]}', "meta.json, 'lf': 'a' is listed twice"),
        ('{"entity_types": [""]}', "meta.json, 'entity_types': '' is not a name"),
        ('{"lf": ["a", "b"], "lf_rec": ["c"]}', "the LF 'c' of 'lf_rec' is not in 'lf'"),
        ('{"lf": ["a"]}', "has weak labels of 2 LFs, but the data set has 1: a"),
        ("{", "meta.json, line 1, column 2: malformed JSON"),
    ],
)
def test_a_meta_file_that_cannot_be_used(tmp_path: Path, meta: str, message: str) -> None:
    folder = put(tmp_path)
    (folder / "meta.json").write_text(meta)
    with pytest.raises(DataError, match=message):
        load_dataset(folder)


def test_the_published_data_sets_have_the_sizes_counted_by_hand(data_root: Path) -> None:
    sizes = {
        name: {split: (c.num_documents, c.num_tokens, c.num_lfs) for split, c in splits.splits.items()}
        for name in NAMES[1:]
        for splits in [load_dataset(name, data_root=data_root, download=False)]
    }
    assert sizes["wrench/laptop"] == {
        "train": (2436, 40904, 3),
        "valid": (609, 10298, 3),
        "test": (800, 11809, 3),
    }
    assert sizes["wrench/ncbi"]["test"] == (99, 22901, 5)
    assert sizes["wrench/bc5cdr"]["test"] == (500, 112315, 9)
    assert sizes["wrench/conll"]["test"] == (3453, 46435, 16)
    assert sizes["wrench/ontonotes"]["valid"] == (5000, 84487, 17)


def test_an_lf_with_no_votes_in_a_split(data_root: Path) -> None:
    """snorkel-tutorials#44, on OntoNotes' recommended ``money_detector``."""
    corpus = load_dataset("wrench/ontonotes", data_root=data_root, download=False).valid
    silent = [
        name for name, column in zip(corpus.lf_names, corpus.weak_labels.T, strict=True) if not column.any()
    ]
    assert silent == ["money_detector"]
