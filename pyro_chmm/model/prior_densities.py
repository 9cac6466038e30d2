"""The priors' part of the objective: which distribution is the emission's prior, and the log densities of what networks predict."""

from __future__ import annotations

from typing import Any, cast

import torch
from pyro.distributions import Dirichlet, TorchDistribution
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor

from pyro_chmm.data.batching import PackedBatch, TokenVectors
from pyro_chmm.errors import ConfigError
from pyro_chmm.model.conditionals import Conditionals
from pyro_chmm.model.priors import (
    Amortized,
    AnyPrior,
    BioConstrained,
    EmissionPrior,
    Hierarchical,
    ReliabilityPrior,
    TransitionPrior,
)
from pyro_chmm.model.priors.parameters import log_density

#: Reliabilities are kept this far from 0 and 1, where their density is 0.
_TINY = 1e-6


def dirichlet(concentration: Tensor) -> TorchDistribution:
    """Independent rows: ``(..., K, L, L)`` to event shape ``(K, L, L)``."""
    return cast(TorchDistribution, Dirichlet(concentration).to_event(2))


def document_prior(
    prior: EmissionPrior, conditionals: Conditionals, documents: int, corpus_emission: Tensor | None
) -> TorchDistribution:
    """The prior on the emissions of some documents, batch shape ``(B,)``, event shape ``(K, L, L)``.

    :param corpus_emission: of the corpus, for a hierarchical prior: ``(K, L, L)``, or one for each document.
    """
    if isinstance(prior, Hierarchical) and corpus_emission is not None:
        concentration = prior.of_document(corpus_emission)
    else:
        concentration = prior.concentration(conditionals.observed)
    return dirichlet(concentration.expand(documents, *concentration.shape[-3:]))


def called_prior(keyword: str, prior: Any, vectors: Tensor, event_shape: tuple[int, ...]) -> TorchDistribution:
    """What a callable returns for some vectors.

    :raises ConfigError: where it is no Pyro distribution of the right shape, or one that its own checks refuse.
    """
    try:
        found = prior(vectors)
    except ValueError as error:  # of torch's distributions: a concentration that is not positive, a row off the simplex
        raise ConfigError(f"{keyword} returned no distribution: {' '.join(str(error).split())[:300]}") from None
    if not isinstance(found, TorchDistributionMixin):
        raise ConfigError(f"{keyword} returned a {type(found).__name__}, expected a Pyro distribution.")
    shapes, expected = (tuple(found.batch_shape), tuple(found.event_shape)), ((len(vectors),), event_shape)
    if shapes != expected:
        axes = {"emission_prior": "documents; LFs, true labels, observed labels", "reliability_prior": "documents; LFs, labels"}
        raise ConfigError(
            f"{keyword} returned a distribution with batch shape {shapes[0]} and event shape {shapes[1]}, expected "
            f"{expected[0]} and {expected[1]} ({axes.get(keyword, 'tokens; from label, to label')})."
        )
    return cast(TorchDistribution, found)


def check_priors(prior: AnyPrior, conditionals: Conditionals, batch: PackedBatch) -> None:
    """Refuse callables that do not return what they should, before training, with torch's own checks of their values.

    :raises ConfigError: see :func:`called_prior`; also for a density that is not finite.
    """
    lfs, labels = conditionals.observed_emission.shape[:2]
    if not isinstance(prior, Amortized | EmissionPrior):
        with torch.no_grad():
            _require_valid("emission_prior", called_prior("emission_prior", prior, batch.document_vectors, (lfs, labels, labels)))
    if conditionals.transition_prior is None and conditionals.reliability_prior is None:
        return
    with torch.no_grad():
        densities = log_densities(conditionals, batch, conditionals.transition_logits(batch.token_vectors))
    for keyword, value in densities.items():
        if not bool(torch.isfinite(value).all()):
            raise ConfigError(f"{keyword}: its log density of what the untrained model predicts is not finite.")


def _require_valid(keyword: str, found: TorchDistribution) -> None:
    for base in (found, getattr(found, "base_dist", found)):
        concentration = getattr(base, "concentration", None)
        if isinstance(concentration, Tensor) and not bool((concentration > 0).all()):
            raise ConfigError(f"{keyword} returned concentrations down to {float(concentration.min()):g}; expected positive ones.")


def log_densities(conditionals: Conditionals, batch: PackedBatch, logits: Tensor) -> dict[str, Tensor]:
    """Log densities of a batch's transitions and reliabilities under their priors, ``(B,)`` by keyword.

    Each token or document has its share, so an epoch adds up to one density (see :mod:`pyro_chmm.model.priors.parameters`).

    :param logits: of the transitions, ``(N, L, L)``.
    """
    found: dict[str, Tensor] = {}
    documents, tokens = (int(size) for size in conditionals.training_size)
    transition, reliability = conditionals.transition_prior, conditionals.reliability_prior
    if transition is not None and not isinstance(transition, BioConstrained):
        log_rows = torch.log_softmax(logits, dim=-1)
        if isinstance(transition, TransitionPrior):
            counts = transition.concentration(conditionals.observed, conditionals.allowed_transitions).to(logits)
            values = log_density(counts, log_rows).sum(dim=-1)
        else:
            vectors = batch.token_vectors.whole() if isinstance(batch.token_vectors, TokenVectors) else batch.token_vectors
            rows = called_prior("transition_prior", transition, vectors, tuple(logits.shape[1:]))
            values = rows.log_prob(log_rows.exp())
        total = logits.new_zeros(batch.num_documents).index_add(0, batch.document_index, values)
        found["transition_prior"] = total / max(tokens, len(logits))
    if reliability is not None:
        right = conditionals.reliability(batch.document_vectors).clamp(_TINY, 1 - _TINY)
        if isinstance(reliability, ReliabilityPrior):
            counts = reliability.concentration(conditionals.observed).to(right)
            values = log_density(counts, torch.stack([right, 1 - right], dim=-1).log()).sum(dim=(-1, -2))
        else:
            shape = tuple(right.shape[1:])
            values = called_prior("reliability_prior", reliability, batch.document_vectors, shape).log_prob(right)
        found["reliability_prior"] = values / max(documents, batch.num_documents)
    return found
