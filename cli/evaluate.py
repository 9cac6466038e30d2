"""``pyro-chmm evaluate``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from .options import terminal_options
from .tables import echo_table, score_cells


@click.command()
@click.option("--model", required=True, type=click.Path(path_type=Path), help="A run folder, or a saved model.")
@click.option("--data", required=True, metavar="NAME|PATH", help="A data set with gold labels: its name, or a path.")
@click.option("--data-root", type=click.Path(path_type=Path), help="Folder in which to look for named data sets first.")
@click.option("--split", help="The split to score.  [default: test, or the only one]")
@click.option("--device", default="cpu", show_default=True, help="Where to compute: cpu or cuda.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@terminal_options
def evaluate(model: Path, data: str, data_root: Path | None, split: str | None, device: str, as_json: bool) -> None:
    """Score a trained model on gold labels, beside majority vote and the best consensus."""
    from pyro_chmm import progress
    from pyro_chmm.label_models import runs

    with progress.shown():
        result = runs.evaluate(model, data, data_root=data_root, split=split, device=device)
    if as_json:
        click.echo(json.dumps(result, ensure_ascii=False))
        return
    rows = [("model", result), *((f"  {name}", scores) for name, scores in result["by_type"].items())]
    rows += [
        ("majority vote", result["majority_vote"]),
        ("best consensus (oracle)", result["best_consensus"]),
    ]
    echo_table(
        f"Strict precision, recall and F1 on {data}, split {result['split']}, in percent",
        ["", "P", "R", "F1"],
        [[name, *score_cells(scores)] for name, scores in rows],
    )
