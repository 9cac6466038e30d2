"""The benchmark's grid: what runs, what is found again, and what becomes of what cannot run."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from pyro_chmm.data.datasets import load_dataset
from pyro_chmm.errors import ConfigError, DataError
from pyro_chmm.inspection import benchmark
from pyro_chmm.inspection.benchmark import BenchmarkSettings, IsolatedCalls, Result, run_benchmark
from pyro_chmm.inspection.benchmark_systems import GROUPS, SYSTEMS, choose_systems
from pyro_chmm.label_models.hmm import HMM
from pyro_chmm.label_models.majority_vote import MajorityVote
from tests.model.corpora import make_corpus

FAST = ("best-consensus", "majority-vote", "majority-vote-bio", "dawid-skene", "hmm")


@pytest.fixture(autouse=True)
def fresh_data() -> Iterator[None]:
    benchmark.load_corpora.cache_clear()
    yield
    benchmark.load_corpora.cache_clear()


def write_data(folder: Path, *, lfs: int = 3, gold: bool = True, seed: int = 0) -> str:
    """A data set of three splits of random documents."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, split in enumerate(("train", "valid", "test")):
        corpus = make_corpus(20, seed=seed + number)
        names, labels = corpus.lf_names[:lfs], corpus.label_set
        lines = []
        for m in range(corpus.num_documents):
            part = corpus.document_slice(m)
            weak = {
                name: [list(span) for span in labels.decode_spans(labels.repair(corpus.weak_labels[part, k]))]
                for k, name in enumerate(names)
            }
            document: dict[str, Any] = {"id": f"{split}{m}", "tokens": corpus.tokens[m], "weak_labels": weak}
            if gold:
                document["labels"] = [labels.name(id) for id in labels.repair(corpus.gold[part])]
            lines.append(json.dumps(document) + "\n")
        (folder / f"{split}.jsonl").write_text("".join(lines))
    (folder / "meta.json").write_text(json.dumps({"entity_types": ["X", "Y"], "lf": list(names)}))
    return str(folder)


def settings_of(tmp_path: Path, *data: str, **changes: Any) -> BenchmarkSettings:
    values = {"models": FAST, "seeds": 2, "out": tmp_path / "results", "encoder": "none", **changes}
    return BenchmarkSettings(data, **values)


def by_cell(results: list[Result]) -> dict[tuple[str, str, int], Result]:
    return {(result.data, result.system, result.seed): result for result in results}


def test_every_cell_is_scored(tmp_path: Path) -> None:
    one, two = write_data(tmp_path / "one"), write_data(tmp_path / "two", seed=50)
    results = by_cell(run_benchmark(settings_of(tmp_path, one, two)))
    seeds = {"majority-vote-bio": 2}  # what does not depend on a seed runs once
    assert set(results) == {(data, name, seed) for data in (one, two) for name in FAST for seed in range(seeds.get(name, 1))}
    for data in (one, two):
        splits = load_dataset(data)
        models = {
            ("majority-vote", 0): MajorityVote(),
            ("majority-vote-bio", 1): MajorityVote("bio", "random", 1),
            ("hmm", 0): HMM().fit(splits.train),
        }
        for (name, seed), model in models.items():
            result, expected = results[data, name, seed], model.score(splits.test)
            assert result.status == "done"
            assert result.scores["test"] == {"f1": expected.f1, "precision": expected.precision, "recall": expected.recall}
        assert results[data, "hmm", 0].epochs == {"1": len(models["hmm", 0].log_density_)}
        assert results[data, "hmm", 0].seconds_per_epoch["1"] > 0


def test_a_second_call_runs_what_is_missing_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_data(tmp_path / "one")
    settings = settings_of(tmp_path, data)
    first = run_benchmark(settings_of(tmp_path, data, models=("hmm", "majority-vote")))
    ran: list[str] = []
    run = benchmark._run
    monkeypatch.setattr(benchmark, "_run", lambda job, splits: ran.append(job.system) or run(job, splits))
    second = run_benchmark(settings)
    assert sorted(ran) == ["best-consensus", "dawid-skene", "majority-vote-bio", "majority-vote-bio"]
    assert [result for result in second if result.system in ("hmm", "majority-vote")] == sorted(
        first, key=lambda result: result.system == "hmm"
    )
    ran.clear()
    assert run_benchmark(settings) == second
    assert ran == []
    # a result that was cut short is no result
    damaged = next((tmp_path / "results" / "runs").glob("*-hmm-*.json"))
    damaged.write_text(damaged.read_text()[:40])
    run_benchmark(settings)
    assert ran == ["hmm"]
    # other data are another configuration
    write_data(tmp_path / "one", seed=9)
    benchmark.load_corpora.cache_clear()
    ran.clear()
    run_benchmark(settings)
    assert len(ran) == len(second)


def test_one_that_fails_is_reported_and_tried_again(tmp_path: Path) -> None:
    data = write_data(tmp_path / "one", lfs=2)
    settings = settings_of(tmp_path, data, models=("majority-vote", "snorkel", "hmm"))
    for _ in range(2):
        results = run_benchmark(settings)
        assert [result.status for result in results] == ["done", "failed", "failed", "done"]
        assert results[1].message == "DataError: Snorkel needs at least 3 labeling functions; the corpus has 2."
    assert len(list((tmp_path / "results" / "runs").iterdir())) == 2


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "snorkel.labeling.model", None)
    data = write_data(tmp_path / "one")
    missing, vote = sorted(
        run_benchmark(settings_of(tmp_path, data, models=("majority-vote", "snorkel"), seeds=1)), key=lambda r: r.status == "done"
    )
    assert (missing.status, vote.status) == ("missing", "done")
    assert "pip install 'pyro-chmm[snorkel]'" in missing.message


def test_what_needs_gold_is_skipped_without(tmp_path: Path) -> None:
    data = write_data(tmp_path / "one", gold=False)
    results = run_benchmark(settings_of(tmp_path, data, models=("best-consensus", "chmm-fe", "majority-vote"), seeds=1))
    assert [(result.system, result.status) for result in results] == [
        ("best-consensus", "done"),
        ("chmm-fe", "skipped"),
        ("majority-vote", "done"),
    ]
    assert results[1].message == "it needs gold labels, and train has none"
    assert results[2].scores == {"valid": None, "test": None}


def test_side_by_side_is_the_same(tmp_path: Path) -> None:
    data = write_data(tmp_path / "one")
    models = ("majority-vote", "hmm")
    alone = run_benchmark(settings_of(tmp_path, data, models=models, out=tmp_path / "a"))
    together = run_benchmark(settings_of(tmp_path, data, models=models, out=tmp_path / "b", jobs=2))
    assert [result.scores for result in alone] == [result.scores for result in together]
    assert {result.status for result in together} == {"done"}


def test_a_process_that_dies_takes_no_other_with_it() -> None:
    with IsolatedCalls(1) as calls:
        dead, alive = calls.submit(os._exit, 9), calls.submit(abs, -3)
        with pytest.raises(BrokenProcessPool):
            dead.result()
        assert alive.result() == 3


def test_names_of_systems() -> None:
    assert choose_systems(["all"]) == tuple(SYSTEMS)
    assert choose_systems(["hmm", "best-consensus", "hmm"]) == ("best-consensus", "hmm")
    assert choose_systems(["ablations"]) == GROUPS["ablations"]
    with pytest.raises(ConfigError, match=r"no system 'crf'; known are all, systems, ablations, best-consensus"):
        choose_systems(["crf"])


def test_what_makes_no_sense_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither a file or folder nor a known data set"):
        run_benchmark(settings_of(tmp_path, write_data(tmp_path / "one"), str(tmp_path / "nowhere")))
    with pytest.raises(ConfigError, match="at least 1 seed"):
        run_benchmark(settings_of(tmp_path, "demo", seeds=0))
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        run_benchmark(settings_of(tmp_path, write_data(tmp_path / "one"), out=tmp_path / "file"))
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("name", [name for name, system in SYSTEMS.items() if system.make is not None])
def test_every_system_can_be_made_and_described(name: str) -> None:
    made = benchmark.settings_of(SYSTEMS[name].make(benchmark.Setup(3, "none")))
    json.dumps(made)
    assert made.get("seed", 3) == (0 if name == "majority-vote" else 3)
