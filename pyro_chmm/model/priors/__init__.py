"""The priors that the model's keyword arguments accept: small, validated, JSON-serialisable."""

from pyro_chmm.model.priors.base import Prior
from pyro_chmm.model.priors.emission import (
    Accuracies,
    Amortized,
    AnyPrior,
    Diagonal,
    EmissionPrior,
    Empirical,
    Hierarchical,
    Symmetric,
    Table,
)
from pyro_chmm.model.priors.parameters import (
    AnyReliabilityPrior,
    AnyTransitionPrior,
    Beta,
    BioConstrained,
    EmpiricalTransition,
    ReliabilityAccuracies,
    ReliabilityPrior,
    Sticky,
    SymmetricTransition,
    TransitionPrior,
    TransitionTable,
)
from pyro_chmm.model.priors.registry import is_hierarchical, prior_spec, read_priors, resolve_prior

__all__ = [
    "Accuracies",
    "Amortized",
    "AnyPrior",
    "AnyReliabilityPrior",
    "AnyTransitionPrior",
    "Beta",
    "BioConstrained",
    "Diagonal",
    "EmissionPrior",
    "Empirical",
    "EmpiricalTransition",
    "Hierarchical",
    "Prior",
    "ReliabilityAccuracies",
    "ReliabilityPrior",
    "Sticky",
    "Symmetric",
    "SymmetricTransition",
    "Table",
    "TransitionPrior",
    "TransitionTable",
    "is_hierarchical",
    "prior_spec",
    "read_priors",
    "resolve_prior",
]
