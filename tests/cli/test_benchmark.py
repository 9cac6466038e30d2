"""The command ``benchmark``."""

from __future__ import annotations

import json
from pathlib import Path

from .conftest import invoke, succeeded


def test_it_prints_and_writes_the_tables(own_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    arguments = ["benchmark", "--data", f"demo,{own_data}", "--models", "best-consensus,majority-vote,snorkel,chmm-fe"]
    arguments += ["--seeds", 1, "--encoder", "none", "--out", out]
    printed = succeeded(*arguments).stdout
    for text in ("Table 2", "Table 3", "Table 5", "majority vote, IO", "CHMM-FE", f"The results are in {out}."):
        assert text in printed
    assert f"(1) {own_data}, Snorkel: DataError: Snorkel needs at least 3 labeling functions" in printed
    assert {path.name for path in out.iterdir()} == {"runs", "benchmark.md", "benchmark.csv", "benchmark.json"}
    found = json.loads(succeeded(*arguments, "--json", "-q").stdout)
    assert found == json.loads((out / "benchmark.json").read_text())
    lone = next(run for run in found["runs"] if run["data"] == str(own_data) and run["system"] == "majority-vote")
    assert lone["scores"]["test"]["f1"] == 100.0
    assert len(found["runs"]) == 8


def test_a_wrong_name_lists_the_systems(tmp_path: Path) -> None:
    result = invoke("benchmark", "--data", "demo", "--models", "crf", "--out", tmp_path / "results")
    assert result.exit_code == 2
    assert "There is no system 'crf'; known are all, systems, ablations, best-consensus" in result.stderr
    assert not (tmp_path / "results").exists()
