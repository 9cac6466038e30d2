"""``explain`` and ``report``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from click.testing import Result

import pyro_chmm

from .conftest import succeeded
from .test_bad_input import refused


def test_explain_prints_what_python_says(demo_run: tuple[Path, Result]) -> None:
    directory, _ = demo_run
    printed = succeeded("explain", "--model", directory, "--data", "demo", "--document", "test-2", "--token", 8).stdout
    model = pyro_chmm.SparseCHMM.load(directory)
    found = model.explain(pyro_chmm.load_dataset("demo").test, "test-2", 8)
    rows = {line.split("  ")[0].strip(): line.split() for line in printed.splitlines() if line.strip()}
    assert printed.startswith(f"Document test-2, token 8, 'Marlow': {found.label}, gold B-PER\n")
    for vote in found.votes:
        assert rows[vote.lf][1] == (vote.label or "-")
        if vote.weight:
            assert rows[vote.lf][-len(found.labels) :] == [f"{value:.2f}" for value in vote.log_evidence]
    assert rows["posterior, %"][-len(found.labels) :] == [f"{100 * value:.2f}" for value in found.marginals]
    assert rows["left neighbors, %"][-len(found.labels) :] == [f"{100 * value:.2f}" for value in found.left]


def test_explain_what_is_not_there(demo_run: tuple[Path, Result]) -> None:
    arguments = ["explain", "--model", demo_run[0], "--data", "demo"]
    assert "no document 'x'; the corpus has 150 documents" in refused(*arguments, "--document", "x", "--token", 0)
    assert "has no token 99; its 10 tokens" in refused(*arguments, "--document", "test-2", "--token", 99)
    assert "has no nowhere split" in refused(*arguments, "--document", "x", "--token", 0, "--split", "nowhere")
    assert "holds no saved model" in refused("explain", "--model", "none", "--data", "demo", "--document", "x", "--token", 0)


def test_report_is_one_file_in_one_step(demo_run: tuple[Path, Result], tmp_path: Path) -> None:
    out = tmp_path / "new" / "report.html"
    result = succeeded("report", "--model", demo_run[0], "--data", "demo", "--split", "valid", "--out", out)
    assert result.stdout == f"Wrote {out} ({out.stat().st_size / 1e6:.1f} MB).\n"
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]
    text = out.read_text(encoding="utf-8")
    assert "demo, split valid" in text
    assert ">Training<" in text  # the run has a history
    before = out.read_bytes()
    assert "has no nowhere split" in refused("report", "--model", demo_run[0], "--data", "demo", "--split", "nowhere", "--out", out)
    assert out.read_bytes() == before


def test_report_without_the_extra(demo_run: tuple[Path, Result], tmp_path: Path) -> None:
    """In a process of its own, where nothing of the extra can be found."""
    program = (
        "import importlib.util, sys\n"
        "real = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'matplotlib' else real(name, *rest)\n"
        "from pyro_chmm.cli.main import main\n"
        "main(sys.argv[1:])\n"
    )
    arguments = ["report", "--model", demo_run[0], "--data", "demo", "--out", tmp_path / "report.html"]
    done = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert 'needs matplotlib, which is not installed: pip install "pyro-chmm[inspect]"' in done.stderr
    assert not os.listdir(tmp_path)

