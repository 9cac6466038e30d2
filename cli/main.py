"""The program ``pyro-chmm``: its commands, and what becomes of errors."""

from __future__ import annotations

import errno
from typing import Any

import click

from pyro_chmm._version import __version__
from pyro_chmm.errors import PyroCHMMError

from .benchmark import benchmark
from .convert import convert
from .data import data
from .evaluate import evaluate
from .explain import explain
from .export import export
from .fit import fit
from .lfs import lfs
from .options import ARGUMENTS, DEBUG
from .predict import predict
from .report import report
from .sample import sample
from .simulate import simulate
from .tune import tune
from .verify import verify


class UserError(click.ClickException):
    """A :class:`PyroCHMMError` on its way to the terminal."""

    exit_code = 2


class Program(click.Group):
    """The command group; it turns every exception into one sentence and an exit code.

    2: an error that the user can mend; 1: one that is ours (traceback with ``--debug``); 130: interrupted.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[ARGUMENTS] = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except PyroCHMMError as error:
            raise UserError(_sentence(str(error), error)) from error
        except KeyboardInterrupt as error:
            click.echo(_sentence("Interrupted.", error), err=True)
            ctx.exit(130)
        except Exception as error:
            if ctx.meta.get(DEBUG) or (isinstance(error, OSError) and error.errno == errno.EPIPE):
                raise
            text = f"{type(error).__name__}: {error} (not expected; --debug shows where it happened)."
            raise click.ClickException(_sentence(text, error)) from error


def _sentence(text: str, error: BaseException) -> str:
    """``text`` on one line, then the notes that were attached to the error, such as where its log lies."""
    return " ".join(" ".join([text, *getattr(error, "__notes__", [])]).split())


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="pyro-chmm")
def main() -> None:
    """From weak labels to labels: a label model for weakly supervised named entity recognition."""


for command in (fit, predict, evaluate, explain, report, sample, lfs, data, convert, export, verify, tune, benchmark, simulate):
    main.add_command(command)

if __name__ == "__main__":
    main()
