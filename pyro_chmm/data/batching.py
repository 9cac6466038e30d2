"""Corpus and vectors become packed batches: documents end to end, never padded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyro_chmm.data.coarse import ANY, coarse_allows
from pyro_chmm.data.labels import ABSTAIN, O
from pyro_chmm.data.ngrams import WithNGrams
from pyro_chmm.errors import DataError

if TYPE_CHECKING:
    from pyro_chmm.data.corpus import Corpus
    from pyro_chmm.data.encoder import Vectors

#: Token vectors of up to so many bytes in single precision are kept in memory; larger ones stay on disk.
_RESIDENT_BYTES = 2**30


@dataclass(frozen=True, eq=False)
class CoarseBatch:
    """The coarse labels of a batch.

    :ivar labels: ``(N, K)`` int64, a row of ``allows``, or -1 for none.
    :ivar allows: ``(2 C, L)`` bool, see :func:`pyro_chmm.data.coarse.coarse_allows`.
    :ivar weight: what a coarse label counts in the evidence.
    """

    labels: Tensor
    allows: Tensor
    weight: float = 1.0

    def rows(self, tokens: Tensor) -> CoarseBatch:
        """The coarse labels of some tokens."""
        return CoarseBatch(self.labels[tokens], self.allows, self.weight)

    def to(self, device: torch.device | str) -> CoarseBatch:
        """The same on another device."""
        return CoarseBatch(self.labels.to(device), self.allows.to(device), self.weight)


@dataclass(frozen=True, eq=False)
class TokenVectors:
    """Token vectors in two parts: those of the encoder, and the n-grams of the words that occur, each word once.

    Products with the n-grams then take as long as there are words, not tokens.

    :ivar encoded: ``(N, width)``.
    :ivar ngrams: ``(V, count)``.
    :ivar words: ``(N,)`` the row in ``ngrams`` of each token.
    """

    encoded: Tensor
    ngrams: Tensor
    words: Tensor

    def __len__(self) -> int:
        return len(self.encoded)

    def __getitem__(self, tokens: Tensor | slice) -> TokenVectors:
        return TokenVectors(self.encoded[tokens], self.ngrams, self.words[tokens])

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> TokenVectors:
        """The same on another device, in another precision."""
        return TokenVectors(self.encoded.to(device, dtype), self.ngrams.to(device, dtype), self.words.to(device))

    def whole(self) -> Tensor:
        """Both parts side by side, ``(N, width + count)``."""
        return torch.cat([self.encoded, self.ngrams[self.words]], dim=-1)


@dataclass(frozen=True, eq=False)
class PackedBatch:
    """Some documents, packed. B documents, N tokens in all, K LFs.

    :ivar documents: ``(B,)`` positions in the corpus.
    :ivar offsets: ``(B+1,)`` int64; document m has tokens ``offsets[m]:offsets[m+1]``.
    :ivar document_vectors: ``(B, width)``.
    :ivar token_vectors: ``(N, width)``; in two parts where words have n-grams.
    :ivar weak_labels: ``(N, K)`` int64 label ids, -1 where the LF abstained.
    :ivar weight: ``(N, K)``, what each observation counts in the evidence; 0 where the LF abstained.
    :ivar coarse: coarse labels, or None in a corpus without any.
    """

    documents: Tensor
    offsets: Tensor
    document_vectors: Tensor
    token_vectors: Tensor | TokenVectors
    weak_labels: Tensor
    weight: Tensor
    coarse: CoarseBatch | None = None

    @property
    def num_documents(self) -> int:
        """B."""
        return self.offsets.shape[0] - 1

    @property
    def lengths(self) -> Tensor:
        """``(B,)`` tokens in each document."""
        return self.offsets.diff()

    @property
    def document_index(self) -> Tensor:
        """``(N,)`` the document (0 to B-1) of each token."""
        return torch.repeat_interleave(
            torch.arange(self.num_documents, device=self.offsets.device), self.lengths
        )

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> PackedBatch:
        """The batch on another device, its vectors and weights in another precision."""
        return PackedBatch(
            self.documents.to(device),
            self.offsets.to(device),
            self.document_vectors.to(device, dtype),
            self.token_vectors.to(device, dtype),
            self.weak_labels.to(device),
            self.weight.to(device, dtype),
            None if self.coarse is None else self.coarse.to(device),
        )


@dataclass(frozen=True)
class OWeights:
    """What the O of an LF counts as an observation, by where it says it, and an entity label. An abstention counts 0.

    :ivar contested: at a token where another LF fires; 1 is plain evidence, 0 no observation.
    :ivar silent: at a token where no LF fires.
    :ivar beside: there, if an LF fires at a token next to it: whoever marked that one looked at this one too.
    :ivar entity: an entity label, anywhere.
    """

    contested: float = 0.0
    silent: float = 1.0
    beside: float = 1.0
    entity: float = 1.0

    def of(self, weak_labels: NDArray[np.int16], offsets: NDArray[np.int64]) -> NDArray[np.float32]:
        """The weight of every observation: ``(N, K), (B+1,) -> (N, K)``."""
        fires: NDArray[np.bool_] = np.asarray((weak_labels > O).any(axis=1))
        document = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        together = document[1:] == document[:-1]  # token n and n + 1
        beside = np.zeros_like(fires)
        beside[1:] |= fires[:-1] & together
        beside[:-1] |= fires[1:] & together
        o_weight = np.where(fires, self.contested, np.where(beside, self.beside, self.silent)).astype(np.float32)
        return np.where(weak_labels == O, o_weight[:, None], np.where(weak_labels == ABSTAIN, 0, self.entity).astype(np.float32))


class PackedCorpus:
    """A corpus with its vectors, ready to be cut into packed batches.

    :param o_weights: what the O of an LF counts.
    :raises DataError: where vectors and corpus differ in size.
    """

    def __init__(self, corpus: Corpus, vectors: Vectors, o_weights: OWeights) -> None:
        if vectors.tokens.shape[0] != corpus.num_tokens or vectors.documents.shape[0] != corpus.num_documents:
            raise DataError(
                f"The vectors are of {vectors.documents.shape[0]} documents and {vectors.tokens.shape[0]} tokens, the corpus has "
                f"{corpus.num_documents} and {corpus.num_tokens}; encode this corpus."
            )
        self.corpus, self.vectors = corpus, vectors
        self.reweigh(o_weights)
        self._allows = torch.from_numpy(coarse_allows(corpus.label_set, corpus.coarse_types))
        # in single precision in memory where they fit: converting them again for every batch costs more than the model does
        tokens = vectors.tokens
        self._words = tokens if isinstance(tokens, WithNGrams) else None
        self._encoded = tokens.vectors if isinstance(tokens, WithNGrams) else tokens
        self._resident = _float32(np.asarray(self._encoded)) if 2 * self._encoded.nbytes <= _RESIDENT_BYTES else None
        self._gathered = torch.empty(0, self._encoded.shape[1])

    def reweigh(self, o_weights: OWeights) -> None:
        """Let the O of an LF count otherwise from now on."""
        self._o_weights = o_weights
        self.weight = o_weights.of(_marks(self.corpus), self.corpus.offsets)

    def batch(self, documents: NDArray[np.int64]) -> PackedBatch:
        """The packed batch of some documents, in the order given; its token vectors hold until the next batch is drawn."""
        index, offsets = self._rows(documents)
        return PackedBatch(
            torch.from_numpy(documents),
            torch.from_numpy(offsets),
            _float32(np.asarray(self.vectors.documents[documents])),
            self._token_vectors(index),
            torch.from_numpy(self.corpus.weak_labels[index].astype(np.int64)),
            torch.from_numpy(self.weight[index].copy()),
            self._coarse(index, self._o_weights),
        )

    def reweighed(self, batch: PackedBatch, o_weights: OWeights) -> PackedBatch:
        """A batch of this corpus, on the CPU, in which the O of an LF counts otherwise."""
        index, offsets = self._rows(batch.documents.numpy())
        weight = torch.from_numpy(o_weights.of(_marks(self.corpus, index), offsets))
        return replace(batch, weight=weight, coarse=self._coarse(index, o_weights))

    def _rows(self, documents: NDArray[np.int64]) -> tuple[slice | NDArray[np.int64], NDArray[np.int64]]:
        """Where in the corpus the tokens of some documents are, and the documents' offsets once packed."""
        offsets = self.corpus.offsets
        starts, lengths = offsets[documents], offsets[documents + 1] - offsets[documents]
        packed = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        rows = np.repeat(starts - packed[:-1], lengths) + np.arange(packed[-1])
        whole = (
            len(rows) > 0 and rows[-1] - rows[0] == len(rows) - 1 and bool((np.diff(documents) == 1).all())
        )
        return slice(int(rows[0]), int(rows[-1]) + 1) if whole else rows, packed

    def _coarse(self, index: slice | NDArray[np.int64], o_weights: OWeights) -> CoarseBatch | None:
        labels = self.corpus.coarse_labels
        if labels is None:
            return None
        return CoarseBatch(torch.from_numpy(labels[index].astype(np.int64)), self._allows, o_weights.entity)

    def _token_vectors(self, index: slice | NDArray[np.int64]) -> Tensor | TokenVectors:
        encoded = self._encoded_vectors(index)
        if self._words is None:
            return encoded
        rows, words = np.unique(self._words.index[index], return_inverse=True)
        return TokenVectors(encoded, _float32(self._words.table[rows]), torch.from_numpy(words))

    def _encoded_vectors(self, index: slice | NDArray[np.int64]) -> Tensor:
        if self._resident is None:
            return _float32(np.asarray(self._encoded[index]))
        if isinstance(index, slice):
            return self._resident[index]
        if len(self._gathered) < len(index):  # one buffer for all batches: fresh memory costs as much as the copy
            self._gathered = torch.empty(len(index), self._resident.shape[1])
        return torch.index_select(self._resident, 0, torch.from_numpy(index), out=self._gathered[: len(index)])

    def shuffled(self, batch_size: int, batch_tokens: int, generator: torch.Generator) -> Iterator[PackedBatch]:
        """The batches of :meth:`shuffled_documents`."""
        return map(self.batch, self.shuffled_documents(batch_size, batch_tokens, generator))

    def shuffled_documents(
        self, batch_size: int, batch_tokens: int, generator: torch.Generator
    ) -> Iterator[NDArray[np.int64]]:
        """Documents batch by batch, in random order; every document once, empty ones left out.

        :param batch_size: at most so many documents a batch.
        :param batch_tokens: at most so many tokens a batch, unless one document is longer.
        """
        lengths = np.diff(self.corpus.offsets)
        occupied = np.flatnonzero(lengths > 0)
        order = occupied[torch.randperm(len(occupied), generator=generator).numpy()]
        ends = np.cumsum(lengths[order])
        first, before = 0, 0
        while first < len(order):
            last = int(np.searchsorted(ends, before + batch_tokens, side="right"))
            last = min(max(last, first + 1), first + batch_size)
            # ascending inside a batch: vectors are read from disk in order
            yield np.sort(order[first:last])
            first, before = last, int(ends[last - 1])

    def in_order(self, max_tokens: int = 65_536) -> Iterator[PackedBatch]:
        """The batches of :meth:`consecutive`."""
        return map(self.batch, self.consecutive(max_tokens))

    def consecutive(self, max_tokens: int = 65_536) -> Iterator[NDArray[np.int64]]:
        """Consecutive documents batch by batch, at most ``max_tokens`` tokens in each unless one document is longer."""
        offsets, first = self.corpus.offsets, 0
        while first < self.corpus.num_documents:
            last = int(np.searchsorted(offsets, offsets[first] + max_tokens, side="right")) - 1
            last = min(max(last, first + 1), self.corpus.num_documents)
            yield np.arange(first, last, dtype=np.int64)
            first = last


def _marks(corpus: Corpus, index: slice | NDArray[np.int64] = slice(None)) -> NDArray[np.int16]:
    """The weak labels of some tokens, with some entity label for the coarse label "any entity": an O beside it is contested."""
    if corpus.coarse_labels is None or ANY not in corpus.coarse_types:
        return corpus.weak_labels[index]
    is_any = corpus.coarse_labels[index] // 2 == corpus.coarse_types.index(ANY)
    return np.where(is_any, np.int16(1), corpus.weak_labels[index])


def _float32(vectors: NDArray[np.float16]) -> Tensor:
    # torch converts on all threads, numpy on one; the copy makes a read-only memory map writable
    return torch.from_numpy(np.array(vectors)).float()
