"""Majority voting: the baseline that every label model is printed beside."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.labels import Ids, LabelSet
from pyro_chmm.errors import ConfigError
from pyro_chmm.label_models import model_files
from pyro_chmm.label_models.base import LabelModel
from pyro_chmm.label_models.io_space import spread_types


class MajorityVote(LabelModel):
    """At each token, the label that most LFs vote for.

    An LF that says O votes only where no LF says anything else: most LFs look for one kind of entity, and
    their O is no opinion on the others. Where every LF abstains, the label is O.

    :param space: "io" (the benchmark's way): prefixes are dropped before the vote, and adjacent tokens that
        win the same type become one span. "bio": ``B-X`` and ``I-X`` are different candidates; the winners
        need not be valid BIO.
    :param ties: "first": the first of the tied labels, in the label set's order. "random": one of them, by
        ``seed``.
    :param seed: of the random ties; the same corpus gets the same labels at every call.
    :raises ConfigError: for another space or way with ties.
    """

    def __init__(
        self, space: Literal["io", "bio"] = "io", ties: Literal["first", "random"] = "first", seed: int = 0
    ) -> None:
        if space not in ("io", "bio"):
            raise ConfigError(f"The voting space is {space!r}; it must be io or bio.")
        if ties not in ("first", "random"):
            raise ConfigError(f"The way with ties is {ties!r}; it must be first or random.")
        self.space, self.ties, self.seed = space, ties, seed

    def fit(self, train: Corpus, valid: Corpus | None = None) -> Self:
        """Nothing is learnt from any corpus."""
        return self

    def predict_ids(self, corpus: Corpus) -> Ids:
        """(N,) label ids of the winners; in the IO space they are valid BIO."""
        return self._labels(corpus, self._winners(self._counts(corpus)))

    def predict_proba(self, corpus: Corpus) -> list[NDArray[np.floating]]:
        """For each document (T, L) shares of the votes, float64; rows sum to 1.

        In the IO space, the share of a type belongs to its ``I-`` where the token before won the same type,
        else to its ``B-``: the labels that :meth:`predict_ids` would give.
        """
        counts = self._counts(corpus)
        shares = counts / counts.sum(axis=1, keepdims=True)
        if self.space == "io":
            shares = spread_types(corpus, shares, self._winners(counts))
        return [shares[corpus.document_slice(number)] for number in range(corpus.num_documents)]

    def save(self, directory: str | Path) -> None:
        """Write the way of voting; there is nothing else."""
        settings = {"space": self.space, "ties": self.ties, "seed": self.seed}
        model_files.write_model(Path(directory), {"class": "MajorityVote", "settings": settings}, {})

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """Read what :meth:`save` wrote.

        :raises ModelFileError: where the folder is missing, truncated, foreign, or of an unknown format.
        """
        description, _ = model_files.read_model(Path(directory), "MajorityVote")
        with model_files.well_formed(directory):
            return cls(**description["settings"])

    def _counts(self, corpus: Corpus) -> NDArray[np.int32]:
        """(N, candidates) votes; the candidates are O and the types, or the L labels."""
        labels = corpus.label_set
        candidates = len(labels.entity_types) + 1 if self.space == "io" else len(labels)
        counts = np.zeros((corpus.num_tokens, candidates + 1), np.int32)  # the last column is that of -1
        rows = np.arange(corpus.num_tokens)
        for column in corpus.weak_labels.T:
            counts[rows, LabelSet.to_io(column) if self.space == "io" else column] += 1
        counts = counts[:, :-1]
        fires = counts[:, 1:].any(axis=1)
        counts[fires, 0] = 0
        counts[~fires, 0] = np.maximum(counts[~fires, 0], 1)  # nobody says anything: O
        return counts

    def _winners(self, counts: NDArray[np.int32]) -> NDArray[np.int64]:
        """(N,) candidates with the most votes."""
        preference: NDArray[Any] = counts
        if self.ties == "random":
            preference = counts + np.random.default_rng(self.seed).random(counts.shape)  # decides ties only
        winners: NDArray[np.int64] = preference.argmax(axis=1)
        return winners

    def _labels(self, corpus: Corpus, winners: NDArray[np.int64]) -> Ids:
        return LabelSet.from_io(winners, corpus.offsets) if self.space == "io" else winners.astype(np.int16)
