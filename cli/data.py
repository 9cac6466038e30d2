"""``pyro-chmm data``."""

from __future__ import annotations

from pathlib import Path

import click

from .options import terminal_options
from .tables import DASH, echo_table

_data_root = click.option("--data-root", type=click.Path(path_type=Path), help="Folder in which to look for named data sets first.")


@click.group()
def data() -> None:
    """Data sets that have a name: list them, fetch one, find its files."""


@data.command("list")
@_data_root
@terminal_options
def list_command(data_root: Path | None) -> None:
    """Every data set that has a name, and where it is."""
    from pyro_chmm.data.datasets import list_datasets

    rows = [
        (place.name, ", ".join(place.splits) or DASH, DASH if place.path is None else str(place.path))
        for place in list_datasets(data_root)
    ]
    echo_table("Data sets", ["name", "splits", "folder"], rows, wide=3)


@data.command("get")
@click.argument("name")
@terminal_options
def get_command(name: str) -> None:
    """Fetch the data set NAME from its public source and print its folder."""
    from pyro_chmm import progress
    from pyro_chmm.data.datasets import fetch_dataset

    with progress.shown():
        path = fetch_dataset(name)
    click.echo(path)


@data.command("path")
@click.argument("name")
@_data_root
@terminal_options
def path_command(name: str, data_root: Path | None) -> None:
    """Print the folder of the data set NAME."""
    from pyro_chmm.data.datasets import dataset_path

    click.echo(dataset_path(name, data_root))
