"""Priors on the emission: a Dirichlet over each row, the same for every document."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor

from pyro_chmm.data.labels import LabelSet
from pyro_chmm.errors import ConfigError
from pyro_chmm.model.priors.accuracies import BelievedAccuracies
from pyro_chmm.model.priors.base import Prior, table
from pyro_chmm.model.statistics import ObservedStatistics

#: Least mean of an entry: a Dirichlet cannot rule a label out.
_LEAST = 1e-4


class EmissionPrior(Prior):
    """A Dirichlet prior over each row of every document's emission."""

    keyword = "emission_prior"

    @abstractmethod
    def concentration(self, observed: ObservedStatistics) -> Tensor:
        """Concentrations ``(K, L, L)``, all positive.

        :param observed: counted on the training documents, for priors that use it.
        """


@dataclass(frozen=True)
class Amortized(Prior):
    """The default: the prior is tied to the guide, the KL divergence is 0 and the objective is the paper's."""

    keyword = "emission_prior"
    name = "amortized"


@dataclass(frozen=True)
class Symmetric(EmissionPrior):
    """Every entry alike: ``Dirichlet(strength / L, ...)`` for each row."""

    strength: float
    name = "symmetric"

    def __post_init__(self) -> None:
        self.require_strength(self.strength)

    def concentration(self, observed: ObservedStatistics) -> Tensor:
        return torch.full_like(observed.emission, self.strength / observed.emission.shape[-1])


@dataclass(frozen=True)
class Diagonal(EmissionPrior):
    """LFs are believed right: ``strength`` pseudo-observations on the diagonal, one more spread over the row."""

    strength: float
    name = "diagonal"

    def __post_init__(self) -> None:
        self.require_strength(self.strength)

    def concentration(self, observed: ObservedStatistics) -> Tensor:
        labels = observed.emission.shape[-1]
        eye = torch.eye(labels, dtype=observed.emission.dtype, device=observed.emission.device)
        return (self.strength * eye + 1.0 / labels).expand_as(observed.emission)


@dataclass(frozen=True)
class Empirical(EmissionPrior):
    """The emission observed beside majority voting on the training documents, worth ``strength`` observations a row."""

    strength: float
    name = "empirical"

    def __post_init__(self) -> None:
        self.require_strength(self.strength)

    def concentration(self, observed: ObservedStatistics) -> Tensor:
        return self.strength * observed.emission.clamp(min=_LEAST)


@dataclass(frozen=True)
class Accuracies(BelievedAccuracies, EmissionPrior):
    """What the user believes of LFs, worth ``strength`` observations a row; a row without belief is flat, ``Dirichlet(1, ...)``."""

    def concentration(self, observed: ObservedStatistics) -> Tensor:
        mean, believed = self.believed(observed)
        return torch.where(believed.unsqueeze(-1), self.strength * mean.clamp(min=_LEAST), torch.ones_like(mean))


@dataclass(frozen=True)
class Table(EmissionPrior):
    """A mean emission of the user's own, worth ``strength`` observations a row.

    :param mean: nested lists (LF, true label, observed label), rows that sum to 1.
    """

    mean: Sequence[Sequence[Sequence[float]]]
    strength: float
    name = "table"

    def __post_init__(self) -> None:
        self.require_strength(self.strength)

    def bound(self, lf_names: Sequence[str], label_set: LabelSet) -> Self:
        shape = (len(lf_names), len(label_set), len(label_set))
        table(self.mean, shape, self.keyword, "LFs, true labels, observed labels")
        return self

    def concentration(self, observed: ObservedStatistics) -> Tensor:
        return self.strength * torch.as_tensor(self.mean).to(observed.emission).clamp(min=_LEAST)


@dataclass(frozen=True)
class Hierarchical(EmissionPrior):
    """One emission of the corpus, from which those of documents differ by chance.

    ::

        corpus_emission[k, i, :]  ~ Dirichlet(concentration of ``corpus``)          site "corpus_emission"
        emission[m, k, i, :]      ~ Dirichlet(strength corpus_emission[k, i, :])    site "emission"

    :param strength: how little documents differ.
    :param corpus: prior on the corpus's emission: any other of these priors, as text or as a dict.
    """

    strength: float
    corpus: Any = "symmetric:1"
    name = "hierarchical"

    def __post_init__(self) -> None:
        self.require_strength(self.strength)
        if isinstance(self.corpus, EmissionPrior):
            object.__setattr__(self, "corpus", self.corpus.spec)

    def bound(self, lf_names: Sequence[str], label_set: LabelSet) -> Self:
        prior = self.corpus_prior.bound(lf_names, label_set)
        bound = replace(self)
        object.__setattr__(bound, "_corpus_prior", prior)
        return bound

    @property
    def corpus_prior(self) -> EmissionPrior:
        """:raises ConfigError: where ``corpus`` is no Dirichlet prior."""
        from pyro_chmm.model.priors.registry import resolve_prior  # it imports this module

        found = getattr(self, "_corpus_prior", None) or resolve_prior(self.keyword, self.corpus)
        if not isinstance(found, EmissionPrior) or isinstance(found, Hierarchical):
            raise ConfigError(f"emission_prior: hierarchical is over {self.corpus!r}; expected another prior, as symmetric:1.")
        return found

    def concentration(self, observed: ObservedStatistics) -> Tensor:
        """That of the corpus's emission."""
        return self.corpus_prior.concentration(observed)

    def of_document(self, corpus_emission: Tensor) -> Tensor:
        """Concentrations of a document's emission, given that of the corpus: any shape ``(..., K, L, L)``."""
        return self.strength * corpus_emission.clamp(min=_LEAST)


#: What a callable prior takes (document vectors, ``(B, width)``) and returns (batch shape ``(B,)``, event shape ``(K, L, L)``).
EmissionCallable = Callable[[Tensor], TorchDistribution]
AnyPrior = Amortized | EmissionPrior | EmissionCallable
