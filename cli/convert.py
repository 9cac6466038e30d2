"""``pyro-chmm convert``."""

from __future__ import annotations

from pathlib import Path

import click

from .options import Names, terminal_options

FORMATS = "wrench, wrench-bio, conll, docbin, jsonl, matrix or hf"


@click.command()
@click.argument("source", metavar="IN")
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@click.option("--from", "read_as", metavar="FORMAT", help=f"What IN is in: {FORMATS}.  [default: found by its content]")
@click.option("--to", "write_as", metavar="FORMAT", help="What to write.  [default: what OUT's suffix says]")
@click.option("--columns", type=Names(), help="Columns of a CoNLL file after the token: LFs' names, gold, or _ to skip one.")
@click.option("--data-root", type=click.Path(path_type=Path), help="Folder in which to look for named data sets first.")
@terminal_options
def convert(
    source: str, target: Path, read_as: str | None, write_as: str | None, columns: tuple[str, ...] | None, data_root: Path | None
) -> None:
    """Write the data IN (a path or a data set's name) in another format to OUT.

    Data of several splits becomes a folder with a file for each.
    """
    from pyro_chmm.data.converting import convert as convert_data

    splits, form = convert_data(source, target, read_as=read_as, write_as=write_as, columns=columns, data_root=data_root)
    documents = sum(corpus.num_documents for corpus in splits.splits.values())
    lost = f" Not in it: {form.lost}." if form.lost and not target.is_dir() else ""
    click.echo(f"Wrote {documents:,} documents to {target} ({form.name}).{lost}")
