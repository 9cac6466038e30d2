"""``pyro-chmm lfs``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from .options import data_options, terminal_options
from .tables import echo_table, percent


@click.command()
@data_options
@click.option("--split", help="The split to look at.  [default: test, or the only one]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@terminal_options
def lfs(data: str, data_root: Path | None, lfs: Sequence[str] | str | None, split: str | None, as_json: bool) -> None:
    """What each labeling function does.

    Strict scores where there are gold labels; then, in percent of the tokens, where it fires (coverage),
    where others do so too (overlaps), where spans of the same type differ (within), and where types do
    (between).
    """
    from pyro_chmm.data.datasets import load_dataset
    from pyro_chmm.inspection.lf_table import lf_table

    splits = load_dataset(data, data_root=data_root, lfs=lfs)
    split = splits.chosen(split)
    table = lf_table(splits[split])
    if as_json:
        click.echo(json.dumps({"data": data, "split": split, **table.to_dict()}, ensure_ascii=False))
        return
    echo_table(
        f"{data}, split {split}: {table.documents:,} documents, {table.tokens:,} tokens, {table.coverage:.2f} % of them covered",
        ["LF", "P", "R", "F1", "spans", "coverage", "overlaps", "within", "between"],
        [
            [
                row.name,
                *(percent(value) for value in (row.precision, row.recall, row.f1)),
                f"{row.spans:,}",
                *(percent(value) for value in (row.coverage, row.overlaps)),
                *(percent(value) for value in (row.conflicts_within_type, row.conflicts_between_types)),
            ]
            for row in table.rows
        ],
    )
