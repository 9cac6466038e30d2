"""A small corpus with vectors made of noise and of the gold label, so that training has something to learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from pyro_chmm.data.batching import OWeights, PackedCorpus
from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.encoder import EncoderSettings, Vectors
from pyro_chmm.data.labels import LabelSet
from pyro_chmm.label_models.majority_vote import MajorityVote
from pyro_chmm.model.conditionals import Conditionals
from pyro_chmm.model.config import SparseCHMMConfig
from pyro_chmm.model.priors import Amortized
from pyro_chmm.model.training import Selection, Trainer

WIDTH = 5
#: Few epochs of few steps; a test changes what it is about.
SHORT: dict[str, Any] = {
    "batch_size": 4,
    "pretrain_steps": 2,
    "transition_hidden": 0,
    "weight_averaging": 0.0,
    "selection_window": 1,
    "epochs_stage1": 2,
    "epochs_stage2": 2,
    "epochs_stage3": 2,
    "patience": 10,
    "verify": False,
    "backend": "auto",
}


def make_corpus(documents: int = 8, seed: int = 0) -> Corpus:
    """Documents of 1 to 6 tokens, the second one empty; 3 LFs with errors of their own, the last one often abstaining."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, documents)
    lengths[1] = 0
    tokens = int(lengths.sum())
    types = rng.integers(0, 3, tokens)  # O, X or Y
    gold = np.where(types == 0, 0, 2 * types - 1).astype(np.int16)
    weak = np.repeat(gold[:, None], 3, axis=1)
    wrong = rng.random(weak.shape) < [0.1, 0.3, 0.4]
    weak[wrong] = rng.integers(0, 5, wrong.sum())
    weak[rng.random(tokens) < 0.5, 2] = -1
    return Corpus(
        LabelSet(("X", "Y")),
        ("good", "fair", "poor"),
        [[f"{m}.{t}" for t in range(length)] for m, length in enumerate(lengths.tolist())],
        np.concatenate([[0], np.cumsum(lengths)]),
        weak,
        gold,
        tuple(f"d{m}" for m in range(documents)),
    )


def make_packed(corpus: Corpus, seed: int = 0, contested: float = 0.0) -> PackedCorpus:
    """With token and document vectors of width ``WIDTH``."""
    rng = np.random.default_rng(seed)
    tokens = rng.normal(size=(corpus.num_tokens, WIDTH)).astype(np.float16)
    if corpus.gold is not None:
        tokens[:, 0] += corpus.gold
    documents = rng.normal(size=(corpus.num_documents, WIDTH)).astype(np.float16)
    return PackedCorpus(corpus, Vectors(tokens, documents, EncoderSettings("none"), cached=False), OWeights(contested))


def make_trainer(
    select: Callable[[], Selection] | None = None,
    packed: PackedCorpus | None = None,
    extra: PackedCorpus | None = None,
    **hyperparameters: Any,
) -> Trainer:
    """A trainer with new weights; without ``select``, every epoch is better than the one before."""
    packed = packed or make_packed(make_corpus())
    corpus = packed.corpus
    config = SparseCHMMConfig.from_dict({**SHORT, **hyperparameters})
    conditionals = Conditionals.build(config, corpus.label_set, corpus.num_lfs, WIDTH, WIDTH)
    script = select or Script()
    return Trainer(conditionals, Amortized(), packed, extra, MajorityVote().predict_ids(corpus), script)


class Script:
    """A selection that follows a script (each value once, then higher and higher) and notes the weights it was asked about.

    :ivar seen: (stage, weights) at each call.
    """

    def __init__(self, *values: float) -> None:
        self.values = list(values)
        self.seen: list[tuple[int, dict[str, torch.Tensor]]] = []
        self.trainer: Trainer | None = None
        self.calls = 0
        self.afterwards: Callable[[int], None] = lambda call: None

    def __call__(self) -> Selection:
        if self.trainer is not None:
            conditionals = self.trainer.conditionals
            state = {name: value.clone() for name, value in conditionals.state_dict().items()}
            self.seen.append((conditionals.stage, state))
            self.afterwards(len(self.seen) - 1)
        self.calls += 1
        value = self.values.pop(0) if self.values else 100.0 + self.calls
        return Selection(value)


def watched(*values: float, **arguments: Any) -> tuple[Trainer, Script]:
    """A trainer whose weights are noted at each selection."""
    script = Script(*values)
    trainer = make_trainer(script, **arguments)
    script.trainer = trainer
    return trainer, script
