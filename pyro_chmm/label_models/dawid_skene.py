"""Dawid and Skene's model: each LF has a confusion matrix, each token a class of its own."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyro_chmm.data.labels import ABSTAIN, Ids
from pyro_chmm.errors import ConfigError
from pyro_chmm.label_models.token_wise import TokenWiseModel

log = logging.getLogger(__name__)

#: EM has converged when a step gains less than so many nats a token.
_CONVERGED = 1e-7


class DawidSkene(TokenWiseModel):
    """Maximum likelihood of observer error-rates by EM (Dawid and Skene, 1979), on every token by itself, in the IO space.

    ::

        for each token:
            y    ~ Categorical(prior)
            x[k] ~ Categorical(confusion[k, y, :])      for each LF k; to abstain is a vote of its own

    EM starts, as theirs, from the shares of the votes. It departs from its source in three things: the O of an LF where another
    fires is an abstention (see :mod:`~pyro_chmm.label_models.io_space`). An abstention is evidence: an LF of one type is silent
    on all others, and were its silence ignored, nothing would tell types apart that different LFs look for (on BC5CDR, F1 38
    instead of 83). Every count starts at a pseudo-count (a Dirichlet prior), so that no vote is impossible.

    :param pseudo_count: added to every expected count.
    :param max_steps: at most so many EM steps; it ends on convergence.
    :raises ConfigError: for a value that makes no sense.

    After :meth:`fit`: ``prior_`` (E + 1,), ``confusion_`` (K, E + 1, E + 2) (class, vote; the last one is to abstain), ``steps_``.
    """

    def __init__(self, pseudo_count: float = 0.01, max_steps: int = 200) -> None:
        if not pseudo_count > 0:
            raise ConfigError(f"pseudo_count is {pseudo_count!r}; it must be above 0.")
        if max_steps < 1:
            raise ConfigError(f"max_steps is {max_steps!r}; it must be 1 or more.")
        self.pseudo_count, self.max_steps = pseudo_count, max_steps
        self.prior_: NDArray[np.float64] = np.zeros(0)
        self.confusion_: NDArray[np.float64] = np.zeros((0, 0, 0))
        self.steps_ = 0

    def fit_votes(self, votes: Ids, classes: int) -> None:
        """EM over the different patterns of votes, each with its number of tokens."""
        patterns, counts = np.unique(votes, axis=0, return_counts=True)
        said = one_hot(patterns, classes)
        posterior = _shares(said)
        previous = -np.inf
        for step in range(1, self.max_steps + 1):
            self.prior_, self.confusion_ = maximize(posterior, said, counts, self.pseudo_count)
            posterior, evidence = expect(said, self.prior_, self.confusion_)
            prior_density = self.pseudo_count * (np.log(self.prior_).sum() + np.log(self.confusion_).sum())
            total = (float(counts @ evidence) + prior_density) / len(votes)
            self.steps_ = step
            if total - previous < _CONVERGED:
                break
            previous = total
        log.debug("Dawid-Skene: %d EM steps, log density %.6f a token", self.steps_, total)

    def class_posterior(self, votes: Ids) -> NDArray[np.float64]:
        """(M, E + 1) p(y | x)."""
        return expect(one_hot(votes, len(self.prior_)), self.prior_, self.confusion_)[0]

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"pseudo_count": self.pseudo_count, "max_steps": self.max_steps}

    def weights(self) -> dict[str, Tensor]:
        """``prior`` and ``confusion``, in double precision."""
        return {"prior": torch.from_numpy(self.prior_), "confusion": torch.from_numpy(self.confusion_)}

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        """From :meth:`weights`."""
        classes, lfs = len(self.labels().entity_types) + 1, len(self.lf_names)
        self.prior_ = weights["prior"].reshape(classes).numpy()
        self.confusion_ = weights["confusion"].reshape(lfs, classes, classes + 1).numpy()


def one_hot(votes: Ids, classes: int) -> NDArray[np.float64]:
    """(M, K, C + 1): 1 at each vote, the last column for an abstention."""
    return np.eye(classes + 1)[np.where(votes == ABSTAIN, classes, votes)]


def _shares(said: NDArray[np.float64]) -> NDArray[np.float64]:
    """(M, C) shares of the votes; O where nobody votes."""
    shares: NDArray[np.float64] = said[..., :-1].sum(axis=1)
    shares[shares.sum(axis=1) == 0, 0] = 1.0
    normalized: NDArray[np.float64] = shares / shares.sum(axis=1, keepdims=True)
    return normalized


def maximize(
    posterior: NDArray[np.float64], said: NDArray[np.float64], counts: NDArray[np.integer], pseudo_count: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The M step: prior (C,) and confusion (K, C, C + 1) from (M, C), (M, K, C + 1) and (M,) tokens of each pattern."""
    weight = posterior * counts[:, None]
    prior = weight.sum(axis=0) + pseudo_count
    confusion = np.einsum("mc,mkj->kcj", weight, said, optimize=True) + pseudo_count
    return prior / prior.sum(), confusion / confusion.sum(axis=-1, keepdims=True)


def expect(
    said: NDArray[np.float64], prior: NDArray[np.float64], confusion: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The E step: p(y | x) (M, C), and log p(x) (M,)."""
    joint = np.log(prior) + np.einsum("mkj,kcj->mc", said, np.log(confusion), optimize=True)
    highest = joint.max(axis=1, keepdims=True)
    scaled = np.exp(joint - highest)
    total = scaled.sum(axis=1, keepdims=True)
    return scaled / total, (highest + np.log(total))[:, 0]
