"""``pyro-chmm sample``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .options import terminal_options


@click.command()
@click.option("--model", required=True, type=click.Path(path_type=Path), help="A run folder, or a saved model.")
@click.option("--data", required=True, metavar="NAME|PATH", help="A data set's name, or a path to your data.")
@click.option("--data-root", type=click.Path(path_type=Path), help="Folder in which to look for named data sets first.")
@click.option("--split", help="The split to draw for.  [default: test, or the only one]")
@click.option("--draws", type=click.IntRange(min=1), default=200, show_default=True, help="How many draws.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The same one gives the same draws.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The netCDF file to write, as posterior.nc.")
@click.option("--device", default="cpu", show_default=True, help="Where to compute: cpu or cuda.")
@terminal_options
def sample(model: Path, data: str, out: Path, **options: Any) -> None:
    """Draw from a trained model's posterior: emissions, reliabilities, labels and weak labels.

    ArviZ and xarray read the file. It takes the extra "inspect": pip install 'pyro-chmm[inspect]'.
    """
    from pyro_chmm import progress
    from pyro_chmm.label_models import sampling

    with progress.shown():
        documents = sampling.sample(model, data, out, **options)
    click.echo(f"Wrote {options['draws']:,} draws for {documents:,} documents to {out}.")
