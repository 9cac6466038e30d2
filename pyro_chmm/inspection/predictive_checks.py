"""Posterior predictive checks: would the model's LFs say what the real ones said? An LF that it does not explain stands out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyro_chmm.label_models.posterior import CorpusDraws


@dataclass(frozen=True)
class Check:
    """A number that the data have once, and every draw of the posterior predictive has, too. Rates are in percent of tokens."""

    lf: str
    kind: Literal["label", "conflict"]
    """``label``: how often the LF says ``what``, of the tokens where it gave a label. ``conflict``: how often it and LF ``what``
    both fire and differ, of the tokens where both gave a label."""
    what: str
    observed: float
    expected: float
    """Mean over draws."""
    low: float
    high: float
    """2.5 and 97.5 percent of the draws lie below."""
    p_value: float
    """Two-sided: how extreme the data are among the draws; never 0, since D draws cannot tell less than 2 / (D + 1)."""

    @property
    def surprise(self) -> float:
        """Distance from the draws' mean in half-widths of their interval: comparable where p-values are all as small as can be."""
        return abs(self.observed - self.expected) / max((self.high - self.low) / 2, 1e-9)


@dataclass(frozen=True)
class PredictiveChecks:
    """All checks, in the order of LFs, labels before conflicts."""

    draws: int
    checks: tuple[Check, ...]

    def worst(self, lf: str | None = None) -> Check | None:
        """The check that the data fail most clearly, of one LF or of all; None if there is none."""
        chosen = [check for check in self.checks if lf in (None, check.lf)]
        return min(chosen, key=lambda check: (check.p_value, -check.surprise), default=None)

    def unexplained(self, level: float = 0.01) -> dict[str, list[Check]]:
        """By LF, the checks whose p-value is below a level, the clearest first; LFs that the model explains are left out."""
        failed: dict[str, list[Check]] = {}
        for check in sorted(self.checks, key=lambda check: (check.p_value, -check.surprise)):
            if check.p_value < level:
                failed.setdefault(check.lf, []).append(check)
        return failed

    def to_dict(self) -> dict[str, Any]:
        """Plain values: ``{"draws", "checks": [{"lf", "kind", "what", ...}, ...]}``."""
        return {"draws": self.draws, "checks": [asdict(check) for check in self.checks]}


def predictive_checks(draws: CorpusDraws) -> PredictiveChecks:
    """Compare, for each LF, the rate of every label and of conflicts with each other LF with those of drawn weak labels.

    Every O counts as much as any label here. A model whose ``o_weight_*`` are not 1 learns from some of them less or not at
    all, and does not claim to explain how often they occur.
    """
    corpus = draws.corpus
    labels, lfs = len(corpus.label_set), corpus.num_lfs
    observed_labels, observed_conflicts = np.zeros((1, lfs, labels)), np.zeros((1, lfs, lfs))
    drawn_labels, drawn_conflicts = np.zeros((draws.draws, lfs, labels)), np.zeros((draws.draws, lfs, lfs))
    for document in draws:
        drawn_labels += _label_counts(document.weak_labels, labels)
        drawn_conflicts += _conflict_counts(document.weak_labels, labels)
        real = corpus.weak_labels[corpus.document_slice(document.document)][None]
        observed_labels += _label_counts(real, labels)
        observed_conflicts += _conflict_counts(real, labels)
    given = (corpus.weak_labels >= 0).astype(np.float64)
    said, both = given.sum(axis=0), given.T @ given
    checks = []
    for lf, name in enumerate(corpus.lf_names):
        for label, what in enumerate(corpus.label_set.names):
            found, expected = observed_labels[0, lf, label], drawn_labels[:, lf, label]
            checks.append(_check(name, "label", what, found, expected, said[lf]))
        for other, what in enumerate(corpus.lf_names):
            if other != lf:
                found, expected = observed_conflicts[0, lf, other], drawn_conflicts[:, lf, other]
                checks.append(_check(name, "conflict", what, found, expected, both[lf, other]))
    return PredictiveChecks(draws.draws, tuple(checks))


def _label_counts(weak_labels: NDArray[np.int16], labels: int) -> NDArray[np.float64]:
    """(D, T, K) -> (D, K, L)."""
    return np.stack([(weak_labels == label).sum(axis=1) for label in range(labels)], axis=-1).astype(np.float64)


def _conflict_counts(weak_labels: NDArray[np.int16], labels: int) -> NDArray[np.float64]:
    """(D, T, K) -> (D, K, K): tokens where both LFs fire and differ."""
    fires = (weak_labels > 0).astype(np.float32)
    conflicts: NDArray[np.float64] = np.matmul(fires.transpose(0, 2, 1), fires).astype(np.float64)
    for label in range(1, labels):
        said = (weak_labels == label).astype(np.float32)
        conflicts -= np.matmul(said.transpose(0, 2, 1), said)
    return conflicts


def _check(
    lf: str, kind: Literal["label", "conflict"], what: str, observed: float, drawn: NDArray[np.float64], tokens: float
) -> Check:
    count, scale = len(drawn), 100.0 / max(tokens, 1.0)
    # the data are one more draw, if the model is right
    above, below = (np.sum(drawn >= observed) + 1) / (count + 1), (np.sum(drawn <= observed) + 1) / (count + 1)
    low, high = np.quantile(drawn, (0.025, 0.975)) * scale
    p_value = float(min(2 * min(above, below), 1.0))
    return Check(lf, kind, what, float(observed * scale), float(drawn.mean() * scale), float(low), float(high), p_value)
