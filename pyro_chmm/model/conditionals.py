"""One method for each conditional of the story; model, guide and prediction all call these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self, cast

import torch
from pyro.distributions import Delta, Dirichlet, TorchDistribution
from torch import Tensor, nn

from pyro_chmm import chain
from pyro_chmm.data.batching import OWeights, PackedBatch, TokenVectors
from pyro_chmm.data.encoder import EncoderSettings
from pyro_chmm.data.labels import LabelSet
from pyro_chmm.model.coarse_evidence import coarse_log_evidence
from pyro_chmm.model.config import SparseCHMMConfig
from pyro_chmm.model.networks import Networks
from pyro_chmm.model.priors import (
    AnyPrior,
    AnyReliabilityPrior,
    AnyTransitionPrior,
    BioConstrained,
    EmissionPrior,
    Hierarchical,
    is_hierarchical,
)
from pyro_chmm.model.reliability import (
    check_expansion,
    expand_reliability,
    reliability_scores,
    scale_reliability,
)
from pyro_chmm.model.statistics import ObservedStatistics
from pyro_chmm.model.wxor import addon_prior


def o_weights(config: SparseCHMMConfig, training: bool) -> OWeights:
    """What observations count, by the configuration; in prediction, of a posterior that is tempered."""
    if training:
        return OWeights(config.o_weight_contested, config.o_weight_silent, config.o_weight_beside)
    weights = (config.o_weight_contested, config.o_weight_prediction, config.o_weight_beside, 1.0)
    return OWeights(*(weight / config.posterior_temperature for weight in weights))


def encoder_settings(config: SparseCHMMConfig, encoder: str | None = None) -> EncoderSettings:
    """What the vectors are, by the configuration; of another ``encoder`` where one is given."""
    return EncoderSettings(encoder or config.encoder, config.layers, config.document_vector, config.ngrams)


class Conditionals(nn.Module):
    """Networks, hyper-parameters and corpus statistics, and the conditionals they give.

    :param networks: the linear layers; they fix K and L.
    :param config: hyper-parameters.
    :param allowed_transitions: ``(L, L)`` bool (from, to): the valid BIO transitions, for constrained decoding.
    :ivar emission_prior: whose pseudo-observations the guide adds to its own; to be set before training, as the next two.
    :ivar transition_prior, reliability_prior: on what the networks predict.
    :raises ConfigError: where the expansion function leaves the simplex for this L.
    """

    initial: Tensor
    wxor: Tensor
    observed_emission: Tensor
    observed_transition: Tensor
    label_share: Tensor
    training_size: Tensor
    allowed_transitions: Tensor

    def __init__(self, networks: Networks, config: SparseCHMMConfig, allowed_transitions: Tensor) -> None:
        super().__init__()
        self.networks, self.config = networks, config
        lfs, labels = networks.num_lfs, networks.num_labels
        for r in (config.g_r_stage1, config.g_r_stage23):
            check_expansion(labels, config.g_n, r / labels)
        self.stage = 1
        self.emission_prior: AnyPrior | None = None
        self.transition_prior: AnyTransitionPrior = None
        self.reliability_prior: AnyReliabilityPrior = None
        self.register_buffer("initial", torch.eye(labels)[0])  # z[0] is O: the sentence token
        self.register_buffer("wxor", torch.zeros(lfs, labels, labels))
        self.register_buffer("observed_emission", torch.full((lfs, labels, labels), 1.0 / labels))
        self.register_buffer("observed_transition", torch.full((labels, labels), 1.0 / labels))
        self.register_buffer("label_share", torch.full((labels,), 1.0 / labels))
        self.register_buffer("training_size", torch.zeros(2, dtype=torch.long))  # documents, tokens
        self.register_buffer("allowed_transitions", allowed_transitions)

    @classmethod
    def build(
        cls, config: SparseCHMMConfig, label_set: LabelSet, num_lfs: int, token_width: int, document_width: int
    ) -> Self:
        """An untrained model for some labels, LFs and vectors."""
        networks = Networks(
            token_width,
            document_width,
            num_lfs,
            len(label_set),
            entity_level=config.reliability_level == "entity",
            transition_hidden=config.transition_hidden,
            shared_transition=config.shared_transition,
            dropout=config.dropout,
            corpus_emission=is_hierarchical(config.emission_prior),
        )
        return cls(networks, config, torch.from_numpy(label_set.allowed_transitions.copy()))

    def restore(self, stage: int, weights: Mapping[str, Tensor]) -> None:
        """Put the weights of a stage in place."""
        self.requires_grad_(True)
        self.stage = stage
        self.load_state_dict(weights)

    def transition_logits(self, token_vectors: Tensor | TokenVectors) -> Tensor:
        """``(N, width) -> (N, L, L)`` (from, to), section 3.1."""
        logits: Tensor = self.networks.transition(token_vectors)
        if isinstance(self.transition_prior, BioConstrained):
            return logits.masked_fill(~self.allowed_transitions, -torch.inf)
        return logits

    @property
    def observed(self) -> ObservedStatistics:
        """What was counted on the training documents."""
        return ObservedStatistics(self.observed_transition, self.observed_emission, self.label_share)

    def reliability(self, document_vectors: Tensor) -> Tensor:
        """Scaled reliabilities, eqs. (1) and (2): ``(B, width) -> (B, K, L)``."""
        config, lfs = self.config, self.networks.num_lfs
        scores = reliability_scores(
            self.networks.reliability_logits(document_vectors), config.softmax_reliability
        )
        if not config.scale_reliability:
            return scores
        # O is no share of a SoftMax and keeps its sigmoid; a single LF has no share to split at
        split = 1.0 / lfs if lfs > 1 else 0.5
        return torch.cat(
            [scores[..., :1], scale_reliability(scores[..., 1:], config.h_n, config.h_s, split)], dim=-1
        )

    def base_prior(self, reliability: Tensor) -> Tensor:
        """Emission base prior, eq. (3), from scaled reliabilities: ``(B, K, L) -> (B, K, L, L)``."""
        config = self.config
        split = (config.g_r_stage1 if self.stage == 1 else config.g_r_stage23) / self.networks.num_labels
        return expand_reliability(
            reliability, config.g_n, split, config.naive_emission, config.detach_base_prior
        )

    def concentration(self, document_vectors: Tensor, corpus_emission: Tensor | None = None) -> Tensor:
        """Of the guide's Dirichlet: ``(B, width) -> (B, K, L, L)``.

        Omega of section 3.2.3, and the pseudo-observations of a Dirichlet prior beside it, as a conjugate posterior has them: a
        strong prior is then given back, whatever rows the networks can make.

        :param corpus_emission: a draw ``(K, L, L)`` of what a hierarchical prior is centred at; without it, the guide's mean.
        """
        omega, prior = self.concentration_of(self.reliability(document_vectors), document_vectors), self.emission_prior
        if not isinstance(prior, EmissionPrior):
            return omega
        if not isinstance(prior, Hierarchical):
            return omega + self.config.kl_weight * prior.concentration(self.observed)
        if corpus_emission is None:
            assert self.networks.corpus_emission is not None, "built for a hierarchical prior"
            corpus_emission = _rows(self.networks.corpus_emission())
        return omega + self.config.kl_weight * prior.of_document(corpus_emission)

    def concentration_of(self, reliability: Tensor, document_vectors: Tensor) -> Tensor:
        """Omega, given scaled reliabilities ``(B, K, L)``; the addon prior enters after stage 1."""
        prior = self.base_prior(reliability)
        if self.stage > 1 and self.config.stage2 != "none":
            prior = prior + addon_prior(self.networks.addon_scale(document_vectors), self.wxor)
        return self.config.concentration_range * prior + self.config.concentration_base

    def emission_mean(self, document_vectors: Tensor) -> Tensor:
        """Dirichlet means, used outside training: ``(B, width) -> (B, K, L, L)``."""
        return _rows(self.concentration(document_vectors))

    def predicted_emission(self, document_vectors: Tensor) -> Tensor:
        """The means that the networks make by themselves, without a prior: ``(B, width) -> (B, K, L, L)``."""
        return _rows(self.concentration_of(self.reliability(document_vectors), document_vectors))

    def emission_distribution(self, document_vectors: Tensor, corpus_emission: Tensor | None = None) -> TorchDistribution:
        """The guide's emission, batch shape ``(B,)``, event shape ``(K, L, L)``; see :meth:`concentration`."""
        concentration = self.concentration(document_vectors, corpus_emission)
        if self.config.sample_emission:
            return cast(TorchDistribution, Dirichlet(concentration).to_event(2))
        return Delta(_rows(concentration), event_dim=3)

    def log_emission_evidence(self, emission: Tensor, batch: PackedBatch) -> Tensor:
        """Log of eq. (10): ``(B, K, L, L) -> (N, L)``."""
        evidence = chain.emission_evidence(emission.log(), batch.weak_labels, batch.weight, batch.offsets)
        return evidence if batch.coarse is None else evidence + coarse_log_evidence(emission, batch)

    def chain_transitions(self, logits: Tensor) -> tuple[Tensor, bool]:
        """What :mod:`pyro_chmm.chain` takes: ``(N, L, L)``, and whether its kernels still have to take the SoftMax of rows.

        Normalised over sequences, these are factors: the chain's evidence is that of :meth:`log_partition` too high.
        """
        if self.config.transition_normalization == "row":
            return logits, True
        return (logits - logits.detach().amax((-1, -2), keepdim=True)).exp(), False

    def log_partition(self, transitions: Tensor, offsets: Tensor) -> Tensor:
        """Log of the sum of all label sequences' factors, ``(B,)``; 0 where rows are normalised."""
        if self.config.transition_normalization == "row":
            return transitions.new_zeros(len(offsets) - 1, dtype=torch.float64)
        silence = transitions.new_zeros(transitions.shape[:2])
        initial, backend = self.initial.to(transitions), self.config.backend
        return chain.log_evidence(initial, transitions, silence, offsets, logits=False, backend=backend)

    def log_evidence(self, emission: Tensor, batch: PackedBatch) -> Tensor:
        """Log probability of each document's weak labels given an emission: ``(B, K, L, L) -> (B,)``."""
        transitions, logits = self.chain_transitions(self.transition_logits(batch.token_vectors))
        evidence = self.log_emission_evidence(emission, batch)
        initial, backend = self.initial.to(transitions), self.config.backend
        total = chain.log_evidence(initial, transitions, evidence, batch.offsets, logits=logits, backend=backend)
        return total - self.log_partition(transitions, batch.offsets)

    def decoding_transitions(self, token_vectors: Tensor | TokenVectors) -> Tensor:
        """Transition probabilities or factors ``(N, L, L)`` for decoding, see :meth:`decoding_potentials`."""
        return self.decoding_potentials(self.transition_logits(token_vectors))

    def decoding_potentials(self, logits: Tensor) -> Tensor:
        """Transition probabilities or factors ``(N, L, L)`` for decoding, from transition logits.

        Where decoding is constrained, invalid BIO transitions have probability 0 and rows are not normalised again: the
        posterior is then that of the model given that the sequence is valid. They are tempered as the observations are.
        """
        transitions, are_logits = self.chain_transitions(logits)
        if are_logits:
            transitions = torch.softmax(transitions, dim=-1)
        if self.config.posterior_temperature != 1:
            transitions = transitions ** (1 / self.config.posterior_temperature)
        if not self.config.constrained_decoding:
            return transitions
        return transitions.masked_fill_(~self.allowed_transitions, 0.0)


def _rows(concentration: Tensor) -> Tensor:
    return concentration / concentration.sum(dim=-1, keepdim=True)


def sequence_transitions(logits: Tensor, inside: Tensor) -> list[Tensor]:
    """The Markov chain that a globally normalised chain is, given all of its document: transitions that look ahead.

    Row i of step t is proportional to ``exp(logits[t, i, :])`` times the sum over all that may follow.

    :param logits: ``(B, T, L, L)``, padded.
    :param inside: ``(B, T)`` bool, where there is a token.
    :returns: T transition matrices ``(B, L, L)``, rows that sum to 1.
    """
    ahead = logits.new_zeros(logits.shape[0], logits.shape[-1])  # log of what follows each label
    rows: list[Tensor] = []
    for factor, token in zip(reversed(logits.unbind(1)), reversed(inside.unbind(1)), strict=True):
        scores = factor + ahead.unsqueeze(-2)
        rows.append(torch.softmax(scores, dim=-1))
        ahead = torch.where(token.unsqueeze(-1), scores.logsumexp(dim=-1), ahead)
    return rows[::-1]
