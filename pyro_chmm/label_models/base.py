"""What every label model can do, so that they can be compared and exchanged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.labels import Ids
from pyro_chmm.data.scoring import Score, score
from pyro_chmm.errors import DataError


class LabelModel(ABC):
    """Turns the weak labels of a corpus into labels and a posterior; looks at gold labels only to score."""

    @abstractmethod
    def fit(self, train: Corpus, valid: Corpus | None = None) -> Self:
        """Learn from the weak labels of ``train``; ``valid`` may serve to stop or to choose."""

    @abstractmethod
    def predict_ids(self, corpus: Corpus) -> Ids:
        """(N,) label ids of the packed tokens."""

    @abstractmethod
    def predict_proba(self, corpus: Corpus) -> list[NDArray[np.floating]]:
        """For each document (T, L): the posterior probability of each label at each token."""

    @abstractmethod
    def save(self, directory: str | Path) -> None:
        """Write ``config.json`` and ``model.safetensors``, each atomically."""

    @classmethod
    @abstractmethod
    def load(cls, directory: str | Path) -> Self:
        """Read what :meth:`save` wrote; :class:`ModelFileError` for what is missing, damaged or of another class."""

    def predict(self, corpus: Corpus) -> list[list[str]]:
        """BIO label names, one list a document, in order; an empty document has an empty list."""
        names = [corpus.label_set.names[id] for id in self.predict_ids(corpus).tolist()]
        return [names[corpus.document_slice(number)] for number in range(corpus.num_documents)]

    def score(self, corpus: Corpus) -> Score:
        """Strict precision, recall and F1 against the gold labels; :class:`DataError` if there are none."""
        if corpus.gold is None:
            raise DataError("The corpus has no gold labels to score against.")
        return score(corpus.label_set, corpus.gold, self.predict_ids(corpus), corpus.offsets)
