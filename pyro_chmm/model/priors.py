"""Priors on the emission, accepted by the model's ``emission_prior`` keyword.

Each is small, validated and JSON-serialisable: ``prior.spec`` is the text that :func:`parse_prior` reads back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor

from pyro_chmm.errors import ConfigError


class EmissionPrior(ABC):
    """A Dirichlet prior over each row of the emission, the same for every document."""

    name: str

    @property
    @abstractmethod
    def spec(self) -> str:
        """The text :func:`parse_prior` turns back into this prior."""

    @abstractmethod
    def concentration(self, observed: Tensor) -> Tensor:
        """Concentrations ``(K, L, L)``, all positive.

        :param observed: ``(K, L, L)`` the emission observed against majority voting, for priors that use it.
        """


@dataclass(frozen=True)
class Amortized:
    """The default: the prior is tied to the guide, the KL divergence is 0 and the objective is the paper's."""

    name = "amortized"
    spec = "amortized"


@dataclass(frozen=True)
class Symmetric(EmissionPrior):
    """Every entry alike: ``Dirichlet(strength / L, ...)`` for each row."""

    strength: float
    name = "symmetric"

    @property
    def spec(self) -> str:
        return f"{self.name}:{self.strength:g}"

    def concentration(self, observed: Tensor) -> Tensor:
        return torch.full_like(observed, self.strength / observed.shape[-1])


@dataclass(frozen=True)
class Diagonal(EmissionPrior):
    """LFs are believed right: ``strength`` pseudo-observations on the diagonal, one more spread over the row."""

    strength: float
    name = "diagonal"

    @property
    def spec(self) -> str:
        return f"{self.name}:{self.strength:g}"

    def concentration(self, observed: Tensor) -> Tensor:
        labels = observed.shape[-1]
        eye = torch.eye(labels, dtype=observed.dtype, device=observed.device)
        return (self.strength * eye + 1.0 / labels).expand_as(observed)


@dataclass(frozen=True)
class Empirical(EmissionPrior):
    """The emission observed against majority voting on the training documents, worth ``strength`` observations a row."""

    strength: float
    name = "empirical"

    @property
    def spec(self) -> str:
        return f"{self.name}:{self.strength:g}"

    def concentration(self, observed: Tensor) -> Tensor:
        return self.strength * observed.clamp(min=1e-4)


#: What a callable prior takes (document vectors, ``(B, width)``) and returns (batch shape ``(B,)``, event shape ``(K, L, L)``).
PriorCallable = Callable[[Tensor], TorchDistribution]
AnyPrior = Amortized | EmissionPrior | PriorCallable
_REGISTRY: dict[str, type[Symmetric] | type[Diagonal] | type[Empirical]] = {
    prior.name: prior for prior in (Symmetric, Diagonal, Empirical)
}


def parse_prior(text: str) -> Amortized | EmissionPrior:
    """``"amortized"`` or ``"NAME:STRENGTH"`` as a prior.

    :raises ConfigError: on an unknown name, or a strength that is not a positive number.
    """
    name, _, strength = text.partition(":")
    if name == "amortized" and not strength:
        return Amortized()
    if name not in _REGISTRY:
        known = ", ".join(f"{known}:STRENGTH" for known in _REGISTRY)
        raise ConfigError(f"emission_prior is {text!r}; expected amortized, {known}, or a callable.")
    try:
        value = float(strength)
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        raise ConfigError(
            f"emission_prior is {text!r}; expected a positive number after the colon, as in {name}:50."
        )
    return _REGISTRY[name](value)
