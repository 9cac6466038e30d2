"""Draws from what a model believes: emissions, label sequences, reliabilities, and the weak labels that would follow from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyro_chmm import chain
from pyro_chmm.data.batching import PackedBatch, PackedCorpus
from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.labels import ABSTAIN
from pyro_chmm.errors import ConfigError, DataError
from pyro_chmm.model.conditionals import Conditionals
from pyro_chmm.model.sparse_chmm import corpus_posterior

if TYPE_CHECKING:
    from xarray import DataTree

#: Copies of a document, one for each draw, hold at most so many transition probabilities at once.
_TRANSITIONS = 4_000_000

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int16]


@dataclass(frozen=True, eq=False)
class DocumentDraws:
    """The draws for one document: D draws, T tokens, K LFs, L labels."""

    document: int
    """Its number in the corpus."""
    emission: Floats
    """(D, K, L, L): LF, true label, observed label"""
    labels: Ids
    """(D, T): label sequences, drawn whole"""
    weak_labels: Ids
    """(D, T, K): what the LFs would say of those; -1 where an LF abstained or gave a coarse label"""
    marginals: Floats
    """(T, L): probability of each label, exact given an emission and averaged over its draws"""


def type_reliabilities(emission: Floats) -> Floats:
    """How often an LF says the truth, by type: ``(..., K, L, L) -> (..., K, 1 + E)``.

    O first, then for each entity type the mean of the emission's diagonal over its ``B-`` and ``I-`` label.
    """
    diagonal = np.diagonal(emission, axis1=-2, axis2=-1)
    return np.concatenate([diagonal[..., :1], (diagonal[..., 1::2] + diagonal[..., 2::2]) / 2], axis=-1)


class CorpusDraws(ABC):
    """Draws for the documents of a corpus, made when they are asked for, one document at a time; each time the same ones.

    ``for document in draws`` goes through all of them in the memory of one. What is kept is means over documents.

    :param conditionals: of the model.
    :param packed: the corpus as the model sees it.
    :param corpus: the corpus as the user knows it.
    :param draws: D.
    :param seed: of all draws; each document has random numbers of its own.
    :raises ConfigError: where ``draws`` is not a positive whole number.
    """

    groups: ClassVar[tuple[str, str]]
    """What ArviZ calls draws of this kind: those of parameters, and of observations."""

    def __init__(self, conditionals: Conditionals, packed: PackedCorpus, corpus: Corpus, *, draws: int, seed: int) -> None:
        if not isinstance(draws, int) or draws < 1:
            raise ConfigError(f"draws is {draws!r}; expected a whole number, 1 or more.")
        self.conditionals, self.packed, self.corpus = conditionals, packed, corpus
        self.draws, self.seed = draws, seed
        self.device = conditionals.initial.device

    @abstractmethod
    def _draw_emission(self, batch: PackedBatch) -> Tensor:
        """(D, K, L, L) for the one document of a batch, from torch's own random numbers."""

    @abstractmethod
    def _transitions(self, batch: PackedBatch) -> Tensor:
        """(D or 1, T, L, L) probabilities or factors."""

    @abstractmethod
    def _evidence(self, emission: Tensor, copies: PackedBatch) -> Tensor:
        """Log evidence (d T, L) of d copies of a document, each with an emission of its own."""

    def __len__(self) -> int:
        return self.corpus.num_documents

    def __iter__(self) -> Iterator[DocumentDraws]:
        return (self.document(number) for number in range(len(self)))

    @torch.no_grad()
    def document(self, number: int) -> DocumentDraws:
        """All draws for one document.

        :raises DataError: where the corpus has no such document.
        """
        batch = self._batch(number)
        lfs = self.corpus.num_lfs  # a vote that joined them in training comes last
        with self._seeded(number):
            emission = self._draw_emission(batch)
            labels, marginals = self._draw_labels(batch, emission)
            weak_labels = _draw_weak_labels(emission[:, :lfs], labels)
        given = torch.from_numpy(self.corpus.weak_labels[self.corpus.document_slice(number)] != ABSTAIN)
        return DocumentDraws(
            number,
            emission[:, :lfs].double().cpu().numpy(),
            labels.cpu().numpy().astype(np.int16),
            torch.where(given, weak_labels.cpu(), ABSTAIN).numpy().astype(np.int16),
            marginals.double().cpu().numpy(),
        )

    @torch.no_grad()
    def emission(self, document: int | None = None) -> Floats:
        """Draws of the emission (draw, LF, true label, observed label): of one document, or of the mean over all documents.

        Each document has an emission of its own, so the mean over many is much surer than that of one.

        :raises DataError: where the corpus has no such document.
        """
        if document is None:
            return self._mean_emission
        batch = self._batch(document)
        with self._seeded(document):
            return self._draw_emission(batch)[:, : self.corpus.num_lfs].double().cpu().numpy()

    def reliabilities(self, document: int | None = None) -> Floats:
        """Draws of the reliabilities (draw, LF, 1 + E), likewise; see :func:`type_reliabilities`."""
        return type_reliabilities(self.emission(document))

    def labels(self, document: int) -> Ids:
        """Draws of a document's label sequence (draw, token)."""
        return self.document(document).labels

    def weak_labels(self, document: int) -> Ids:
        """Draws of a document's weak labels (draw, token, LF), -1 where an LF gave no ordinary label."""
        return self.document(document).weak_labels

    def marginals(self, document: int) -> Floats:
        """Probabilities of a document's labels (token, label)."""
        return self.document(document).marginals

    def to_inference_data(self) -> DataTree:
        """All draws as a tree that ArviZ reads; see :mod:`pyro_chmm.label_models.inference_data`.

        Unlike all else here, this holds the draws of every document at once: 1 + K bytes a draw and token.

        :raises ConfigError: where arviz-base is not installed.
        """
        from pyro_chmm.label_models.inference_data import to_inference_data  # it imports this module

        return to_inference_data(self)

    @cached_property
    def _mean_emission(self) -> Floats:
        labels = len(self.corpus.label_set)
        total = np.zeros((self.draws, self.corpus.num_lfs, labels, labels))
        for number in range(len(self)):
            total += self.emission(number)
        return total / max(len(self), 1)

    def _batch(self, number: int) -> PackedBatch:
        if not 0 <= number < len(self):
            raise DataError(f"There is no document number {number}; the corpus has {len(self)} documents.")
        return self.packed.batch(np.array([number], np.int64)).to(self.device)

    @contextmanager
    def _seeded(self, number: int) -> Iterator[None]:
        """Random numbers of one document, whatever was drawn before."""
        state = np.random.SeedSequence((self.seed, number)).generate_state(1, np.uint64)[0]
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(int(state >> np.uint64(1)))
            yield

    def _draw_labels(self, batch: PackedBatch, emission: Tensor) -> tuple[Tensor, Tensor]:
        """Label sequences (D, T) and marginals (T, L), for as many draws at once as memory allows."""
        tokens, labels = len(batch.weak_labels), emission.shape[-1]
        if tokens == 0:
            return batch.weak_labels.new_empty(self.draws, 0), emission.new_empty(0, labels)
        transitions = self._transitions(batch)
        at_once = max(_TRANSITIONS // (tokens * labels * labels), 1)
        parts, total = [], emission.new_zeros(tokens, labels, dtype=torch.float64)
        for part in torch.arange(self.draws, device=self.device).split(at_once):
            factors = transitions[part] if len(transitions) > 1 else transitions.expand(len(part), -1, -1, -1)
            copies = _copies(batch, len(part))
            evidence = self._evidence(emission[part], copies)
            inputs = self.conditionals.initial, factors.flatten(0, 1), evidence, copies.offsets
            backend = self.conditionals.config.backend
            drawn = chain.sample(*inputs, draws=1, logits=False, backend=backend)
            parts.append(drawn.view(len(part), tokens))
            state = chain.marginals(*inputs, logits=False, backend=backend).state.view(len(part), tokens, labels)
            total += (state / state.sum(dim=-1, keepdim=True).clamp(min=1e-30)).sum(dim=0)
        return torch.cat(parts), total / self.draws


class Posterior(CorpusDraws):
    """What a fitted model believes of a corpus, and how sure it is.

    ::

        for each draw, for each document m:
            emission  ~ the guide's Dirichlet(concentration(e0)), about the draw's corpus emission under a hierarchical prior
            z         ~ p(z | emission, weak labels)              by forward filtering, backward sampling
            x[t, k]   ~ Categorical(emission[k, z[t], :])         the posterior predictive

    Labels and evidence are those of prediction: valid BIO sequences where decoding is constrained, ``o_weight_prediction`` for
    silence. Where training took the Dirichlet's mean (``sample_emission=False``), so does every draw.
    """

    groups = ("posterior", "posterior_predictive")

    @cached_property
    def _corpus_emission(self) -> Tensor | None:
        """(D, K, L, L) under a hierarchical prior: all documents share it."""
        if self.conditionals.networks.corpus_emission is None:
            return None
        with self._seeded(len(self)):  # no document's
            return corpus_posterior(self.conditionals).sample((self.draws,))

    def _draw_emission(self, batch: PackedBatch) -> Tensor:
        vectors, corpus = batch.document_vectors, self._corpus_emission
        if corpus is None:
            return self.conditionals.emission_distribution(vectors).sample((self.draws,))[:, 0]
        return self.conditionals.emission_distribution(vectors.expand(self.draws, -1), corpus).sample()

    def _transitions(self, batch: PackedBatch) -> Tensor:
        return self.conditionals.decoding_transitions(batch.token_vectors).unsqueeze(0)

    def _evidence(self, emission: Tensor, copies: PackedBatch) -> Tensor:
        return self.conditionals.log_emission_evidence(emission, copies)


def _copies(batch: PackedBatch, number: int) -> PackedBatch:
    """The one document of a batch several times over, without its token vectors."""
    tokens = len(batch.weak_labels)
    coarse = batch.coarse
    return PackedBatch(
        batch.documents.expand(number),
        torch.arange(number + 1, device=batch.offsets.device) * tokens,
        batch.document_vectors.expand(number, -1),
        batch.token_vectors[:0],
        batch.weak_labels.repeat(number, 1),
        batch.weight.repeat(number, 1),
        None if coarse is None else replace(coarse, labels=coarse.labels.repeat(number, 1)),
    )


def _draw_weak_labels(emission: Tensor, labels: Tensor) -> Tensor:
    """What each LF says of drawn labels: ``(D, K, L, L), (D, T) -> (D, T, K)``; one LF at a time, to save memory."""
    draws, lfs = emission.shape[:2]
    if labels.numel() == 0:
        return labels.new_empty(*labels.shape, lfs)
    draw = torch.arange(draws, device=labels.device).unsqueeze(-1)
    said = [torch.multinomial(emission[draw, lf, labels].flatten(0, 1), 1).view(labels.shape) for lf in range(lfs)]
    return torch.stack(said, dim=-1)
