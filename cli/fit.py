"""``pyro-chmm fit``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pyro_chmm.presets import preset_names

from .options import (
    ARGUMENTS,
    DEBUG,
    CommandWithHyperparameters,
    command_line,
    data_options,
    hyperparameter_options,
    terminal_log,
    terminal_options,
)
from .tables import echo_table, score_cells

if TYPE_CHECKING:
    from pyro_chmm.label_models.runs import Run


def _resume(ctx: click.Context, parameter: click.Parameter, directory: Path | None) -> None:
    """Go on with a run, whatever the other options; before click asks for those that a new run needs."""
    if directory is None or ctx.resilient_parsing:
        return
    from pyro_chmm import progress
    from pyro_chmm.label_models import runs

    given = set(ctx.find_root().meta.get(ARGUMENTS, ()))  # the other options are not parsed yet
    ctx.meta[DEBUG] = "--debug" in given
    level = logging.DEBUG if given & {"-v", "--verbose"} else logging.WARNING if given & {"-q", "--quiet"} else logging.INFO
    with terminal_log(level), progress.shown():
        run = runs.resume(directory)
    _echo_run(run)
    ctx.exit()


@click.command(cls=CommandWithHyperparameters)
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="DIR",
    is_eager=True,
    expose_value=False,
    callback=_resume,
    help="Go on with the run in DIR, which ended early; all options but -q, -v and --debug are those of that run.",
)
@data_options
@click.option("--train-split", default="train", show_default=True, help="The split to learn from.")
@click.option("--out", type=click.Path(path_type=Path), help="The run folder.  [default: runs/NAME]")
@click.option("--overwrite", is_flag=True, help="Replace the run that the folder holds, once this one is complete.")
@click.option(
    "--preset",
    default="default",
    show_default=True,
    metavar="NAME|FILE.toml",
    help=f"Hyper-parameters to start from: {', '.join(preset_names())}, or a file.",
)
@click.option(
    "--prior",
    "assignments",
    multiple=True,
    metavar="KEY=PRIOR",
    help="Prior on the emission, transition or reliability, as emission=diagonal:50; may be given several times.",
)
@click.option(
    "--prior-file", type=click.Path(path_type=Path), help="A TOML file of priors, as of believed accuracies; --prior overrules it."
)
@click.option("--device", default="cpu", show_default=True, help="Where to train: cpu or cuda.")
@terminal_options
@hyperparameter_options
def fit(assignments: tuple[str, ...], prior_file: Path | None, hyperparameters: dict[str, Any], **options: Any) -> None:
    """Train a label model and label every split.

    The run folder gets the model, its scores, the labels with their posterior, the log, and all it takes to
    repeat the run.
    """
    from pyro_chmm import progress
    from pyro_chmm.label_models import runs
    from pyro_chmm.model.priors import read_priors

    priors = read_priors(assignments, prior_file)
    settings = runs.RunSettings(command=command_line(), hyperparameters=hyperparameters | priors, **options)
    with progress.shown():
        run = runs.fit(settings)
    _echo_run(run)


def _echo_run(run: Run) -> None:
    metrics = run.metrics
    if not any(metrics["majority_vote"].values()):
        click.echo(f"No gold labels to score against, in neither valid nor test. The run, with all labels, is in {run.directory}.")
        return
    lines = {f"stage {stage}": scores for stage, scores in metrics["stages"].items()}
    kept = f"stage {run.best_stage}"
    rows = [[f"{name} (kept)" if name == kept else name, scores] for name, scores in lines.items()]
    rows += [
        ["majority vote", metrics["majority_vote"]],
        ["best consensus (oracle)", metrics["best_consensus"]],
    ]
    echo_table(
        "Strict precision, recall and F1, in percent",
        ["", "valid P", "R", "F1", "test P", "R", "F1"],
        [[name, *score_cells(scores["valid"]), *score_cells(scores["test"])] for name, scores in rows],
    )
    click.echo(f"The run is in {run.directory}.")
