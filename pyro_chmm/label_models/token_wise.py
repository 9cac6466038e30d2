"""Models of single tokens in the IO space: what Dawid-Skene and Snorkel share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.labels import Ids, LabelSet
from pyro_chmm.label_models.fitted import FittedModel
from pyro_chmm.label_models.io_space import io_votes, spread_types


class TokenWiseModel(FittedModel):
    """A model of the LFs' votes on one token, whatever its neighbours; adjacent tokens of one type become one span."""

    @abstractmethod
    def fit_votes(self, votes: Ids, classes: int) -> None:
        """Learn from (N, K) votes of :func:`io_votes`."""

    @abstractmethod
    def class_posterior(self, votes: Ids) -> NDArray[np.float64]:
        """(M, E + 1) probabilities of the classes given (M, K) votes; rows sum to 1."""

    def fit(self, train: Corpus, valid: Corpus | None = None) -> Self:
        """Learn from the weak labels of ``train``; ``valid`` is not looked at.

        :raises DataError: where the training corpus has no token or LF.
        """
        self.begin_fit(train, valid)
        self.fit_votes(io_votes(train), len(train.label_set.entity_types) + 1)
        return self

    def predict_ids(self, corpus: Corpus) -> Ids:
        """(N,) label ids of the most probable classes, the first of equal ones; valid BIO."""
        return LabelSet.from_io(self._posterior(corpus).argmax(axis=1), corpus.offsets)

    def predict_proba(self, corpus: Corpus) -> list[NDArray[np.floating]]:
        """For each document (T, L); a type's probability belongs to the prefix that :meth:`predict_ids` would give it."""
        posterior = self._posterior(corpus)
        spread = spread_types(corpus, posterior, posterior.argmax(axis=1))
        return [spread[corpus.document_slice(number)] for number in range(corpus.num_documents)]

    def _posterior(self, corpus: Corpus) -> NDArray[np.float64]:
        votes = io_votes(self.aligned(corpus))
        if not len(votes):
            return np.zeros((0, len(self.labels().entity_types) + 1))
        patterns, place = np.unique(votes, axis=0, return_inverse=True)  # few: most tokens are O to every LF
        return self.class_posterior(patterns)[place.reshape(-1)]
