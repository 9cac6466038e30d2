"""``pyro-chmm tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .options import CommandWithHyperparameters, command_line, data_options, hyperparameter_options, terminal_options
from .tables import echo_table


@click.command(cls=CommandWithHyperparameters)
@data_options
@click.option("--train-split", default="train", show_default=True, help="The split to learn from.")
@click.option("--trials", type=click.IntRange(1), default=30, show_default=True, help="Trials in all, earlier ones included.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The search's folder; the same one goes on.")
@click.option("--preset", default="default", show_default=True, metavar="NAME|FILE.toml", help="Hyper-parameters to start from.")
@click.option("--device", default="cpu", show_default=True, help="Where to train: cpu or cuda.")
@terminal_options
@hyperparameter_options
def tune(*, trials: int, **options: Any) -> None:
    """Search for hyper-parameters, by validation F1 or, with --select evidence, without any gold label.

    Hyper-parameters given here stay as they are. The best go into best.toml in the folder: fit --preset takes it.
    """
    from pyro_chmm import progress
    from pyro_chmm.label_models import runs, tuning

    with progress.shown():
        found = tuning.tune(runs.RunSettings(command=command_line(), **options), trials)
    rows = [[name, f"{value:.4g}" if isinstance(value, float) else str(value)] for name, value in found.hyperparameters.items()]
    echo_table(f"Best of {found.trials} trials ({found.failed} failed): {found.value:.3f}", ["hyper-parameter", "value"], rows)
    click.echo(f"The best are in {found.preset}: pyro-chmm fit --preset {found.preset} takes them.")
