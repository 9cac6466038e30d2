"""``pyro-chmm explain``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import terminal_options
from .tables import DASH, echo_table

if TYPE_CHECKING:
    from pyro_chmm.label_models.explanation import Explanation


@click.command()
@click.option("--model", required=True, type=click.Path(path_type=Path), help="A run folder, or a saved model.")
@click.option("--data", required=True, metavar="NAME|PATH", help="A data set's name (data list) or a path to your own.")
@click.option("--data-root", type=click.Path(path_type=Path), help="Folder in which to look for named data sets first.")
@click.option("--split", help="The split that has the document.  [default: test, or the only one]")
@click.option("--document", required=True, metavar="ID", help="The document's name in the data.")
@click.option("--token", required=True, type=int, metavar="N", help="The token's place in the document, from 0.")
@click.option("--device", default="cpu", show_default=True, help="Where to compute: cpu or cuda.")
@terminal_options
def explain(model: Path, data: str, data_root: Path | None, split: str | None, document: str, token: int, device: str) -> None:
    """Why a token has its label: every LF's vote, what it counts, and what the neighbours add."""
    from pyro_chmm import progress
    from pyro_chmm.inspection.opening import open_model

    with progress.shown():
        opened, _, corpus = open_model(model, data, split=split, data_root=data_root, device=device)
        found = opened.explain(corpus, document, token)
    _echo_explanation(found)


def _echo_explanation(found: Explanation) -> None:
    gold = "" if found.gold is None else f", gold {found.gold}"
    title = f"Document {found.document}, token {found.token}, {found.word!r}: {found.label}{gold}"
    rows = []
    for vote in found.votes:
        reliability = DASH if vote.reliability is None else f"{vote.reliability:.2f}"
        evidence = [f"{value:.2f}" if vote.weight else DASH for value in vote.log_evidence]
        says = f"{vote.label or DASH}{', carried' if vote.carried else ''}"
        rows.append([vote.lf, says, f"{vote.weight:g}", reliability, *evidence])
    blank = ["", "", ""]
    rows.append(["sum: log evidence", *blank, *(f"{value:.2f}" for value in found.log_evidence)])
    shares = {
        "votes alone, %": found.evidence,
        "left neighbors, %": found.left,
        "right neighbors, %": found.right,
        "posterior, %": found.marginals,
    }
    rows += [[name, *blank, *(f"{100 * value:.2f}" for value in values)] for name, values in shares.items()]
    echo_table(title, ["LF", "says", "weight", "reliability", *found.labels], rows, wide=2)
    click.echo("Log evidence is the weight times log p(the LF says so | true label).")
    if any(vote.carried for vote in found.votes):
        click.echo("Carried: the LF marked the long form of this abbreviation.")
    click.echo("The posterior is the product of the three rows above it, divided by its sum.")
