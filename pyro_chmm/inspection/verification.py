"""The fast path against enumeration on real documents: loss, gradients, marginals and best paths."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pyro import poutine
from pyro.infer import TraceEnum_ELBO, infer_discrete
from torch import Tensor

from pyro_chmm import chain
from pyro_chmm.chain.backends import resolve
from pyro_chmm.data.batching import PackedBatch, PackedCorpus
from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.datasets import load_dataset
from pyro_chmm.data.encoder import Vectors, encode, resolve_encoder
from pyro_chmm.errors import DataError
from pyro_chmm.model.conditionals import Conditionals, encoder_settings, o_weights
from pyro_chmm.model.config import SparseCHMMConfig
from pyro_chmm.model.priors import Amortized, AnyPrior, resolve_prior
from pyro_chmm.model.sparse_chmm import SparseCHMMModel
from pyro_chmm.model.verification import (
    TOLERANCE,
    gradient_differences,
    largest,
    loss_and_gradients,
    relative_difference,
    shortened,
    worst_parameter,
)

#: Documents are cut to so many tokens: enumeration of marginals takes time quadratic in the length.
MAX_TOKENS = 24


@dataclass(frozen=True)
class VerificationResult:
    """The largest differences between the fast path and enumeration.

    :ivar max_rel_loss: of the negative ELBO, relative.
    :ivar max_rel_grad: of a gradient's entries, relative to the largest entry of that parameter's gradient.
    :ivar worst_parameter: the parameter where that is.
    :ivar max_abs_marginal: of p(z_t | x), absolute.
    :ivar max_rel_viterbi: of the best path's log probability, relative.
    :ivar speedup: seconds that enumeration takes for loss and gradients, divided by those of the fast path.
    """

    max_rel_loss: float
    max_rel_grad: float
    worst_parameter: str
    max_abs_marginal: float
    max_rel_viterbi: float
    tolerance: float
    speedup: float
    backend: str
    documents: int
    tokens: int

    @property
    def ok(self) -> bool:
        """Whether every difference is within the tolerance; a NaN is not."""
        found = (self.max_rel_loss, self.max_rel_grad, self.max_abs_marginal, self.max_rel_viterbi)
        return all(difference <= self.tolerance for difference in found)

    def to_dict(self) -> dict[str, float | str | bool]:
        """What ``verify --json`` prints."""
        return {
            "max_rel_loss": self.max_rel_loss,
            "max_rel_grad": self.max_rel_grad,
            "max_abs_marginal": self.max_abs_marginal,
            "speedup": self.speedup,
            "backend": self.backend,
            "ok": self.ok,
        }


def verify_fast_path(
    conditionals: Conditionals,
    batch: PackedBatch,
    *,
    prior: AnyPrior | None = None,
    device: str = "cpu",
    seed: int = 0,
) -> VerificationResult:
    """Compare both ways to marginalise on a batch, in float64; the model given is copied, not changed.

    The copy's parameters are perturbed and its WXOR scores random, so that every parameter has a gradient.
    Documents are cut to their first :data:`MAX_TOKENS` tokens.

    :param device: where the fast path runs; enumeration always runs on the CPU.
    """
    batch = shortened(batch, batch.num_documents, MAX_TOKENS).to("cpu", torch.float64)
    model = perturbed(conditionals, seed)
    if device != "cpu":
        # two devices draw different samples from one seed; the mean has gradients at the same parameters
        model.config = replace(model.config, sample_emission=False)
    prior = Amortized() if prior is None else prior
    slow = _Path(model, prior, "enum", batch, seed)
    fast = _Path(copy.deepcopy(model).to(device), prior, "fast", batch.to(device), seed)
    fast.loss_and_gradients()  # compiles the kernels
    slow_loss, slow_gradients = slow.loss_and_gradients()
    fast_loss, fast_gradients = fast.loss_and_gradients()
    marginals = fast.marginals() - slow.enumerated_marginals()
    best_scores = fast.best_scores(), slow.enumerated_best_scores()
    speedup = slow.seconds() / min(fast.seconds() for _ in range(3))
    gradients = gradient_differences(fast_gradients, slow_gradients)
    worst = worst_parameter(gradients)
    return VerificationResult(
        max_rel_loss=relative_difference(fast_loss, slow_loss),
        max_rel_grad=gradients[worst],
        worst_parameter=worst,
        max_abs_marginal=largest(marginals),
        max_rel_viterbi=relative_difference(*best_scores),
        tolerance=TOLERANCE,
        speedup=speedup,
        backend=resolve(model.config.backend, torch.device(device)),
        documents=batch.num_documents,
        tokens=int(batch.offsets[-1]),
    )


def verify_corpus(
    corpus: Corpus, vectors: Vectors, config: SparseCHMMConfig, *, documents: int = 64, device: str = "cpu"
) -> VerificationResult:
    """Compare both ways to marginalise on random documents of a corpus and a random model.

    :param documents: at most so many documents; empty ones are not chosen.
    """
    packed = PackedCorpus(corpus, vectors, o_weights(config, training=True))
    batch = packed.batch(random_documents(corpus, documents, config.seed))
    conditionals = Conditionals.build(
        config, corpus.label_set, corpus.num_lfs, vectors.tokens.shape[1], vectors.documents.shape[1]
    )
    return verify_fast_path(
        conditionals,
        batch,
        prior=resolve_prior("emission_prior", config.emission_prior),
        device=device,
        seed=config.seed,
    )


def verify_data_set(
    data: str,
    *,
    data_root: Path | None = None,
    lfs: Sequence[str] | str | None = None,
    split: str | None = None,
    documents: int = 64,
    backend: str = "auto",
    encoder: str = "minilm",
    seed: int = 0,
) -> VerificationResult:
    """:func:`verify_corpus` on a split of a data set, by default its first.

    :param data: name of a data set, or path to one.
    :param backend: backend of :mod:`pyro_chmm.chain`; ``"cuda"`` runs the fast path on the GPU.
    :raises PyroCHMMError: for whatever of this cannot be used.
    """
    config = SparseCHMMConfig(encoder=encoder, backend=backend, seed=seed)
    device = "cuda" if backend == "cuda" else "cpu"
    resolve(backend, torch.device(device))  # says what is missing before any work
    splits = load_dataset(data, data_root=data_root, lfs=lfs)
    corpus = splits[next(iter(splits.splits)) if split is None else split]
    chosen = corpus.select_documents(random_documents(corpus, documents, seed))
    vectors = encode(chosen, encoder_settings(config, resolve_encoder(encoder)))
    return verify_corpus(chosen, vectors, config, documents=documents, device=device)


def random_documents(corpus: Corpus, documents: int, seed: int) -> NDArray[np.int64]:
    """Positions, ascending, of at most so many documents that have tokens."""
    occupied = np.flatnonzero(np.diff(corpus.offsets) > 0)
    if len(occupied) == 0:
        raise DataError("The corpus has no token; nothing can be compared on it.")
    generator = np.random.default_rng(seed)
    return np.sort(generator.choice(occupied, size=min(documents, len(occupied)), replace=False)).astype(np.int64)


def perturbed(conditionals: Conditionals, seed: int) -> Conditionals:
    """A copy in float64 on the CPU at its last stage, noise on every parameter, random WXOR scores, no dropout."""
    copied = copy.deepcopy(conditionals).to("cpu", torch.float64).eval()
    copied.stage = 3
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in copied.parameters():
            width = parameter.shape[-1] if parameter.dim() > 1 else 4
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(noise / math.sqrt(width))
            parameter.requires_grad_(True)
        copied.wxor.copy_(torch.rand(copied.wxor.shape, generator=generator, dtype=copied.wxor.dtype))
    return copied


class _Path:
    """One of the two ways to marginalise, with one model, on one batch."""

    def __init__(self, conditionals: Conditionals, prior: AnyPrior, marginalize: str, batch: PackedBatch, seed: int) -> None:
        self.conditionals, self.prior, self.marginalize = conditionals, prior, marginalize
        self.batch, self.seed = batch, seed
        self.backend = conditionals.config.backend

    def loss_and_gradients(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The negative ELBO and its gradient at every parameter; both ways draw the same emission."""
        loss, found = loss_and_gradients(self.conditionals, self.prior, self.batch, self.marginalize, self.seed)
        shapes = dict(self.conditionals.named_parameters())
        gradients = {name: found.get(name, torch.zeros_like(shapes[name])).cpu() for name in shapes}
        return loss.cpu(), gradients

    def seconds(self) -> float:
        """Wall time of :meth:`loss_and_gradients`."""
        start = time.perf_counter()
        self.loss_and_gradients()
        return time.perf_counter() - start

    def _chain(self) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor], bool]:
        """What the chain takes, with Dirichlet means for the emission, and whether its transitions are logits."""
        conditionals, batch = self.conditionals, self.batch
        transitions, logits = conditionals.chain_transitions(conditionals.transition_logits(batch.token_vectors))
        evidence = conditionals.log_emission_evidence(conditionals.emission_mean(batch.document_vectors), batch)
        return (conditionals.initial.to(transitions), transitions, evidence, batch.offsets), logits

    @torch.no_grad()
    def marginals(self) -> Tensor:
        """p(z_t | x) ``(N, L)`` by the chain."""
        inputs, logits = self._chain()
        return chain.marginals(*inputs, logits=logits, backend=self.backend).state.double().cpu()

    @torch.no_grad()
    def best_scores(self) -> Tensor:
        """Log probability ``(B,)`` of the best path by the chain."""
        inputs, logits = self._chain()
        score = chain.viterbi(*inputs, logits=logits, backend=self.backend).log_score
        return (score - self.conditionals.log_partition(inputs[1], inputs[3])).double().cpu()

    @torch.no_grad()
    def enumerated_marginals(self) -> Tensor:
        """p(z_t | x) ``(N, L)`` by TraceEnum_ELBO."""
        elbo: Any = TraceEnum_ELBO(max_plate_nesting=1)
        sites = elbo.compute_marginals(self._given_emission(), lambda batch: None, self.batch)
        documents, longest = self.batch.num_documents, int(self.batch.lengths.max())
        by_position = [sites[f"z_{t + 1}"].probs.expand(documents, -1) for t in range(longest)]
        table = torch.stack(by_position, dim=1)  # (B, T, L)
        return torch.cat([row[:length] for row, length in zip(table, self.batch.lengths, strict=True)])

    @torch.no_grad()
    def enumerated_best_scores(self) -> Tensor:
        """Log probability ``(B,)`` of the best path by Pyro's enumeration."""
        decode: Any = infer_discrete
        decoded = decode(self._given_emission(), first_available_dim=-2, temperature=0)
        trace = poutine.trace(decoded).get_trace(self.batch)
        trace.compute_log_prob(lambda name, site: name.startswith(("z_", "x_")))
        total = torch.zeros(self.batch.num_documents, dtype=torch.float64)
        for name, site in trace.nodes.items():
            if name.startswith(("z_", "x_")):
                total = total + site["log_prob"]
        return total

    def _given_emission(self) -> Callable[[PackedBatch], None]:
        model = SparseCHMMModel(self.conditionals, self.prior, self.conditionals.config.kl_weight, "enum")
        emission = self.conditionals.emission_mean(self.batch.document_vectors)
        conditioned: Callable[[PackedBatch], None] = poutine.condition(model, data={"emission": emission})
        return conditioned
