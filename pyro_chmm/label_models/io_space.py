"""The IO space: prefixes dropped, one class for O and one for each entity type, as the benchmark's token-wise models have it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.labels import ABSTAIN, Ids, LabelSet, O


def io_votes(corpus: Corpus) -> Ids:
    """(N, K) the class each LF votes for: 0 for O, e + 1 for type e, -1 where it abstained.

    An O where another LF fires is an abstention: most LFs look for one kind of entity, and their O is no opinion on the others.
    """
    contested = (corpus.weak_labels > O).any(axis=1, keepdims=True) & (corpus.weak_labels == O)
    return np.where(contested, ABSTAIN, LabelSet.to_io(corpus.weak_labels)).astype(np.int16)


def spread_types(
    corpus: Corpus, shares: NDArray[np.floating], winners: NDArray[np.integer]
) -> NDArray[np.float64]:
    """From (N, E + 1) probabilities of classes to (N, L) of labels.

    That of a type belongs to its ``I-`` where the token before won the same type, else to its ``B-``.

    :param winners: (N,) the class that each token was given.
    """
    before = np.concatenate([[0], winners[:-1]])[: len(winners)]
    before[corpus.offsets[corpus.offsets < len(winners)]] = 0
    inside = before[:, None] == np.arange(1, shares.shape[1])
    spread = np.zeros((len(shares), len(corpus.label_set)))
    spread[:, 0] = shares[:, 0]
    spread[:, 1::2] = np.where(inside, 0.0, shares[:, 1:])
    spread[:, 2::2] = np.where(inside, shares[:, 1:], 0.0)
    return spread
