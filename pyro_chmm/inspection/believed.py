"""What the model believes of its LFs: reliabilities with intervals, what it expects them to say, and the truth beside it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import betainc

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.labels import ABSTAIN
from pyro_chmm.data.scoring import score_by_type
from pyro_chmm.errors import ConfigError, DataError
from pyro_chmm.label_models.explanation import DecodedBatch
from pyro_chmm.label_models.sparse_chmm import SparseCHMM

#: Quantiles are taken over so many documents, evenly spread, where there are more.
MAX_DOCUMENTS = 1000


@dataclass(frozen=True, eq=False)
class Intervals:
    """Of the emission's diagonal, p(LF k says l | l is true), over documents: ``(K, L)`` each."""

    low: NDArray[np.float64]
    mean: NDArray[np.float64]
    high: NDArray[np.float64]
    mass: float


def diagonal_intervals(concentration: NDArray[np.floating], mass: float = 0.95) -> Intervals:
    """Equal-tailed posterior intervals of the emission's diagonal for a document of the corpus.

    An entry of a Dirichlet row is Beta distributed, and that of a document picked at random is the mixture of these: its
    quantiles are found by bisection, exact to 1e-6.

    :param concentration: ``(B, K, L, L)`` of the guide, section 3.2.3.
    """
    chosen = np.linspace(0, len(concentration) - 1, min(len(concentration), MAX_DOCUMENTS)).round().astype(np.int64)
    concentration = concentration[chosen].astype(np.float64)
    of_label = np.diagonal(concentration, axis1=-2, axis2=-1)  # (B, K, L)
    of_others = concentration.sum(axis=-1) - of_label
    tails = ((1 - mass) / 2, (1 + mass) / 2)
    low, high = (_mixture_quantile(of_label, of_others, tail) for tail in tails)
    return Intervals(low, (of_label / (of_label + of_others)).mean(axis=0), high, mass)


def _mixture_quantile(a: NDArray[np.float64], b: NDArray[np.float64], tail: float) -> NDArray[np.float64]:
    """The quantile of the mixture, over the first axis, of Beta(a, b)."""
    low, high = np.zeros(a.shape[1:]), np.ones(a.shape[1:])
    for _ in range(20):  # 2^-20 < 1e-6
        middle = (low + high) / 2
        below = betainc(a, b, middle).mean(axis=0) < tail
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    quantile: NDArray[np.float64] = (low + high) / 2
    return quantile


@dataclass(frozen=True, eq=False)
class ExpectedLabels:
    """How often LFs say each label, ``(K, O)``, over the tokens where each did not abstain; O observed labels.

    :ivar tokens: ``(K,)`` how many those are.
    :ivar observed: counts.
    :ivar expected: sum over tokens of p(the LF says so) under the posterior of the true label.
    :ivar deviation: standard deviation of the count where tokens are independent given their marginals.
    """

    tokens: NDArray[np.int64]
    observed: NDArray[np.int64]
    expected: NDArray[np.float64]
    deviation: NDArray[np.float64]

    @property
    def z(self) -> NDArray[np.float64]:
        """Observed less expected in standard deviations; 0 where the label cannot be said."""
        with np.errstate(divide="ignore", invalid="ignore"):
            score = (self.observed - self.expected) / self.deviation
        return np.where(self.deviation > 0, score, 0.0)


def label_counts(part: DecodedBatch, num_lfs: int) -> NDArray[np.float64]:
    """``(3, K, O)`` over a batch: how often LFs say each label, how often they are expected to, and the variance of that.

    The expectation is analytic: at each token, the marginals times the mean emission of the document. Coarse labels count by
    what they are, so an LF's labels and its coarse labels may have expectations that overlap.

    :param num_lfs: K of the corpus; a vote that joined in training is left out.
    """
    said = part.observed[:, :num_lfs]
    spoke, width, bounds = said != ABSTAIN, part.emission.shape[-1], part.offsets.tolist()
    counts = torch.zeros(3, num_lfs, width, dtype=torch.float64)
    for document, (start, stop) in enumerate(pairwise(bounds)):
        emission = part.emission[document, :num_lfs].double()
        chance = torch.einsum("tl,klo->tko", part.marginals[start:stop].double(), emission) * spoke[start:stop, :, None]
        counts[1] += chance.sum(0)
        counts[2] += (chance * (1 - chance)).sum(0)
    for lf in range(num_lfs):
        counts[0, lf] = torch.bincount(said[spoke[:, lf], lf], minlength=width).double()
    return counts.numpy()


def expected_labels(counts: NDArray[np.float64]) -> ExpectedLabels:
    """What the model expects its LFs to say on documents like these, beside what they say: a posterior predictive check.

    :param counts: the sum of :func:`label_counts` over all batches.
    """
    observed, expected, variance = counts
    tokens = observed.sum(axis=1).astype(np.int64)
    return ExpectedLabels(tokens, observed.astype(np.int64), expected, np.sqrt(variance))


def true_emission(corpus: Corpus) -> NDArray[np.float64]:
    """``(K, L, L)`` how often each LF says a label at tokens of each gold label, where it abstains left out; NaN for none.

    :raises DataError: where there are no gold labels.
    """
    if corpus.gold is None:
        raise DataError("The true emission is counted with gold labels, and the corpus has none.")
    labels = len(corpus.label_set)
    counts = np.zeros((corpus.num_lfs, labels, labels))
    for place, column in enumerate(corpus.weak_labels.T):
        said = column != ABSTAIN
        np.add.at(counts[place], (corpus.gold[said], column[said]), 1)
    with np.errstate(invalid="ignore"):
        shares: NDArray[np.float64] = counts / counts.sum(axis=-1, keepdims=True)
    return shares


def expected_and_true_f1(
    corpus: Corpus, marginals: NDArray[np.floating]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """F1 of each LF on each entity type: as the model expects it, which takes no gold label, and in truth (figure 8).

    ``(K, E)`` each, 0 to 1, NaN for a type that the LF never says. The expected F1 is that of tokens: twice the posterior mass of
    the type where the LF says it, over the number of these tokens plus the mass anywhere. The true F1 is strict, of spans, and
    NaN for a type without gold spans.

    :param marginals: ``(N, L)``.
    :raises DataError: where there are no gold labels.
    """
    if corpus.gold is None:
        raise DataError("The true F1 needs gold labels, and the corpus has none.")
    expected, true = (np.full((corpus.num_lfs, len(corpus.label_set.entity_types)), np.nan) for _ in range(2))
    mass = marginals[:, 1::2].astype(np.float64) + marginals[:, 2::2]
    for place, column in enumerate(corpus.weak_labels.T):
        by_type = score_by_type(corpus.label_set, corpus.gold, column, corpus.offsets)
        for kind, found in enumerate(by_type.values()):
            said = (column == 2 * kind + 1) | (column == 2 * kind + 2)
            if said.any():
                expected[place, kind] = 2 * mass[said, kind].sum() / (said.sum() + mass[:, kind].sum())
                true[place, kind] = found.f1 / 100 if found.gold else np.nan
    return expected, true


def emission_by_stage(model: SparseCHMM, corpus: Corpus) -> dict[str, NDArray[np.float64]]:
    """The mean emission ``(K, L, L)`` after each stage of training (figure 7); the model ends at its best stage.

    :raises ConfigError: for a model that was not fitted in this process: a saved one holds its best stage alone.
    """
    stages = getattr(model, "stages_", ())
    if not stages:
        raise ConfigError("The model was not fitted in this process, so only its best stage is at hand: use emission(corpus).")
    found = {f"stage {stage}": model.use_stage(stage).emission(corpus) for stage in stages}
    model.use_stage(model.best_stage_)
    return found
