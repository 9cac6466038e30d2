"""``pyro-chmm report``."""

from __future__ import annotations

from pathlib import Path

import click

from .options import terminal_options


@click.command()
@click.option("--model", required=True, type=click.Path(path_type=Path), help="A run folder, or a saved model.")
@click.option("--data", required=True, metavar="NAME|PATH", help="A data set's name (data list) or a path to your own.")
@click.option("--data-root", type=click.Path(path_type=Path), help="Folder in which to look for named data sets first.")
@click.option("--split", help="The split to report on.  [default: test, or the only one]")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The HTML file to write.")
@click.option("--device", default="cpu", show_default=True, help="Where to compute: cpu or cuda.")
@terminal_options
def report(model: Path, data: str, data_root: Path | None, split: str | None, out: Path, device: str) -> None:
    """One HTML file to look at: scores, labeling functions, plots, and every document with its votes."""
    from pyro_chmm import progress
    from pyro_chmm.inspection.report import write_report

    with progress.shown():
        size = write_report(model, data, out, data_root=data_root, split=split, device=device)
    click.echo(f"Wrote {out} ({size / 1e6:.1f} MB).")
