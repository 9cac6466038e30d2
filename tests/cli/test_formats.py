"""``convert``, ``predict --format`` and ``export``; and the same data in six formats give the same labels."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

import pyro_chmm
from pyro_chmm import Corpus, CorpusSplits, SparseCHMM
from pyro_chmm.data.converting import convert
from pyro_chmm.data.formats.registry import FORMATS

from .conftest import invoke, succeeded


def test_convert_there_and_back(own_data: Path, tmp_path: Path) -> None:
    result = succeeded("convert", own_data, tmp_path / "columns", "--to", "conll")
    assert result.stdout == f"Wrote 12 documents to {tmp_path / 'columns'} (conll).\n"
    result = succeeded("convert", tmp_path / "columns" / "test.conll", tmp_path / "test.json")
    assert "Wrote 4 documents" in result.stdout
    assert "Not in it: names of LFs and types" in result.stdout
    found, expected = pyro_chmm.load_dataset(tmp_path / "columns").test, pyro_chmm.load_dataset(own_data).test
    np.testing.assert_array_equal(found.weak_labels, expected.weak_labels)
    np.testing.assert_array_equal(found.gold, expected.gold)  # type: ignore[arg-type]
    assert found.document_ids == expected.document_ids


def test_convert_with_named_columns(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("Anna B-PER O B-PER\nsings O O O\n")
    succeeded("convert", tmp_path / "x.txt", tmp_path / "x.jsonl", "--columns", "dictionary,_,gold")
    (line,) = (json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines())
    assert line["labels"] == ["B-PER", "O"]
    assert line["weak_labels"] == {"dictionary": [[0, 1, "PER"]]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.json", "x.jsonl"], "'nowhere.json' is neither"),
        (["nowhere.json", "x.jsonl", "--from", "wrench"], "nowhere.json cannot be read"),
        (["demo", "x.foo"], "has the splits train, valid, test"),
        (["demo", "x", "--to", "yaml"], "no format 'yaml'; the formats are wrench"),
        (["demo", "x", "--to", "wrench"], "no way to say that an LF abstains"),
        (["demo", "x.json", "--from", "docbin", "--columns", "a"], "Columns are named for conll"),
    ],
)
def test_convert_refuses(arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke("convert", *arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr


@pytest.mark.parametrize("name", ["conll", "docbin", "matrix", "hf", "wrench-bio"])
def test_predict_writes_every_format(name: str, demo_run: tuple[Path, Result], tmp_path: Path) -> None:
    out = tmp_path / f"labels{FORMATS[name].suffix}"
    succeeded("predict", "--model", demo_run[0], "--data", "demo", "--split", "test", "--out", out, "--format", name)
    found = pyro_chmm.load_dataset(out).train
    model, corpus = SparseCHMM.load(demo_run[0]), pyro_chmm.load_dataset("demo").test
    assert found.gold is not None
    assert [found.label_set.names[id] for id in found.gold] == [corpus.label_set.names[id] for id in model.predict_ids(corpus)]


def test_export(demo_run: tuple[Path, Result], tmp_path: Path) -> None:
    common = ["export", "--model", demo_run[0], "--data", "demo", "--split", "test", "--min-confidence", "0.9"]
    result = succeeded(*common, "--to", "conll", "--out", tmp_path / "x.conll")
    left_out = int(result.stdout.split("; ")[1].split(" of ")[0].replace(",", ""))
    assert (pyro_chmm.load_dataset(tmp_path / "x.conll").train.weak_labels == -1).sum() == left_out > 0
    assert invoke(*common, "--to", "flair", "--out", tmp_path / "x").exit_code == 2


def part(corpus: Corpus, documents: int) -> Corpus:
    """The first documents, as a file of one's own would name its LFs and types."""
    return corpus.select_documents(range(documents))


def test_laptop_in_six_formats_gives_the_same_labels(wrench: Callable[[str], CorpusSplits], tmp_path: Path) -> None:
    laptop = wrench("laptop")
    splits = {"train": part(laptop.train, 120), "valid": part(laptop.valid, 40), "test": part(laptop.test, 60)}
    names = ["wrench", "wrench-bio", "conll", "docbin", "jsonl", "matrix"]
    source = tmp_path / "jsonl"
    for split, corpus in splits.items():
        FORMATS["jsonl"].write(source / f"{split}.jsonl", corpus, None)
    labels = {}
    for name in names:
        if name != "jsonl":
            convert(source, tmp_path / name, write_as=name)
        data = pyro_chmm.load_dataset(tmp_path / name)
        model = SparseCHMM(encoder="none", epochs_stage1=2, epochs_stage2=1, epochs_stage3=1).fit(data.train, data.valid)
        labels[name] = model.predict(data.test)
    assert any(label != "O" for document in labels["wrench"] for label in document)
    assert all(labels[name] == labels["wrench"] for name in names)
