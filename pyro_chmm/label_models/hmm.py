"""The HMM of the paper's baselines, as an estimator."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np
import pyro
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyro_chmm import chain, progress
from pyro_chmm.data.batching import OWeights, PackedBatch, PackedCorpus
from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.encoder import NONE, EncoderSettings, encode
from pyro_chmm.data.labels import Ids
from pyro_chmm.errors import ConfigError
from pyro_chmm.label_models.fitted import FittedModel
from pyro_chmm.label_models.majority_vote import MajorityVote
from pyro_chmm.model.hidden_chain import log_emission_evidence
from pyro_chmm.model.hmm import HMMModel, em_step
from pyro_chmm.model.initialization import observed_statistics

log = logging.getLogger(__name__)

#: EM has converged when a step gains less than so many nats a token.
_CONVERGED = 1e-6
#: Tokens worked on at once.
_BATCH_TOKENS = 16_384


class HMM(FittedModel):
    """A hidden Markov model of the LFs (Nguyen et al., 2017; Lison et al., 2020), by EM to the maximum of its posterior density.

    The story is that of :class:`pyro_chmm.model.hmm.HMMModel`. EM starts at the statistics of the majority vote, and the emission
    prior is centred there, so that a label keeps its meaning. It departs from skweak's HMM, whose figures the benchmark prints,
    in that the O of an LF counts a tenth of an entity label where another LF fires, and decoding admits valid BIO only. As plain
    evidence it silences most entities (Laptop's F1 is 43 then); as none, nothing tells types apart that different LFs look for
    (BC5CDR's is 60).

    :param emission_strength: observations that the emission prior is worth, a row.
    :param transition_strength: pseudo-count of each transition.
    :param o_weight_contested: what an LF's O counts where another LF fires; 1 is plain evidence.
    :param o_weight_silent: what it counts where none does.
    :param max_steps: at most so many EM steps; it ends on convergence.
    :param backend: of the chain: auto, reference, cpu or cuda.
    :raises ConfigError: for a value that makes no sense.

    After :meth:`fit`: ``transition_`` (L, L), ``emission_`` (K, L, L), ``log_density_`` (nats, one a step), ``seconds_per_epoch_``.
    """

    def __init__(
        self,
        emission_strength: float = 1000.0,
        transition_strength: float = 0.1,
        o_weight_contested: float = 0.1,
        o_weight_silent: float = 1.0,
        max_steps: int = 50,
        backend: str = "auto",
    ) -> None:
        for name, value in (("emission_strength", emission_strength), ("transition_strength", transition_strength)):
            if value < 0:
                raise ConfigError(f"{name} is {value!r}; it must be 0 or more.")
        for name, value in (("o_weight_contested", o_weight_contested), ("o_weight_silent", o_weight_silent)):
            if not 0 <= value <= 1:
                raise ConfigError(f"{name} is {value!r}; it must be from 0 to 1.")
        if max_steps < 1:
            raise ConfigError(f"max_steps is {max_steps!r}; it must be 1 or more.")
        self.emission_strength, self.transition_strength = emission_strength, transition_strength
        self.o_weight_contested, self.o_weight_silent = o_weight_contested, o_weight_silent
        self.max_steps, self.backend = max_steps, backend
        self.log_density_: list[float] = []
        self.seconds_per_epoch_: dict[str, float] = {}

    def fit(self, train: Corpus, valid: Corpus | None = None) -> Self:
        """Learn from the weak labels of ``train``; ``valid`` is not looked at.

        :raises DataError: where the training corpus has no token or LF.
        """
        self.begin_fit(train, valid)
        packed = self._pack(train)
        start = observed_statistics(packed, MajorityVote().predict_ids(train))
        self.transition_, self.emission_ = start.transition.double(), start.emission.double()
        self.transition_ /= self.transition_.sum(dim=-1, keepdim=True)
        self.emission_ /= self.emission_.sum(dim=-1, keepdim=True)
        model = HMMModel(
            torch.full_like(self.transition_, 1 + self.transition_strength),
            1 + self.emission_strength * self.emission_,
            int((np.diff(train.offsets) > 0).sum()),
            backend=self.backend,
        )
        self.log_density_, seconds = [], []
        with progress.task("EM", total=self.max_steps, unit="steps") as advance, pyro.validation_enabled(False):
            for step in range(1, self.max_steps + 1):
                started = time.perf_counter()
                self.transition_, self.emission_, density = em_step(
                    model, self._batches(packed), self.transition_, self.emission_
                )
                seconds.append(time.perf_counter() - started)
                self.log_density_.append(density)
                log.debug("HMM, EM step %d: log density %.3f", step, density)
                advance(1, note=f"log density {density:.1f}")
                if step > 1 and density - self.log_density_[-2] < _CONVERGED * train.num_tokens:
                    break
        self.seconds_per_epoch_ = {"1": float(np.mean(seconds))}
        return self

    def predict_ids(self, corpus: Corpus) -> Ids:
        """Most probable label sequences (Viterbi), ``(N,)`` ids; valid BIO."""
        packed = self._pack(self.aligned(corpus))
        parts = [chain.viterbi(*self._chain(b), logits=False, backend=self.backend).labels for b in self._batches(packed)]
        return torch.cat([torch.zeros(0, dtype=torch.long), *parts]).numpy().astype(np.int16)

    def predict_proba(self, corpus: Corpus) -> list[NDArray[np.floating]]:
        """Posterior marginals of each document's labels, ``(T, L)`` each; rows sum to 1."""
        packed = self._pack(self.aligned(corpus))
        parts = [chain.marginals(*self._chain(b), logits=False, backend=self.backend).state for b in self._batches(packed)]
        state = torch.cat([torch.zeros(0, len(self.labels()), dtype=torch.float64), *parts])
        state = state / state.sum(dim=-1, keepdim=True)
        return [part.numpy() for part in state.split(np.diff(corpus.offsets).tolist())]

    def _pack(self, corpus: Corpus) -> PackedCorpus:
        weights = OWeights(self.o_weight_contested, self.o_weight_silent, self.o_weight_silent)
        return PackedCorpus(corpus, encode(corpus, EncoderSettings(NONE)), weights)

    def _batches(self, packed: PackedCorpus) -> Iterator[PackedBatch]:
        """All tokens in order; empty documents, which have none, left out."""
        corpus = packed.corpus
        occupied = np.flatnonzero(np.diff(corpus.offsets) > 0)
        ends = np.cumsum(np.diff(corpus.offsets)[occupied])
        for documents in np.split(occupied, np.flatnonzero(np.diff(ends // _BATCH_TOKENS)) + 1):
            if len(documents):
                yield packed.batch(documents).to("cpu", torch.float64)

    def _chain(self, batch: PackedBatch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Initial, transitions that BIO allows, log evidence and offsets."""
        allowed = torch.from_numpy(self.labels().allowed_transitions.copy())
        transition = torch.where(allowed, self.transition_, 0.0)
        evidence = log_emission_evidence(self.emission_.log().unsqueeze(0), batch, self.backend)
        initial = torch.eye(len(allowed), dtype=torch.float64)[0]
        return initial, transition.expand(len(evidence), *allowed.shape), evidence, batch.offsets

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments."""
        names = ("emission_strength", "transition_strength", "o_weight_contested", "o_weight_silent", "max_steps", "backend")
        return {name: getattr(self, name) for name in names}

    def weights(self) -> dict[str, Tensor]:
        """``transition`` and ``emission``, in double precision."""
        return {"transition": self.transition_, "emission": self.emission_}

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        """From :meth:`weights`."""
        labels, lfs = len(self.labels()), len(self.lf_names)
        self.transition_ = weights["transition"].reshape(labels, labels)
        self.emission_ = weights["emission"].reshape(lfs, labels, labels)
