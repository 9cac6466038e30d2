"""Notebooks run from top to bottom, and print as much as the outputs that are committed with them."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def lines(notebook: nbformat.NotebookNode) -> list[int]:
    """How many lines each cell printed; what they say is checked by assertions in the notebooks, digits differ between machines."""
    texts = [[output.get("text", "") for output in cell.get("outputs", [])] for cell in notebook.cells]
    return ["".join(parts).count("\n") for parts in texts]


@pytest.mark.parametrize("name", ["quickstart", "verified_fast_path"])
def test_it_runs_to_the_end(name: str, tmp_path: Path) -> None:
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    committed = lines(notebook)
    assert sum(count > 0 for count in committed) >= 3
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert lines(notebook) == committed
