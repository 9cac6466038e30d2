"""``pyro-chmm simulate``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import pyro_chmm
from pyro_chmm.label_models import simulating
from pyro_chmm.model.simulation import Size, Truth, draw_corpus, readable

from .conftest import invoke, succeeded

SMALL = ("--types", 2, "--lfs", 4, "--length", 5, "--documents", 230)


def test_a_folder_that_data_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulating, "_BLOCK", 100)  # several blocks
    out = tmp_path / "simulated"
    result = succeeded("simulate", *SMALL, "--seed", 7, "--out", out)
    assert "Wrote 4 LFs' votes on 230 in train, 23 in valid, 23 in test" in result.output
    assert "Test F1 of who knows the truth: " in result.output
    dataset = pyro_chmm.load_dataset(str(out))
    assert [split.num_documents for split in (dataset.train, dataset.valid, dataset.test)] == [230, 23, 23]
    truth = Truth.draw(Size(2, 4, 5), seed=7)
    written = json.loads((out / "truth.json").read_text())
    np.testing.assert_allclose(written["reliability"], truth.reliability)
    np.testing.assert_allclose(written["transition"], truth.transition)
    drawn = readable(draw_corpus(truth, 23, np.random.default_rng([7, 3])))
    assert dataset.test.tokens == drawn.tokens
    np.testing.assert_array_equal(dataset.test.weak_labels, drawn.weak_labels)
    np.testing.assert_array_equal(dataset.test.gold, drawn.gold)
    scores = succeeded("lfs", "--data", out, "--split", "test", "--json").output
    assert len(json.loads(scores)["lfs"]) == 4


def test_a_seed_gives_the_same_files_and_another_gives_others(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        succeeded("simulate", *SMALL, "--seed", seed, "--out", tmp_path / name)
    files = {name: [(tmp_path / name / file).read_bytes() for file in ("train.jsonl", "truth.json")] for name in "abc"}
    assert files["a"] == files["b"] != files["c"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--reliability", "0.9", "0.1"), "reliability is 0.9 to 0.1; expected two shares between 0 and 1, the smaller one first."),
        (("--like", "mars"), "'mars' is not one of 'laptop'"),
        (("--documents", "0"), "0 is not in the range x>=1"),
        (("--documents", "100000000000"), "simulate fewer documents, or write elsewhere"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    result = invoke("simulate", *arguments, "--out", tmp_path / "simulated")
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_over_or_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine").write_text("kept")
    result = invoke("simulate", *SMALL, "--out", tmp_path / "there")
    assert result.exit_code == 2
    assert "exists already; choose another folder." in result.output
    shutil.rmtree(tmp_path / "there")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(simulating, "most_probable", interrupted)
    assert invoke("simulate", *SMALL, "--out", tmp_path / "there").exit_code == 130
    assert list(tmp_path.iterdir()) == []
