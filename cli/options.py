"""Options that several commands share, and one option for every hyper-parameter. Imports no torch."""

from __future__ import annotations

import functools
import logging
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TextIO, TypeVar, get_args, get_origin, get_type_hints

import click

from pyro_chmm.model.config import SparseCHMMConfig
from pyro_chmm.presets import load_preset

ARGUMENTS = "pyro_chmm.arguments"
DEBUG = "pyro_chmm.debug"

Command = TypeVar("Command", bound=Callable[..., Any])


class Names(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.5
    """``A,B,C`` as a tuple of texts."""

    name = "A,B,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        names = tuple(part.strip() for part in str(value).split(",") if part.strip())
        if not names:
            self.fail("expected at least one name.", param, ctx)
        return names


class Integers(click.ParamType):  # type: ignore[type-arg]
    """``3,6`` as a tuple of whole numbers."""

    name = "N,N,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        try:
            return tuple(int(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of whole numbers such as 3,6.", param, ctx)


def data_options(command: Command) -> Command:
    """``--data``, ``--data-root`` and the choice of LFs, which arrives as the argument ``lfs``."""

    @click.option(
        "--data",
        required=True,
        metavar="NAME|PATH",
        help="A data set's name (data list) or a path to your own.",
    )
    @click.option(
        "--data-root",
        type=click.Path(path_type=Path),
        help="Folder in which to look for named data sets first.",
    )
    @click.option("--all-lfs", is_flag=True, help="Use every LF, not only the recommended ones.")
    @click.option("--lfs", "lf_names", type=Names(), help="Use these LFs only.")
    @functools.wraps(command)
    def with_lfs(*, all_lfs: bool, lf_names: tuple[str, ...] | None, **options: Any) -> Any:
        if all_lfs and lf_names:
            raise click.UsageError("--all-lfs and --lfs exclude each other.")
        lfs: Sequence[str] | str | None = "all" if all_lfs else lf_names
        return command(lfs=lfs, **options)

    return with_lfs  # type: ignore[return-value]


def terminal_options(command: Command) -> Command:
    """``-q``, ``-v`` and ``--debug``, and the log on standard error that goes with them."""

    @click.option("-q", "--quiet", is_flag=True, help="Say nothing but the result and what went wrong.")
    @click.option("-v", "--verbose", is_flag=True, help="Show the whole log.")
    @click.option("--debug", is_flag=True, help="Show the traceback of an unexpected error.")
    @functools.wraps(command)
    def with_log(*, quiet: bool, verbose: bool, debug: bool, **options: Any) -> Any:
        click.get_current_context().meta[DEBUG] = debug
        level = logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO
        with terminal_log(level):
            return command(**options)

    return with_log  # type: ignore[return-value]


class _TerminalHandler(logging.StreamHandler[TextIO]):
    """Looks up ``sys.stderr`` at each line: a progress bar replaces it while it is on the screen."""

    def __init__(self, level: int) -> None:
        logging.Handler.__init__(self, level)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


@contextmanager
def terminal_log(level: int) -> Iterator[None]:
    """Log lines of the package at or above ``level`` go to standard error; Python warnings only to logs."""
    ours, warned = logging.getLogger("pyro_chmm"), logging.getLogger("py.warnings")
    handler, sink, before = _TerminalHandler(level), logging.NullHandler(), ours.level
    ours.addHandler(handler)
    ours.setLevel(logging.DEBUG)
    warned.addHandler(handler if level == logging.DEBUG else sink)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        for logger in (ours, warned):
            logger.removeHandler(handler)
            logger.removeHandler(sink)
        ours.setLevel(before)


def hyperparameter_options(command: Command) -> Command:
    """An option for every field of :class:`SparseCHMMConfig`; those given arrive as ``hyperparameters``."""
    hints = get_type_hints(SparseCHMMConfig)
    docs = SparseCHMMConfig.describe()
    names = [item.name for item in fields(SparseCHMMConfig)]
    shown = {**SparseCHMMConfig().to_dict(), **load_preset("default")}

    @functools.wraps(command)
    def with_hyperparameters(**options: Any) -> Any:
        given = {name: options.pop(name) for name in names}
        return command(hyperparameters={k: v for k, v in given.items() if v is not None}, **options)

    wrapped: Callable[..., Any] = with_hyperparameters
    for item in reversed(fields(SparseCHMMConfig)):
        wrapped = _hyperparameter_option(item.name, hints[item.name], shown[item.name], docs[item.name])(wrapped)
    return wrapped  # type: ignore[return-value]


def _hyperparameter_option(name: str, kind: Any, default: Any, doc: str) -> Callable[[Any], Any]:
    """The option of one field; its own default is None, so that a preset's value stands."""
    dashed = name.replace("_", "-")
    switch = f"--{dashed}/--no-{dashed}" if kind is bool else f"--{dashed}"
    types: dict[Any, click.ParamType[Any]] = {
        bool: click.BOOL,
        int: click.INT,
        float: click.FLOAT,
        str: click.STRING,
    }
    if get_origin(kind) is UnionType:
        types[kind] = click.STRING
    elif get_origin(kind) is Literal:
        types[kind] = click.Choice(get_args(kind))
    elif get_origin(kind) is tuple:
        types[kind] = Integers()
    return click.option(switch, name, type=types[kind], default=None, help=f"{doc}  [{_shown(default)}]")


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        return "on" if default else "off"
    return ",".join(map(str, default)) if isinstance(default, list) else str(default)


class CommandWithHyperparameters(click.Command):
    """A command whose help lists the hyper-parameters apart from its other options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = {item.name for item in fields(SparseCHMMConfig)}
        options: list[tuple[str, str]] = []
        hyperparameters: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                (hyperparameters if parameter.name in names else options).append(record)
        with formatter.section("Options"):
            formatter.write_dl(options)
        with formatter.section("Hyper-parameters [values of the default preset]"):
            formatter.write_dl(hyperparameters)


def command_line() -> str:
    """The command as the user gave it, for logs and ``config.json``."""
    return shlex.join(["pyro-chmm", *click.get_current_context().meta.get(ARGUMENTS, ())])
