"""Tables of a benchmark, from results made by hand."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

from pyro_chmm.data.corpus import Corpus, CorpusSplits
from pyro_chmm.inspection.benchmark import Result
from pyro_chmm.inspection.benchmark_tables import (
    ablation_table,
    benchmark_tables,
    score_table,
    seconds_table,
    statistics_table,
    to_csv,
    write_tables,
)


def done(data: str, system: str, seed: int, f1: float, **more: object) -> Result:
    return Result(data, system, seed, "done", "minilm", {"valid": None, "test": scores(f1)}, **more)


def scores(f1: float) -> dict[str, float]:
    return {"f1": f1, "precision": f1 + 1, "recall": f1 - 1}


STAGES = {"1": {"test": scores(70.0)}, "2": {"test": scores(71.0)}, "3": {"test": scores(74.0)}}
RESULTS = [
    done("wrench/laptop", "majority-vote", 0, 73.27),
    done("wrench/laptop", "sparse-chmm", 0, 73.0, stages=STAGES, seconds_per_epoch={"1": 0.5, "2": 0.25}, epochs={"1": 20, "2": 5}),
    done("wrench/laptop", "sparse-chmm", 1, 75.0, stages=STAGES, seconds_per_epoch={"1": 1.5, "2": 0.25}, epochs={"1": 30, "2": 5}),
    Result("wrench/laptop", "sparse-chmm", 2, "failed", message="TrainingError: no | number"),
    done("wrench/laptop", "no-stage2", 0, 72.0),
    Result("mine", "snorkel", 0, "missing", message="pip install it"),
    Result("mine", "snorkel", 1, "missing", message="pip install it"),
    done("mine", "sparse-chmm", 0, 50.0),
]
DATA = ("wrench/laptop", "mine")


def test_scores_are_means_with_the_papers_beside() -> None:
    table = score_table(RESULTS, DATA)
    assert table.columns == ("", "wrench/laptop", "paper, bert-base-uncased", "mine")
    assert table.title.endswith("(encoder: minilm)")
    rows = {row[0]: row[1:] for row in table.rows}
    assert list(rows) == ["majority vote, IO", "Snorkel", "Sparse-CHMM"]
    assert rows["majority vote, IO"] == ("73.27 (74.27 / 72.27)", "73.27 (88.86 / 62.33)", "-")
    assert rows["Snorkel"] == ("-", "73.27 (88.86 / 62.33)", "missing (1)")
    # standard deviation of 73 and 75 over seeds, n - 1 in the denominator: the square root of 2
    assert rows["Sparse-CHMM"] == (
        "74.00 ± 1.41 (75.00 / 73.00); failed (2)",
        "75.90 (91.94 / 64.62)",
        "50.00 (51.00 / 49.00)",
    )
    assert table.notes == (
        "(1) mine, Snorkel: pip install it",
        "(2) wrench/laptop, Sparse-CHMM: TrainingError: no | number",
    )


def test_stages_and_ablations() -> None:
    table = ablation_table(RESULTS, DATA)
    assert table.rows == (
        ("Sparse-CHMM", "74.00 ± 1.41; failed (1)", "75.90", "50.00"),
        ("stage 1", "70.00 ± 0.00; failed (1)", "73.59", "-"),
        ("stage 2", "71.00 ± 0.00; failed (1)", "74.42", "-"),
        ("without stage 2", "72.00", "73.11", "-"),
    )


def test_seconds() -> None:
    assert seconds_table(RESULTS, DATA).rows == (
        ("Sparse-CHMM, stage 1", "1.00 (25)", "2.06 (25)", "-"),
        ("Sparse-CHMM, stage 2", "0.25 (5)", "1.82 (6)", "-"),
    )


def test_statistics_are_the_papers(wrench: Callable[[str], CorpusSplits]) -> None:
    (row,) = statistics_table({"wrench/laptop": wrench("laptop")}).rows
    assert row[1:4] == ("2436", "609", "800")
    assert row[5:] == ("1", "3", "2436 / 609 / 800, 1, 3")


def test_tables_without_rows_are_left_out(tiny: Corpus) -> None:
    corpora = {"mine": CorpusSplits("mine", {"test": tiny})}
    tables = benchmark_tables([done("mine", "majority-vote", 0, 50.0)], corpora)
    assert [table.title[:7] for table in tables] == ["Table 2", "Table 3"]
    assert tables[0].rows == (("mine", "-", "-", "3", "6", "2", "3", "-"),)


def test_csv_has_a_row_a_run_and_split() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(RESULTS))))
    assert len(rows) == 5 * 2 + 3
    first = next(row for row in rows if row["system"] == "sparse-chmm" and row["split"] == "test")
    assert (first["seed"], float(first["f1"]), first["encoder"]) == ("0", 73.0, "minilm")
    failed = next(row for row in rows if row["status"] == "failed")
    assert (failed["message"], failed["f1"]) == ("TrainingError: no | number", "")


def test_files(tmp_path: Path) -> None:
    table = score_table(RESULTS, DATA)
    write_tables(tmp_path / "out", [table], RESULTS)
    text = (tmp_path / "out" / "benchmark.md").read_text()
    assert "| Snorkel | - | 73.27 (88.86 / 62.33) | missing (1) |" in text
    assert "(1) mine, Snorkel: pip install it" in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {5}
    content = json.loads((tmp_path / "out" / "benchmark.json").read_text())
    assert [Result(**run) for run in content["runs"]] == RESULTS
    assert content["tables"][0]["title"] == table.title
    assert (tmp_path / "out" / "benchmark.csv").read_text() == to_csv(RESULTS)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["benchmark.csv", "benchmark.json", "benchmark.md"]


def test_a_standard_deviation_needs_two_seeds() -> None:
    (row,) = score_table([done("mine", "hmm", 0, 60.0)], ("mine",)).rows
    assert row == ("HMM", "60.00 (61.00 / 59.00)")
    assert "±" not in row[1]
