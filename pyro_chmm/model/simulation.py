"""Corpora drawn from the model itself, whose truth is known: to measure speed at any size, and to see what training finds again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from pyro_chmm import chain
from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.labels import Ids, LabelSet
from pyro_chmm.errors import ConfigError
from pyro_chmm.model.reliability import expand_reliability

#: The emission's shape off the diagonal: exponent and split point (in units of 1/L) of eq. (4).
_G_N, _G_R = 4.0, 0.05
#: How often O is followed by an entity, an entity goes on, and it is followed at once by another.
_ENTER, _STAY, _NEXT = 0.08, 0.45, 0.05
#: How often all LFs together name an entity where there is O, if each were as good as the best of them, or as bad as the worst.
_WRONG_ON_O = (0.01, 0.1)
_VOCABULARY = 20_000
#: Tokens decoded at once.
_TOKENS = 20_000


@dataclass(frozen=True)
class Size:
    """How large a corpus is, and how good its LFs are.

    :param types: entity types; there are ``L = 2 types + 1`` labels.
    :param lfs: K.
    :param length: mean number of tokens in a document, at least 1.
    :param reliability: the least and the largest share of a label's tokens that an LF gives it; each LF and type has its own.
    :raises ConfigError: for a value that makes no sense.
    """

    types: int
    lfs: int
    length: float
    reliability: tuple[float, float] = (0.2, 0.7)

    def __post_init__(self) -> None:
        for name, value in (("types", self.types), ("lfs", self.lfs), ("length", self.length)):
            if value < 1:
                raise ConfigError(f"{name} is {value}; it must be 1 or more.")
        low, high = self.reliability
        if not 0 < low <= high < 1:
            raise ConfigError(f"reliability is {low} to {high}; expected two shares between 0 and 1, the smaller one first.")


#: Sizes like those of the benchmark's data sets (types, recommended LFs, mean length), by name.
LIKE = {
    "laptop": Size(1, 3, 16.3),
    "ncbi": Size(1, 5, 219.8),
    "bc5cdr": Size(2, 9, 217.6),
    "conll": Size(4, 16, 14.5),
    "ontonotes": Size(18, 17, 18.0),
}


@dataclass(frozen=True, eq=False)
class Truth:
    """What a simulated corpus is drawn from; the story is that of :mod:`pyro_chmm.model.sparse_chmm`, with one emission for all.

    :ivar transition: ``(L, L)`` (from, to), rows that sum to 1.
    :ivar emission: ``(K, L, L)``, likewise; eq. (3) of the reliabilities on its diagonal.
    :ivar length: mean number of tokens in a document: 1 and a Poisson number.
    """

    label_set: LabelSet
    lf_names: tuple[str, ...]
    transition: NDArray[np.float64]
    emission: NDArray[np.float64]
    length: float

    @staticmethod
    def draw(size: Size, seed: int) -> Truth:
        """A truth of some size."""
        random = np.random.default_rng(seed)
        labels = 2 * size.types + 1
        reliability = np.repeat(random.uniform(*size.reliability, (size.lfs, size.types)), 2, axis=1)
        on_o = 1 - random.uniform(*_WRONG_ON_O, (size.lfs, 1)) / size.lfs
        emission = expand_reliability(torch.from_numpy(np.hstack([on_o, reliability])), _G_N, _G_R / labels).numpy()
        common = random.dirichlet(np.full(size.types, 3.0))  # some types are rarer than others
        transition = np.zeros((labels, labels))
        transition[0, 0], transition[0, 1::2] = 1 - _ENTER, _ENTER * common
        transition[1:, 0], transition[1:, 1::2] = 1 - _STAY - _NEXT, _NEXT * common
        inside = np.repeat(np.arange(2, labels, 2), 2)
        transition[np.arange(1, labels), inside] = _STAY
        label_set = LabelSet(tuple(f"TYPE{number}" for number in range(1, size.types + 1)))
        return Truth(label_set, tuple(f"lf{number}" for number in range(1, size.lfs + 1)), transition, emission, size.length)

    @property
    def reliability(self) -> NDArray[np.float64]:
        """``(K, E)`` how often an LF says a type, as B- or I-, of a token of that type."""
        return type_reliability(self.emission)


def type_reliability(emission: NDArray[np.float64]) -> NDArray[np.float64]:
    """``(K, L, L) -> (K, E)``: how often an LF says a type, as ``B-`` or ``I-``; mean over tokens of either label."""
    of_type = emission[:, 1:, 1::2] + emission[:, 1:, 2::2]  # (K, L - 1, E)
    types = np.arange(of_type.shape[-1])
    found: NDArray[np.float64] = (of_type[:, 2 * types, types] + of_type[:, 2 * types + 1, types]) / 2
    return found


def draw_corpus(truth: Truth, documents: int, random: np.random.Generator, first: int = 0) -> Corpus:
    """Draw documents with gold labels and weak labels; words say nothing of labels.

    :param first: number of the first document, for its name.
    """
    lengths = 1 + random.poisson(truth.length - 1, documents)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    gold = _draw_labels(truth.transition, offsets, random)
    weak_labels = np.empty((len(gold), len(truth.emission)), np.int16)
    for lf, rows in enumerate(truth.emission):
        weak_labels[:, lf] = _categorical(rows, gold, random)
    ranks = np.minimum(random.zipf(1.3, len(gold)), _VOCABULARY)
    words = [f"w{rank}" for rank in ranks.tolist()]
    tokens = tuple(tuple(words[start:end]) for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
    names = tuple(str(first + number) for number in range(documents))
    return Corpus(truth.label_set, truth.lf_names, tokens, offsets, weak_labels, gold, names)


def readable(corpus: Corpus) -> Corpus:
    """The corpus as it is read from a file: an ``I-`` without a ``B-`` before it, which LFs drawn token by token say, is ``B-``."""
    repaired = [corpus.label_set.repair(column, corpus.offsets) for column in corpus.weak_labels.T]
    return replace(corpus, weak_labels=np.stack(repaired, axis=1))


def _draw_labels(transition: NDArray[np.float64], offsets: NDArray[np.int64], random: np.random.Generator) -> Ids:
    """A label sequence for each document, all documents side by side."""
    lengths = np.diff(offsets)
    labels, last = np.zeros(offsets[-1], np.int16), np.zeros(len(lengths), np.int16)
    for place in range(int(lengths.max(initial=0))):
        going = np.flatnonzero(lengths > place)
        last[going] = _categorical(transition, last[going], random)
        labels[offsets[going] + place] = last[going]
    return labels


def _categorical(rows: NDArray[np.float64], given: Ids, random: np.random.Generator) -> Ids:
    """A draw from ``rows[given[n]]`` for each n."""
    below = rows.cumsum(axis=1)[:, :-1]
    drawn = random.random(len(given))
    found = np.empty(len(given), np.int16)
    for label in range(len(rows)):
        there = given == label
        found[there] = np.searchsorted(below[label], drawn[there], side="right")
    return found


def most_probable(truth: Truth, corpus: Corpus) -> Ids:
    """The most probable label sequences given the truth: no label model does better on such a corpus, but by chance."""
    labels = len(truth.label_set)
    initial, transition = torch.eye(labels, dtype=torch.float64)[0], torch.from_numpy(truth.transition)
    log_emission = np.log(truth.emission)
    found = [np.zeros(0, np.int16)]
    for start, end in _blocks(corpus.offsets):
        offsets = corpus.offsets[start : end + 1]
        weak_labels = corpus.weak_labels[offsets[0] : offsets[-1]]
        evidence = sum(log_emission[lf][:, weak_labels[:, lf]].T for lf in range(corpus.num_lfs))
        inputs = transition.expand(len(weak_labels), -1, -1), torch.from_numpy(evidence), torch.from_numpy(offsets - offsets[0])
        found.append(chain.viterbi(initial, *inputs, logits=False).labels.numpy().astype(np.int16))
    return np.concatenate(found)


def _blocks(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Documents ``start`` to ``end``, of about :data:`_TOKENS` tokens."""
    start = 0
    while start < len(offsets) - 1:
        end = max(int(np.searchsorted(offsets, offsets[start] + _TOKENS, side="right")) - 1, start + 1)
        yield start, end
        start = end
