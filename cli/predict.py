"""``pyro-chmm predict``."""

from __future__ import annotations

from pathlib import Path

import click

from .convert import FORMATS
from .options import terminal_options


@click.command()
@click.option("--model", required=True, type=click.Path(path_type=Path), help="A run folder, or a saved model.")
@click.option(
    "--data",
    required=True,
    metavar="NAME|PATH",
    help="What to label: a path to your data, or a data set's name.",
)
@click.option("--data-root", type=click.Path(path_type=Path), help="Folder in which to look for named data sets first.")
@click.option("--split", help="The split to label, where the data has several.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The file of labels to write.")
@click.option("--format", "form", default="jsonl", show_default=True, help=f"What to write: {FORMATS}.")
@click.option("--device", default="cpu", show_default=True, help="Where to compute: cpu or cuda.")
@terminal_options
def predict(model: Path, data: str, data_root: Path | None, split: str | None, out: Path, form: str, device: str) -> None:
    """Label documents with a trained model: tokens, labels and per-token posterior."""
    from pyro_chmm import progress
    from pyro_chmm.label_models import runs

    with progress.shown():
        documents = runs.predict(model, data, out, data_root=data_root, split=split, device=device, form=form)
    click.echo(f"Labelled {documents:,} documents in {out}.")
