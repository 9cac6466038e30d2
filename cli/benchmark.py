"""``pyro-chmm benchmark``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from .options import Names, terminal_options
from .tables import echo_table


@click.command()
@click.option("--data", required=True, type=Names(), help="Data sets by name (data list) or path.")
@click.option(
    "--models",
    type=Names(),
    default="all",
    show_default=True,
    help="Systems by name, or all, systems (Table 3), ablations (Table 4); a wrong name lists all.",
)
@click.option("--seeds", type=click.IntRange(min=1), default=5, show_default=True, help="Runs of what depends on a seed.")
@click.option("--out", type=click.Path(path_type=Path), default="results", show_default=True, help="The folder of results.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Runs side by side.")
@click.option("--encoder", default="minilm", show_default=True, help="Language model: minilm, none, a hub name or a local path.")
@click.option("--device", default="cpu", show_default=True, help="Where to train: cpu or cuda.")
@click.option("--train-split", default="train", show_default=True, help="The split to learn from.")
@click.option("--data-root", type=click.Path(path_type=Path), help="Folder in which to look for named data sets first.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@terminal_options
def benchmark(as_json: bool, **options: Any) -> None:
    """Compare label models: the paper's tables 2 to 5, for any data.

    The folder of results gets benchmark.md, benchmark.csv and benchmark.json, and one file for each run. A run that is there is
    not run again, so that an interrupted benchmark goes on; one that fails is reported, and the others run.
    """
    from pyro_chmm import progress
    from pyro_chmm.inspection.benchmark import BenchmarkSettings, run_benchmark
    from pyro_chmm.inspection.benchmark_tables import benchmark_of, to_json, write_tables

    settings = BenchmarkSettings(**options)
    with progress.shown():
        results = run_benchmark(settings)
    tables = benchmark_of(settings, results)
    write_tables(settings.out, tables, results)
    if as_json:
        click.echo(json.dumps(to_json(tables, results), ensure_ascii=False))
        return
    for table in tables:
        echo_table(table.title, table.columns, table.rows)
        click.echo("".join(f"{note}\n" for note in table.notes))
    click.echo(f"The results are in {settings.out}.")
