"""Tables for a terminal or a pipe."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Any

import click

DASH = "-"


def echo_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, wide: int = 1) -> None:
    """Print a table to standard output; never cut, whatever the width of the terminal.

    :param wide: how many leading columns hold text; the others hold numbers and are aligned to the right.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < wide else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    text = io.StringIO()
    # the table takes what it needs; the width only has to be beyond that
    Console(file=text, force_terminal=sys.stdout.isatty(), width=10_000).print(table)
    click.echo(title)
    click.echo("\n".join(line.rstrip() for line in text.getvalue().rstrip().splitlines()))


def percent(value: float | None) -> str:
    """A score in percent as tables show it."""
    return DASH if value is None else f"{value:.2f}"


def score_cells(score: dict[str, Any] | None) -> list[str]:
    """Precision, recall and F1 of a score, or dashes."""
    return [percent(None if score is None else score[name]) for name in ("precision", "recall", "f1")]
