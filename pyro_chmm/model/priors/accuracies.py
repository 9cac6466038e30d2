"""Accuracies that the user believes of LFs, as the emissions that they amount to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor

from pyro_chmm.data.labels import LabelSet
from pyro_chmm.errors import ConfigError
from pyro_chmm.model.priors.base import Prior
from pyro_chmm.model.statistics import ObservedStatistics

#: Where an LF misses a label, it says O so often, and one of the other labels otherwise.
_MISSED_AS_O = 0.9
#: An LF says O of an O at least so often, whatever precision and label shares amount to.
_LEAST_O = 0.05
_MEASURES = ("precision", "recall")
_EXAMPLE = '{"dictionary": {"precision": 0.9, "recall": 0.4}} or {"dictionary": {"PER": {"recall": 0.4}}}'


def check_accuracies(accuracies: Any, keyword: str) -> None:
    """Refuse what is not ``{LF: {measure: number}}`` or ``{LF: {type: {measure: number}}}``.

    :raises ConfigError: giving the value and what was expected.
    """
    if not isinstance(accuracies, Mapping) or not accuracies:
        raise ConfigError(f"{keyword}: the accuracies are {accuracies!r}; expected {_EXAMPLE}.")
    for lf, beliefs in accuracies.items():
        if not isinstance(beliefs, Mapping) or not beliefs:
            raise ConfigError(f"{keyword}: the accuracies of LF {lf!r} are {beliefs!r}; expected {_EXAMPLE}.")
        for where, values in _by_type(beliefs).items():
            if not isinstance(values, Mapping) or not values or not set(values) <= set(_MEASURES):
                found = dict(values) if isinstance(values, Mapping) else values
                raise ConfigError(
                    f"{keyword}: LF {lf!r}, {where or 'all types'}: found {found!r}; "
                    "expected precision, recall or both."
                )
            for measure, value in values.items():
                number = isinstance(value, (int, float)) and not isinstance(value, bool)
                if not number or not 0 <= value <= 1 or (measure == "precision" and value == 0):
                    raise ConfigError(f"{keyword}: LF {lf!r}: {measure} is {value!r}; expected a share above 0, at most 1.")


def check_names(accuracies: Mapping[str, Any], lf_names: Sequence[str], label_set: LabelSet, keyword: str) -> None:
    """Refuse LFs and types that are not there.

    :raises ConfigError: naming those that are.
    """
    for lf, beliefs in accuracies.items():
        if lf not in lf_names:
            raise ConfigError(f"{keyword}: there is no LF {lf!r}; the LFs are {', '.join(lf_names)}.")
        for name in _by_type(beliefs):
            if name and name not in label_set.types:
                known = ", ".join(label_set.entity_types)
                raise ConfigError(f"{keyword}: LF {lf!r}: there is no entity type {name!r}; the types are {known}.")


def believed_emission(
    accuracies: Mapping[str, Any], lf_names: Sequence[str], label_set: LabelSet, observed: ObservedStatistics
) -> tuple[Tensor, Tensor]:
    """The emission ``(K, L, L)`` that believed accuracies amount to, and which rows ``(K, L)`` are believed.

    Recall is how often the LF says a label where it is true: the diagonal. Precision fixes how often it says the label where O is
    true, given how common both are: ``share[label] recall (1 - precision) / (precision share[O])``. Without a recall, that
    observed beside the vote stands in for it. All other rows are those observed.
    """
    mean, believed = observed.emission.clone(), torch.zeros(observed.emission.shape[:2], dtype=torch.bool)
    believed = believed.to(mean.device)
    labels, share = len(label_set), observed.share.clamp(min=1e-6)
    for lf, beliefs in accuracies.items():
        k = list(lf_names).index(lf)
        row_o = mean[k, 0].clone()
        given = {name: values for name, values in _by_type(beliefs).items() if name}
        for place, name in enumerate(label_set.entity_types):
            values = given.get(name, _by_type(beliefs).get("", {}))
            for label in (1 + 2 * place, 2 + 2 * place):
                if "recall" in values:
                    missed = 1 - values["recall"]
                    mean[k, label] = missed * (1 - _MISSED_AS_O) / max(labels - 2, 1)
                    mean[k, label, 0], mean[k, label, label] = missed * _MISSED_AS_O, values["recall"]
                    believed[k, label] = True
                if "precision" in values:
                    recall, precision = mean[k, label, label], values["precision"]
                    row_o[label] = share[label] * recall * (1 - precision) / (precision * share[0])
                    believed[k, 0] = True
        if believed[k, 0]:
            wrong = row_o[1:].sum()
            row_o[1:] *= ((1 - _LEAST_O) / wrong.clamp(min=1e-9)).clamp(max=1)
            row_o[0] = 1 - row_o[1:].sum()
            mean[k, 0] = row_o
    return mean, believed


def _by_type(beliefs: Mapping[str, Any]) -> dict[str, Any]:
    """By entity type; "" stands for all."""
    return {"": beliefs} if set(beliefs) <= set(_MEASURES) else dict(beliefs)


@dataclass(frozen=True)
class BelievedAccuracies(Prior):
    """What priors by accuracies share: they are checked, saved, and given the names that they are of.

    :param accuracies: ``{"dictionary": {"precision": 0.9, "recall": 0.4}}`` by LF, or ``{"dictionary": {"PER": {"recall":
        0.4}}}`` by LF and entity type; see :func:`believed_emission`.
    :param strength: in observations.
    """

    accuracies: Mapping[str, Any]
    strength: float = 50.0
    name = "accuracies"
    names: tuple[tuple[str, ...], LabelSet] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.require_strength(self.strength)
        check_accuracies(self.accuracies, self.keyword)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "accuracies": dict(self.accuracies), "strength": self.strength}

    def bound(self, lf_names: Sequence[str], label_set: LabelSet) -> Self:
        check_names(self.accuracies, lf_names, label_set, self.keyword)
        return replace(self, names=(tuple(lf_names), label_set))

    def believed(self, observed: ObservedStatistics) -> tuple[Tensor, Tensor]:
        """:func:`believed_emission`, once :meth:`bound` has given the names."""
        assert self.names is not None, "bound() comes first"
        return believed_emission(self.accuracies, *self.names, observed)
