"""What all priors have in common: a name, numbers that are checked, and the form in which ``config.json`` holds them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from pyro_chmm.data.labels import LabelSet
from pyro_chmm.errors import ConfigError


class Prior:
    """A prior that a keyword argument of the model accepts; subclasses are frozen dataclasses of JSON's types.

    :raises ConfigError: on values that make no sense.
    """

    keyword: ClassVar[str]
    """The argument: ``emission_prior``, ``transition_prior`` or ``reliability_prior``."""
    name: ClassVar[str]
    """In the registry of that argument."""

    def to_dict(self) -> dict[str, Any]:
        """``{"name": ..., "strength": ...}``, from which the registry makes the prior again."""
        return {"name": self.name, **asdict(self)}  # type: ignore[call-overload]

    @property
    def spec(self) -> str | dict[str, Any]:
        """``"NAME"`` or ``"NAME:STRENGTH"`` where that says all, else :meth:`to_dict`."""
        values = self.to_dict()
        if list(values) == ["name"]:
            return self.name
        return f"{self.name}:{str(values['strength']).removesuffix('.0')}" if list(values) == ["name", "strength"] else values

    def bound(self, lf_names: Sequence[str], label_set: LabelSet) -> Self:
        """The prior for these LFs and labels.

        :raises ConfigError: where it does not fit them.
        """
        return self

    def require_strength(self, value: Any) -> None:
        """Refuse a strength that is not a positive number."""
        ok = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf
        if not ok:
            raise ConfigError(
                f"{self.keyword}: the strength of {self.name} is {value!r}; expected a positive number, as in {self.name}:50."
            )


def table(rows: Any, shape: tuple[int, ...], keyword: str, axes: str) -> Tensor:
    """Nested lists as a tensor whose last axis sums to 1.

    :param axes: what the shape means, for messages.
    :raises ConfigError: where the shape is another, a number is negative, or a row does not sum to 1.
    """
    try:
        values = torch.tensor(rows, dtype=torch.float64)
    except (TypeError, ValueError):
        raise ConfigError(f"{keyword}: the table holds {rows!r}; expected numbers of shape {shape} ({axes}).") from None
    if tuple(values.shape) != shape:
        raise ConfigError(f"{keyword}: the table has shape {tuple(values.shape)}; expected {shape} ({axes}).")
    if not bool((values >= 0).all()):
        place = [int(index) for index in (~(values >= 0)).nonzero()[0]]
        raise ConfigError(f"{keyword}: the table has {values[tuple(place)]:g} at {place}; expected probabilities.")
    sums = values.sum(dim=-1)
    wrong = (sums - 1).abs() > 1e-4
    if bool(wrong.any()):
        place = [int(index) for index in wrong.nonzero()[0]]
        raise ConfigError(f"{keyword}: row {place} of the table sums to {float(sums[wrong][0]):g}; expected 1.")
    return values
