"""Weak labels go in, a Pyro model explains who is right, and calibrated labels with a posterior come out."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyro_chmm._version import __version__

if TYPE_CHECKING:
    from pyro_chmm import errors
    from pyro_chmm.data.corpus import Corpus, CorpusSplits
    from pyro_chmm.data.datasets import load_dataset
    from pyro_chmm.data.labeling_functions import apply_lfs, dictionary_matcher, labeling_function, regex_matcher
    from pyro_chmm.data.labels import LabelSet
    from pyro_chmm.label_models.majority_vote import MajorityVote
    from pyro_chmm.label_models.sparse_chmm import SparseCHMM

__all__ = [
    "Corpus",
    "CorpusSplits",
    "LabelSet",
    "MajorityVote",
    "SparseCHMM",
    "__version__",
    "apply_lfs",
    "dictionary_matcher",
    "errors",
    "labeling_function",
    "load_dataset",
    "regex_matcher",
]

_HOMES = {
    "Corpus": "pyro_chmm.data.corpus",
    "CorpusSplits": "pyro_chmm.data.corpus",
    "LabelSet": "pyro_chmm.data.labels",
    "MajorityVote": "pyro_chmm.label_models.majority_vote",
    "SparseCHMM": "pyro_chmm.label_models.sparse_chmm",
    "apply_lfs": "pyro_chmm.data.labeling_functions",
    "dictionary_matcher": "pyro_chmm.data.labeling_functions",
    "labeling_function": "pyro_chmm.data.labeling_functions",
    "load_dataset": "pyro_chmm.data.datasets",
    "regex_matcher": "pyro_chmm.data.labeling_functions",
}


def __getattr__(name: str) -> Any:
    """Public names load on first use (PEP 562): the command line can answer without importing torch."""
    if name == "errors":
        return import_module("pyro_chmm.errors")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
