"""Priors on what networks predict: transitions and reliabilities. Training finds the mode: their log density joins the objective.

A density of probabilities has its mode elsewhere in another basis; these are densities of logits (softmax basis, MacKay 1998),
whose mode is the mean: ``sum c log p`` and a constant. What is predicted for each token or document has a share in the density, all
shares together one: a ``strength`` is worth that many observations in the whole corpus.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor

from pyro_chmm.data.labels import LabelSet
from pyro_chmm.errors import ConfigError
from pyro_chmm.model.priors.accuracies import BelievedAccuracies
from pyro_chmm.model.priors.base import Prior, table
from pyro_chmm.model.statistics import ObservedStatistics


class TransitionPrior(Prior):
    """Pseudo-observations of transitions.

    They are compared with the rows of each token's transition matrix, ``softmax(logits[i, :])``. Where transitions are normalised
    over whole sequences, logits are factors and those rows are not yet the chain's transitions, which also look ahead.
    """

    keyword = "transition_prior"

    @abstractmethod
    def concentration(self, observed: ObservedStatistics, allowed: Tensor) -> Tensor:
        """Pseudo-observations ``(L, L)`` (from, to), 0 or more.

        :param allowed: ``(L, L)`` bool, the valid BIO transitions.
        """


@dataclass(frozen=True)
class SymmetricTransition(TransitionPrior):
    """Every label is as likely to follow: ``strength / L`` each."""

    strength: float
    name = "symmetric"

    def __post_init__(self) -> None:
        self.require_strength(self.strength)

    def concentration(self, observed: ObservedStatistics, allowed: Tensor) -> Tensor:
        return torch.full_like(observed.transition, self.strength / len(allowed))


@dataclass(frozen=True)
class Sticky(TransitionPrior):
    """Spans and gaps go on: ``strength`` on O after O and on ``I-X`` after ``B-X`` or ``I-X``, one more over all valid labels."""

    strength: float
    name = "sticky"

    def __post_init__(self) -> None:
        self.require_strength(self.strength)

    def concentration(self, observed: ObservedStatistics, allowed: Tensor) -> Tensor:
        ids = torch.arange(len(allowed), device=allowed.device)
        on = torch.where(ids % 2 == 1, ids + 1, ids)
        stays = torch.nn.functional.one_hot(on, len(allowed)).to(observed.transition)
        return self.strength * stays + allowed.to(observed.transition) / allowed.sum(dim=-1, keepdim=True)


@dataclass(frozen=True)
class EmpiricalTransition(TransitionPrior):
    """The transitions of majority voting on the training documents, worth ``strength`` observations a row."""

    strength: float
    name = "empirical"

    def __post_init__(self) -> None:
        self.require_strength(self.strength)

    def concentration(self, observed: ObservedStatistics, allowed: Tensor) -> Tensor:
        return self.strength * observed.transition


@dataclass(frozen=True)
class TransitionTable(TransitionPrior):
    """A mean transition matrix of the user's own, ``(L, L)`` (from, to), worth ``strength`` observations a row."""

    mean: Sequence[Sequence[float]]
    strength: float
    name = "table"

    def __post_init__(self) -> None:
        self.require_strength(self.strength)

    def bound(self, lf_names: Sequence[str], label_set: LabelSet) -> Self:
        table(self.mean, (len(label_set), len(label_set)), self.keyword, "from label, to label")
        return self

    def concentration(self, observed: ObservedStatistics, allowed: Tensor) -> Tensor:
        return self.strength * torch.as_tensor(self.mean).to(observed.transition)


@dataclass(frozen=True)
class BioConstrained(TransitionPrior):
    """Invalid BIO transitions are impossible, in training as in decoding; nothing is said about the others."""

    name = "bio"

    def concentration(self, observed: ObservedStatistics, allowed: Tensor) -> Tensor:
        return torch.zeros_like(observed.transition)


class ReliabilityPrior(Prior):
    """Pseudo-observations of LFs being right and wrong."""

    keyword = "reliability_prior"

    @abstractmethod
    def concentration(self, observed: ObservedStatistics) -> Tensor:
        """Pseudo-observations ``(K, L, 2)`` of being right and wrong, 0 or more."""


@dataclass(frozen=True)
class Beta(ReliabilityPrior):
    """All LFs are right on every label with probability ``mean``, worth ``strength`` observations."""

    strength: float
    mean: float = 0.8
    name = "beta"

    def __post_init__(self) -> None:
        self.require_strength(self.strength)
        if not isinstance(self.mean, (int, float)) or not 0 < self.mean < 1:
            raise ConfigError(f"{self.keyword}: the mean of {self.name} is {self.mean!r}; expected a number between 0 and 1.")

    def concentration(self, observed: ObservedStatistics) -> Tensor:
        right = torch.full_like(observed.emission[..., 0], self.mean)
        return self.strength * torch.stack([right, 1 - right], dim=-1)


@dataclass(frozen=True)
class ReliabilityAccuracies(BelievedAccuracies, ReliabilityPrior):
    """Believed accuracies, as for the emission: recalls are reliabilities; precisions fix that of O. Nothing on other labels."""

    def concentration(self, observed: ObservedStatistics) -> Tensor:
        mean, believed = self.believed(observed)
        right = mean.diagonal(dim1=-2, dim2=-1)
        return self.strength * believed.unsqueeze(-1) * torch.stack([right, 1 - right], dim=-1)


#: Token vectors ``(N, width)`` to batch shape ``(N,)``, event shape ``(L, L)``.
TransitionCallable = Callable[[Tensor], TorchDistribution]
#: Document vectors ``(B, width)`` to batch shape ``(B,)``, event shape ``(K, L)``.
ReliabilityCallable = Callable[[Tensor], TorchDistribution]
AnyTransitionPrior = TransitionPrior | TransitionCallable | None
AnyReliabilityPrior = ReliabilityPrior | ReliabilityCallable | None


def log_density(concentration: Tensor, log_probabilities: Tensor) -> Tensor:
    """Log density of the logits of probabilities, last axis summed: Dirichlet in the softmax basis, of what was observed at all.

    :param concentration: 0 where nothing is believed.
    """
    seen = concentration > 0
    terms = torch.where(seen, concentration * log_probabilities.masked_fill(~seen, 0.0), torch.zeros_like(log_probabilities))
    safe = torch.where(seen, concentration, torch.ones_like(concentration))
    total = torch.where(seen.any(dim=-1), concentration.sum(dim=-1), torch.ones_like(concentration[..., 0]))
    constant = total.lgamma() - safe.lgamma().sum(dim=-1)  # lgamma(1) is 0
    return terms.sum(dim=-1) + constant
