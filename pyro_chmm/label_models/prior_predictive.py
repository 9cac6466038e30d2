"""What priors mean before any weak label counts: draws of emissions, and of the labels and weak labels that follow."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from pyro.distributions import Beta, Dirichlet
from torch import Tensor

from pyro_chmm.data.batching import PackedBatch
from pyro_chmm.label_models.posterior import CorpusDraws
from pyro_chmm.model.prior_densities import called_prior, dirichlet, document_prior
from pyro_chmm.model.priors import (
    Amortized,
    AnyPrior,
    BioConstrained,
    EmissionPrior,
    Hierarchical,
    ReliabilityPrior,
    TransitionPrior,
)

#: Least concentration of a valid transition, where a prior has no pseudo-observation of it.
_LEAST = 1e-3


class PriorPredictive(CorpusDraws):
    """Draws from the model alone, as from a posterior; the corpus gives tokens, and which LFs gave a label where.

    ::

        for each draw, for each document m:
            emission  ~ its prior; where that is amortized, what the networks give, with the reliabilities' prior if there is one
            z         ~ the chain, with transitions from their prior; without one, what the networks give
            x[t, k]   ~ Categorical(emission[k, z[t], :])

    The networks of a model that was not fitted start from the corpus's majority vote, as training would. A transition prior gives
    one matrix a draw, for all tokens. A callable prior on transitions or reliabilities is not drawn from; the networks stand in.
    """

    groups = ("prior", "prior_predictive")

    def __init__(self, *arguments: Any, prior: AnyPrior, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.prior = prior

    @cached_property
    def _corpus_emission(self) -> Tensor | None:
        """(D, K, L, L) of a hierarchical prior: all documents share it."""
        if not isinstance(self.prior, Hierarchical):
            return None
        with self._seeded(len(self)):  # no document's
            return dirichlet(self.prior.concentration(self.conditionals.observed)).sample((self.draws,))

    @cached_property
    def _matrices(self) -> Tensor | None:
        """(D, L, L) transition matrices, from their prior."""
        prior, conditionals = self.conditionals.transition_prior, self.conditionals
        if not isinstance(prior, TransitionPrior) or isinstance(prior, BioConstrained):
            return None
        concentration = prior.concentration(conditionals.observed, conditionals.allowed_transitions)
        with self._seeded(len(self) + 1):
            return Dirichlet(concentration.clamp(min=_LEAST)).sample((self.draws,))

    def _draw_emission(self, batch: PackedBatch) -> Tensor:
        prior, conditionals = self.prior, self.conditionals
        if isinstance(prior, Amortized):
            if not isinstance(conditionals.reliability_prior, ReliabilityPrior):
                return conditionals.emission_distribution(batch.document_vectors).sample((self.draws,))[:, 0]
            return self._from_reliabilities(conditionals.reliability_prior, batch)
        if isinstance(prior, EmissionPrior):
            # the D draws stand where document_prior() has documents
            return document_prior(prior, conditionals, self.draws, self._corpus_emission).sample()
        shape = tuple(conditionals.observed_emission.shape)
        return called_prior("emission_prior", prior, batch.document_vectors, shape).sample((self.draws,))[:, 0]

    def _from_reliabilities(self, prior: ReliabilityPrior, batch: PackedBatch) -> Tensor:
        """Reliabilities from their prior where it says something, then the emission as the guide makes it from them."""
        conditionals = self.conditionals
        counts = prior.concentration(conditionals.observed)
        believed = counts.sum(dim=-1) > 0
        safe = torch.where(believed.unsqueeze(-1), counts, torch.ones_like(counts)).clamp(min=_LEAST)
        drawn = Beta(safe[..., 0], safe[..., 1]).sample((self.draws,))
        reliability = torch.where(believed, drawn, conditionals.reliability(batch.document_vectors))
        return dirichlet(conditionals.concentration_of(reliability, batch.document_vectors)).sample()

    def _transitions(self, batch: PackedBatch) -> Tensor:
        if self._matrices is None:
            return self.conditionals.decoding_transitions(batch.token_vectors).unsqueeze(0)
        matrices = self._matrices
        if self.conditionals.config.constrained_decoding:
            matrices = matrices.masked_fill(~self.conditionals.allowed_transitions, 0.0)
        return matrices.unsqueeze(1).expand(-1, len(batch.weak_labels), -1, -1)

    def _evidence(self, emission: Tensor, copies: PackedBatch) -> Tensor:
        return emission.new_zeros(len(copies.weak_labels), emission.shape[-1])
