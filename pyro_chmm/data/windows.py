"""Documents longer than a language model's window are read through overlapping windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Window:
    """Sub-tokens ``start:end`` of a document, read at once; the words ``first_word:last_word`` take their vectors here."""

    start: int
    end: int
    first_word: int
    last_word: int


def longest_word(capacity: int) -> int:
    """The most sub-tokens that one word may have for :func:`cut_windows` to keep it whole."""
    return max(capacity // 4, 1)


def cut_windows(boundaries: NDArray[np.int64], capacity: int) -> list[Window]:
    """Windows over a document, evenly spread, in order; each word belongs to the one that gives it the most context.

    Neighbours overlap by at least a quarter of the capacity and hand over at the word boundary nearest to the middle of
    the overlap. No word may be longer than :func:`longest_word`.

    :param boundaries: ``(words + 1,)`` the sub-token at which each word starts, and at last the number of sub-tokens.
    :param capacity: the most sub-tokens in a window, at least 2.
    """
    words, length = len(boundaries) - 1, int(boundaries[-1])
    if length <= capacity:
        return [Window(0, length, 0, words)]
    overlap = longest_word(capacity)
    count = -(-(length - overlap) // (capacity - overlap))
    starts = np.linspace(0, length - capacity, count).round().astype(np.int64)
    middles = (starts[1:] + starts[:-1] + capacity) // 2
    after = np.searchsorted(boundaries, middles)  # the first boundary at or after the middle
    nearer = middles - boundaries[after - 1] < boundaries[after] - middles
    cuts = [0, *(after - nearer).tolist(), words]
    return [Window(start, start + capacity, cuts[i], cuts[i + 1]) for i, start in enumerate(starts.tolist())]
