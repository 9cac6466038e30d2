"""From what a keyword argument, ``config.json``, the command line or a file of priors holds to a prior."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyro_chmm.errors import ConfigError
from pyro_chmm.model.priors import emission, parameters
from pyro_chmm.model.priors.base import Prior

#: In ``config.json`` of a model whose prior was a callable, which no file holds.
CALLABLE = "callable"
#: In ``config.json`` where there is no prior.
NONE = "none"

_REGISTRY: dict[str, dict[str, type[Prior]]] = {
    "emission_prior": {
        prior.name: prior
        for prior in (
            emission.Amortized,
            emission.Symmetric,
            emission.Diagonal,
            emission.Accuracies,
            emission.Empirical,
            emission.Hierarchical,
            emission.Table,
        )
    },
    "transition_prior": {
        prior.name: prior
        for prior in (
            parameters.SymmetricTransition,
            parameters.Sticky,
            parameters.BioConstrained,
            parameters.EmpiricalTransition,
            parameters.TransitionTable,
        )
    },
    "reliability_prior": {prior.name: prior for prior in (parameters.Beta, parameters.ReliabilityAccuracies)},
}
#: What a strength alone means.
_BY_STRENGTH = {"emission_prior": "diagonal", "transition_prior": "sticky", "reliability_prior": "beta"}


def resolve_prior(keyword: str, value: Any) -> Any:
    """The prior that a keyword argument gives.

    :param keyword: ``emission_prior``, ``transition_prior`` or ``reliability_prior``.
    :param value: None for the default (amortized; none); a strength, of ``diagonal``, ``sticky`` or ``beta``; ``"NAME"`` or
        ``"NAME:STRENGTH"``; ``{"name": NAME, ...}``; a prior; or a callable, as it is.
    :returns: a prior; None for no prior.
    :raises ConfigError: on an unknown name, a prior for another argument, or values that make no sense.
    """
    if value is None or (isinstance(value, str) and value in (NONE, CALLABLE)):
        return emission.Amortized() if keyword == "emission_prior" else None
    if isinstance(value, Prior):
        if value.keyword != keyword:
            found = type(value).__name__
            raise ConfigError(f"{keyword} is {found}, which is for {value.keyword}; expected {known_priors(keyword)}.")
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _make(keyword, value, _BY_STRENGTH[keyword], {"strength": value})
    if isinstance(value, str):
        return _parse(keyword, value)
    if isinstance(value, Mapping):
        values = dict(value)
        return _make(keyword, value, values.pop("name", None), values)
    if callable(value):
        return value
    raise ConfigError(f"{keyword} is {value!r}; expected {known_priors(keyword)}, a strength, a dict, a prior or a callable.")


def is_hierarchical(spec: Any) -> bool:
    """Whether what ``config.json`` holds of an emission prior is one over a corpus's emission."""
    return isinstance(resolve_prior("emission_prior", spec), emission.Hierarchical)


def prior_spec(prior: Any) -> Any:
    """What ``config.json`` holds of a prior: JSON's types."""
    if prior is None:
        return NONE
    return prior.spec if isinstance(prior, Prior) else CALLABLE


def known_priors(keyword: str) -> str:
    """The names of a registry, for messages."""
    return ", ".join(_REGISTRY[keyword]) + ("" if keyword == "emission_prior" else f" or {NONE}")


def read_priors(assignments: Iterable[str], path: Path | None = None) -> dict[str, Any]:
    """Keyword arguments from ``emission=diagonal:50`` and the like, and from a TOML file, which they overrule.

    The file has ``emission = "diagonal:50"``, or a table ``[emission]`` with a ``name`` and the prior's values.

    :raises ConfigError: where one of them is not understood, or the file cannot be read.
    """
    found = {} if path is None else _read_file(path)
    for text in assignments:
        name, equals, value = text.partition("=")
        keyword = f"{name.strip()}_prior"
        if not equals or keyword not in _REGISTRY:
            raise ConfigError(f"--prior is {text!r}; expected emission=, transition= or reliability= and a prior, as diagonal:50.")
        found[keyword] = value.strip()
    for keyword, value in found.items():
        found[keyword] = prior_spec(resolve_prior(keyword, value))
    return found


def _read_file(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"The file of priors {path} cannot be read as TOML ({error}).") from None
    unknown = [name for name in content if f"{name}_prior" not in _REGISTRY]
    if unknown:
        raise ConfigError(f"The file of priors {path} has {unknown[0]!r}; expected emission, transition or reliability.")
    return {f"{name}_prior": value for name, value in content.items()}


def _parse(keyword: str, text: str) -> Any:
    name, colon, strength = text.partition(":")
    if not colon:
        return _make(keyword, text, name, {})
    try:
        value = float(strength)
    except ValueError:
        raise ConfigError(f"{keyword} is {text!r}; expected a positive number after the colon, as in {name}:50.") from None
    return _make(keyword, text, name, {"strength": value})


def _make(keyword: str, given: Any, name: Any, values: dict[str, Any]) -> Any:
    kind = _REGISTRY[keyword].get(name) if isinstance(name, str) else None
    if kind is None:
        raise ConfigError(f"{keyword} is {given!r}; expected one of {known_priors(keyword)}.")
    taken = [item for item in getattr(kind, "__dataclass_fields__", {}) if item != "names"]
    unknown = [item for item in values if item not in taken]
    if unknown:
        raise ConfigError(f"{keyword} is {given!r}; {name} takes {', '.join(taken) or 'nothing'}, not {unknown[0]!r}.")
    try:
        return kind(**values)
    except TypeError:
        raise ConfigError(f"{keyword} is {given!r}; {name} needs {', '.join(taken)}, as in {name}:50 or a dict.") from None
