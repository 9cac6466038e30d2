"""Progress of long work, shown by the command line and silent everywhere else.

Library code wraps a loop in :func:`task`; whoever owns the terminal (the command line) opens :func:`shown` around the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress, Task
    from rich.text import Text

_display: ContextVar[Progress | None] = ContextVar("pyro_chmm_progress", default=None)


@contextmanager
def shown() -> Iterator[None]:
    """Show the bars of every :func:`task` opened inside, on standard error and only on a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class RateColumn(ProgressColumn):
        """Units a second, e.g. ``812 documents/s``."""

        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.1f} {task.fields['unit']}/s", style="cyan")

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), RateColumn()]
    columns += [TimeRemainingColumn(), TextColumn("{task.fields[note]}", style="dim")]
    with Progress(*columns, console=console, transient=True) as display:
        token = _display.set(display)
        try:
            yield
        finally:
            _display.reset(token)


@contextmanager
def task(description: str, total: int, unit: str) -> Iterator[Callable[..., None]]:
    """Yield ``advance(count=1, note="")``, which moves a bar if one is shown and costs nothing otherwise.

    :param total: number of units in all.
    :param unit: what is counted, in the plural (``"documents"``), for the rate.
    """
    display = _display.get()
    if display is None:
        yield lambda count=1, note="": None
        return
    identity = display.add_task(description, total=total, unit=unit, note="")

    def advance(count: int = 1, note: str = "") -> None:
        display.update(identity, advance=count, note=note)

    try:
        yield advance
    finally:
        display.remove_task(identity)
