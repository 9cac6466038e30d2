"""Calibration: is a label of posterior 0.9 right nine times out of ten?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyro_chmm.errors import DataError


@dataclass(frozen=True, eq=False)
class Calibration:
    """A reliability diagram. Bins without a token have NaN in ``confidence`` and ``accuracy``.

    :ivar edges: ``(bins + 1,)`` from 0 to 1; a confidence on an edge belongs to the bin below it.
    :ivar counts: ``(bins,)`` tokens.
    :ivar confidence: ``(bins,)`` mean probability of the most probable label.
    :ivar accuracy: ``(bins,)`` share of tokens where that label is right.
    :ivar error: expected calibration error: mean of |accuracy - confidence| over bins, weighted by their tokens; 0 to 1.
    """

    edges: NDArray[np.float64]
    counts: NDArray[np.int64]
    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    error: float


def calibration(probabilities: NDArray[np.floating], gold: NDArray[np.integer], bins: int = 10) -> Calibration:
    """Bin tokens by the probability of their most probable label (Naeini et al., AAAI 2015; Guo et al., ICML 2017).

    :param probabilities: ``(N, L)`` label probabilities of each token, rows that sum to 1.
    :param gold: ``(N,)`` label ids.
    :raises DataError: where the shapes do not fit, or there is no token.
    """
    if probabilities.ndim != 2 or gold.shape != probabilities.shape[:1] or len(gold) == 0:
        raise DataError(
            f"Probabilities of shape {probabilities.shape} and gold labels of shape {gold.shape} give no calibration: "
            "both must cover the same tokens, at least one."
        )
    best = probabilities.argmax(axis=1)
    confidence = np.clip(probabilities.max(axis=1).astype(np.float64), 0.0, 1.0)
    edges = np.linspace(0.0, 1.0, bins + 1)
    which = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    counts = np.bincount(which, minlength=bins)
    sums = (np.bincount(which, weights, minlength=bins) for weights in (confidence, (best == gold).astype(np.float64)))
    with np.errstate(invalid="ignore"):  # 0 / 0 in an empty bin
        mean, accuracy = (total / counts for total in sums)
    error = float(np.nansum(np.abs(accuracy - mean) * counts) / len(gold))
    return Calibration(edges, counts, mean, accuracy, error)
