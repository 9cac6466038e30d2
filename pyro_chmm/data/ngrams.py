"""What a word is made of, beside its vector: character n-grams, which tell a drug or a disease from its spelling.

Every word of the vocabulary is hashed once; a corpus's features are looked up, never stored.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

#: Words hashed at once: in single precision they take twice the table's memory.
_SLICE = 4096


class WithNGrams:
    """Token vectors with the hashed n-grams of each word at their side: an array ``(N, width + count)`` that is never stored.

    The n-grams of 2 to 4 characters, lower case, of a word between blanks, hashed with signs into ``count`` numbers of length 1
    (scikit-learn's ``HashingVectorizer``).

    :param vectors: ``(N, width)`` float16.
    :param words: the N words.
    :param count: how many numbers the n-grams are hashed into, at least 1.
    :ivar table: ``(V, count)`` float16, the n-grams of each word of the vocabulary.
    :ivar index: ``(N,)`` int32, the row of each token.
    """

    def __init__(self, vectors: NDArray[np.float16], words: Sequence[str], count: int) -> None:
        from sklearn.feature_extraction.text import HashingVectorizer  # takes a second to import

        self.vectors = vectors
        rows: dict[str, int] = {}
        self.index = np.fromiter((rows.setdefault(word, len(rows)) for word in words), np.int32, len(vectors))
        hashing = HashingVectorizer(analyzer="char_wb", ngram_range=(2, 4), n_features=count, norm="l2", dtype=np.float32)
        self.table = np.zeros((len(rows), count), np.float16)
        printable = [word.encode("utf-8", "replace").decode() for word in rows]  # a lone surrogate has no UTF-8
        for start in range(0, len(printable), _SLICE):
            self.table[start : start + _SLICE] = hashing.transform(printable[start : start + _SLICE]).toarray()
        self.shape = (len(vectors), vectors.shape[1] + count)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: slice | NDArray[np.int64]) -> NDArray[np.float16]:
        return np.concatenate([self.vectors[index], self.table[self.index[index]]], axis=1)
