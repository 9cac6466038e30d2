"""The best consensus of the LFs: an oracle, which looks at the gold labels."""

from __future__ import annotations

import numpy as np

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.labels import Ids, O
from pyro_chmm.data.scoring import Score, score
from pyro_chmm.errors import DataError


def best_consensus_ids(corpus: Corpus) -> Ids:
    """(N,) at each token the gold label, prefix and all, where at least one LF says it, and O elsewhere.

    The choice is by token, so a span of which the LFs know a part only may come out cut: its precision need
    not be 100.

    :raises DataError: if the corpus has no gold labels.
    """
    gold = _gold(corpus)
    known = (corpus.weak_labels == gold[:, None]).any(axis=1)
    return np.where(known, gold, O).astype(np.int16)


def best_consensus(corpus: Corpus) -> Score:
    """Strict score of :func:`best_consensus_ids`: what choosing among the LFs, by token, could reach."""
    return score(corpus.label_set, _gold(corpus), best_consensus_ids(corpus), corpus.offsets)


def _gold(corpus: Corpus) -> Ids:
    if corpus.gold is None:
        raise DataError("The best consensus chooses by the gold labels, and the corpus has none.")
    return corpus.gold
