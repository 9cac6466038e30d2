"""How long an epoch of stage 1 takes, against the bare matrix products of the transition layer on the same tokens.

The matrix products are the layer's own (and its hidden layer's) and both gradients of each (to weights and inputs), over the same
batches, in this process, by turns; figures are medians. Vectors are encoded first where the cache has none. With ``--fit``, each
whole fit is timed too, from cached vectors, with its validation F1. The exit status is 1 if a limit is missed.
"""

import argparse
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import pyro
import torch

from pyro_chmm import SparseCHMM, load_dataset
from pyro_chmm.data.batching import PackedCorpus
from pyro_chmm.data.encoder import encode
from pyro_chmm.label_models.majority_vote import MajorityVote
from pyro_chmm.model.conditionals import Conditionals, encoder_settings, o_weights
from pyro_chmm.model.config import SparseCHMMConfig
from pyro_chmm.model.priors import Amortized
from pyro_chmm.model.training import Selection, Trainer

DATA = ("wrench/laptop", "wrench/ncbi", "wrench/bc5cdr")
#: The default, and the paper's single layer with and without shared weights.
LAYERS: dict[str, dict[str, Any]] = {
    "hidden": {},
    "shared": {"transition_hidden": 0},
    "paper's": {"transition_hidden": 0, "shared_transition": False, "transition_normalization": "row"},
}
#: Largest ratio of an epoch to the matrix products, and seconds a whole fit may take.
MOST_PRODUCTS = 3.0
FIT_SECONDS = {"wrench/laptop": 25.0, "wrench/ncbi": 45.0, "wrench/bc5cdr": 60.0}


@dataclass(frozen=True)
class Row:
    """One data set with one kind of transition layer. ``ratio`` is ``epoch`` / ``products``, both in seconds."""

    data: str
    layer: str
    tokens: int
    epoch: float
    products: float
    ratio: float
    ok: bool


@dataclass(frozen=True)
class Fit:
    """One whole fit, in seconds; F1 in percent on the validation split."""

    data: str
    seconds: float
    limit: float | None
    valid_f1: float
    vote_f1: float
    ok: bool


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.training", description=__doc__)
    parser.add_argument("--data", action="append", help=f"data set, more than once (default: {', '.join(DATA)})")
    parser.add_argument("--repeats", type=int, default=7, help="turns of each")
    parser.add_argument("--fit", action="store_true", help="time whole fits too")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    options = parser.parse_args(arguments)
    rows, fits = [], []
    for data in options.data or DATA:
        for layer, settings in LAYERS.items():
            rows.append(_epoch(data, layer, settings, options.repeats))
            _say(
                options,
                f"{data}, {rows[-1].layer} transition layer, {rows[-1].tokens} tokens: epoch {rows[-1].epoch:.3f} s, "
                f"matrix products {rows[-1].products:.3f} s, ratio {rows[-1].ratio:.2f} (at most {MOST_PRODUCTS:g})",
            )
        if options.fit:
            fits.append(_fit(data))
            _say(options, f"{data}: {fits[-1].seconds:.1f} s, validation F1 {fits[-1].valid_f1:.2f} (vote {fits[-1].vote_f1:.2f})")
    if options.json:
        print(json.dumps({"threads": torch.get_num_threads(), "epochs": [*map(asdict, rows)], "fits": [*map(asdict, fits)]}))
    return 0 if all(part.ok for part in (*rows, *fits)) else 1


def _epoch(data: str, layer: str, settings: dict[str, Any], repeats: int) -> Row:
    """Epochs and matrix products, by turns, after one of each that is not counted."""
    config = SparseCHMMConfig.from_dict(settings)
    corpus = load_dataset(data)
    train = corpus.get("train") or corpus.valid
    vectors = encode(train, encoder_settings(config))
    packed = PackedCorpus(train.without_gold(), vectors, o_weights(config, training=True))
    widths = vectors.tokens.shape[1], vectors.documents.shape[1]
    conditionals = Conditionals.build(config, train.label_set, train.num_lfs, *widths)
    vote = MajorityVote().predict_ids(train)
    trainer = Trainer(conditionals, Amortized(), packed, None, vote, lambda: Selection(0.0))
    trainer.prepare()
    networks = conditionals.networks
    optimizer = trainer.begin_stage(1, [networks.transition, networks.reliability], config.learning_rate_stage1)
    batches = [batch.token_vectors.clone() for batch in trainer.batches()]
    layers = [part for part in (networks.transition.inner, networks.transition.outer) if part is not None]
    weights = [part.weight.detach().clone() for part in layers]
    epochs, products = [], []
    with pyro.validation_enabled(False):
        for turn in range(repeats + 1):
            seconds = trainer.run_epoch(1, turn, optimizer).seconds
            start = time.perf_counter()
            _matrix_products(batches, weights)
            if turn > 0:
                epochs.append(seconds)
                products.append(time.perf_counter() - start)
    epoch, product = statistics.median(epochs), statistics.median(products)
    return Row(data, layer, train.num_tokens, epoch, product, epoch / product, epoch <= MOST_PRODUCTS * product)


def _matrix_products(batches: list[torch.Tensor], weights: list[torch.Tensor]) -> None:
    """Each layer's product and, with its result as the cotangent, the gradients to its weights and inputs."""
    for vectors in batches:
        inputs = vectors
        for weight in weights:
            outputs = inputs @ weight.T
            _ = outputs.T @ inputs, outputs @ weight
            inputs = outputs


def _fit(data: str) -> Fit:
    """A whole fit; the vectors of both splits are in the cache before the clock starts."""
    corpus = load_dataset(data)
    train, valid = corpus.get("train") or corpus.valid, corpus.valid
    model = SparseCHMM()
    config = model.config
    for split in (train, valid):
        encode(split, encoder_settings(config))
    start = time.perf_counter()
    model.fit(train, valid)
    seconds = time.perf_counter() - start
    limit = FIT_SECONDS.get(data)
    f1, vote = model.score(valid).f1, MajorityVote().score(valid).f1
    return Fit(data, seconds, limit, f1, vote, limit is None or seconds <= limit)


def _say(options: argparse.Namespace, line: str) -> None:
    print(line, file=sys.stderr if options.json else sys.stdout, flush=True)


if __name__ == "__main__":
    sys.exit(main())
