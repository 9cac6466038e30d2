"""``pyro-chmm simulate``."""

from __future__ import annotations

from pathlib import Path

import click

from .options import terminal_options

_LIKE = ("laptop", "ncbi", "bc5cdr", "conll", "ontonotes")


@click.command()
@click.option("--like", type=click.Choice(_LIKE), default="laptop", show_default=True, help="The data set whose size to take.")
@click.option("--documents", type=click.IntRange(min=1), default=1000, show_default=True, help="Documents in the training split.")
@click.option("--types", type=click.IntRange(min=1), help="Entity types, instead of those of --like.")
@click.option("--lfs", type=click.IntRange(min=1), help="Labeling functions, likewise.")
@click.option("--length", type=click.FloatRange(min=1), help="Mean tokens in a document, likewise.")
@click.option("--reliability", nargs=2, type=float, metavar="LOW HIGH", help="Between which LFs find a label.  [default: 0.2 0.7]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The same one gives the same data.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The folder to write.")
@terminal_options
def simulate(
    like: str,
    documents: int,
    types: int | None,
    lfs: int | None,
    length: float | None,
    reliability: tuple[float, float] | None,
    seed: int,
    out: Path,
) -> None:
    """Draw a data set from the model itself: labels, LFs of known reliability, and words that say nothing.

    The folder holds train, valid and test, and the truth in truth.json; --data reads it.
    """
    from dataclasses import replace

    from pyro_chmm import progress
    from pyro_chmm.label_models import simulating
    from pyro_chmm.model.simulation import LIKE

    given = {"types": types, "lfs": lfs, "length": length, "reliability": reliability}
    size = replace(LIKE[like], **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    with progress.shown():
        found = simulating.simulate(size, documents, out, seed)
    counts = ", ".join(f"{count:,} in {name}" for name, count in found.documents.items())
    click.echo(f"Wrote {size.lfs} LFs' votes on {counts} to {out} ({found.size / 1e6:.1f} MB).")
    click.echo(f"Test F1 of who knows the truth: {found.best_f1:.2f}; of the majority vote: {found.vote_f1:.2f}.")
