"""``pyro-chmm export``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .options import terminal_options


@click.command()
@click.option("--model", required=True, type=click.Path(path_type=Path), help="A run folder, or a saved model.")
@click.option("--data", required=True, metavar="NAME|PATH", help="What to label: a path to your data, or a data set's name.")
@click.option("--data-root", type=click.Path(path_type=Path), help="Folder in which to look for named data sets first.")
@click.option("--split", help="The split to label, where the data has several.")
@click.option("--to", required=True, type=click.Choice(["spacy", "hf", "conll"]), help="What the tagger is trained with.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The file to write; for hf, the folder.")
@click.option("--soft", is_flag=True, help="Write the probabilities of all labels, too.")
@click.option(
    "--min-confidence",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Leave out tokens whose label is less probable, and the entities that they are part of.",
)
@click.option("--device", default="cpu", show_default=True, help="Where to compute: cpu or cuda.")
@terminal_options
def export(model: Path, data: str, out: Path, **options: Any) -> None:
    """Label documents with a trained model, to train a tagger on them."""
    from pyro_chmm import progress
    from pyro_chmm.label_models import runs

    with progress.shown():
        documents, tokens, left_out = runs.export(model, data, out, **options)
    click.echo(f"Exported {documents:,} documents to {out}; {left_out:,} of {tokens:,} tokens are left out as not sure enough.")
