"""``pyro-chmm verify``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from .options import data_options, terminal_options
from .tables import echo_table

if TYPE_CHECKING:
    from pyro_chmm.inspection.verification import VerificationResult


@click.command()
@data_options
@click.option("--split", help="The split to take documents from.  [default: the first there is]")
@click.option("--documents", type=click.IntRange(min=1), default=64, show_default=True, help="How many documents.")
@click.option("--backend", default="auto", show_default=True, help="The kernels: cpu, cuda or reference.")
@click.option("--encoder", default="minilm", show_default=True, help="Language model, or none.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the documents and the random model.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@terminal_options
def verify(as_json: bool, **options: Any) -> None:
    """Compare the fast path with enumeration (TraceEnum_ELBO) on real documents and a random model.

    Exits with 1 where they differ by more than the tolerance.
    """
    from pyro_chmm import progress
    from pyro_chmm.inspection.verification import verify_data_set

    with progress.shown():
        result = verify_data_set(**options)
    if as_json:
        click.echo(json.dumps(result.to_dict()))
    else:
        _echo_result(result)
    click.get_current_context().exit(0 if result.ok else 1)


def _echo_result(result: VerificationResult) -> None:
    differences = [
        ("loss, relative", result.max_rel_loss),
        (f"gradient, relative ({result.worst_parameter})", result.max_rel_grad),
        ("marginal, absolute", result.max_abs_marginal),
        ("Viterbi score, relative", result.max_rel_viterbi),
    ]
    echo_table(
        f"Fast path ({result.backend}), enumeration: {result.documents} documents, {result.tokens} tokens",
        ["largest difference in", "found", "allowed"],
        [[name, f"{found:.1e}", f"{result.tolerance:.0e}"] for name, found in differences],
    )
    click.echo(f"The fast path is {result.speedup:,.0f} times faster.")
    click.echo("They agree." if result.ok else "They DIFFER: please report this, and train with --marginalize enum.")
