"""The documents of a report, packed small: what the page needs to show any of them and to explain any token.

One gzip-compressed block: a 4-byte length, that many bytes of JSON (texts, and a list of arrays), then the arrays, little-endian.
``report.js`` reads it. Probabilities become logs in thousandths of a nat; of labels, only those are kept in each document that some
LF or the gold labels name there or that have a marginal of at least :data:`LEAST_MARGINAL` at some token.
"""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.labels import ABSTAIN, Ids
from pyro_chmm.label_models.explanation import DecodedBatch

#: A label less probable than this at every token of a document, and named by nobody there, is not shown.
LEAST_MARGINAL = 1e-3
_UNIT, _IMPOSSIBLE = 1000.0, -32768
"""Stored numbers a nat, and what stands for -inf."""
_NO_RELIABILITY = -1e-4
"""Stands for the reliability of an LF on a coarse label, which has none."""
_DOCUMENT_COLUMNS = ("keptCounts", "kept", "columnCounts", "evidence", "reliability", "left", "right")


class DocumentPacker:
    """Packs a corpus from its decoded batches, which need not be in memory together: :meth:`add` each, then :meth:`packed`.

    :param corpus: with the model's LFs and labels.
    """

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self._columns: dict[str, list[NDArray[Any]]] = {name: [] for name in (*_DOCUMENT_COLUMNS, "weight", "confidence", "label")}

    def add(self, part: DecodedBatch) -> None:
        """The next batch."""
        for document, (start, stop) in enumerate(pairwise(part.offsets.tolist())):
            self._add_document(part, document, slice(start, stop))
        best = part.labels.numpy()
        confidence = part.marginals.double().numpy()[np.arange(len(best)), np.maximum(best, 0)]
        self._columns["label"].append(best)
        self._columns["confidence"].append(np.clip(confidence, 0, 1))
        self._columns["weight"].append(part.weight[:, : self.corpus.num_lfs].numpy())

    def _add_document(self, part: DecodedBatch, document: int, tokens: slice) -> None:
        corpus, num_labels = self.corpus, len(self.corpus.label_set)
        said = part.observed[tokens, : corpus.num_lfs].numpy()
        kept = self._kept(part, tokens, said, int(part.documents[document]))
        # a column for each LF and what it says in the document, in this order
        lfs, labels = np.array([(k, o) for k in range(corpus.num_lfs) for o in np.unique(said[:, k]) if o != ABSTAIN] or [(0, 0)]).T
        lfs, labels = (lfs, labels) if (said != ABSTAIN).any() else (lfs[:0], labels[:0])
        emission, reliability = part.emission[document].double().numpy(), part.reliability[document].double().numpy()
        of_label = np.where(labels < num_labels, reliability[lfs, np.minimum(labels, num_labels - 1)], _NO_RELIABILITY)
        columns = {
            "keptCounts": np.array([len(kept)]),
            "kept": kept,
            "columnCounts": np.array([len(lfs)]),
            "evidence": np.log(emission[lfs[:, None], kept, labels[:, None]]).reshape(-1),
            "reliability": of_label,
            "left": part.left[tokens].numpy()[:, kept].reshape(-1),
            "right": part.right[tokens].numpy()[:, kept].reshape(-1),
        }
        for name in _DOCUMENT_COLUMNS:
            self._columns[name].append(columns[name])

    def _kept(self, part: DecodedBatch, tokens: slice, said: NDArray[Any], position: int) -> NDArray[np.int64]:
        """The labels that the document is shown with."""
        best, gold = part.labels[tokens].numpy(), self.corpus.gold
        probable = np.flatnonzero((part.marginals[tokens] >= LEAST_MARGINAL).any(dim=0).numpy())
        ordinary = said[(said >= 0) & (said < len(self.corpus.label_set))]
        named: list[NDArray[Any]] = [np.zeros(1, np.int64), ordinary, best[best >= 0], probable]
        if gold is not None:
            named.append(gold[self.corpus.document_slice(position)])
        return np.unique(np.concatenate(named)).astype(np.int64)

    def packed(self, vote: Ids) -> bytes:
        """All documents as one block.

        :param vote: ``(N,)`` majority vote's labels.
        """
        corpus = self.corpus
        columns = {
            name: np.concatenate([np.zeros(0), *(part.reshape(-1) for part in parts)]) for name, parts in self._columns.items()
        }
        weights, weight_index = np.unique(columns["weight"], return_inverse=True)
        arrays: dict[str, NDArray[Any]] = {
            "said": corpus.observed_labels.astype("<i2"),
            "weight": weight_index.astype("<u2"),
            "label": columns["label"].astype("<i2"),
            "vote": vote.astype("<i2"),
            "keptCounts": columns["keptCounts"].astype("<u2"),
            "kept": columns["kept"].astype("<u2"),
            "columnCounts": columns["columnCounts"].astype("<u2"),
            "reliability": (columns["reliability"] * 10_000).round().astype("<i2"),
            "confidence": (columns["confidence"] * 65_535).round().astype("<u2"),
            **{name: _fixed(columns[name]) for name in ("evidence", "left", "right")},
        }
        if corpus.gold is not None:
            arrays["gold"] = corpus.gold.astype("<i2")
        header = {
            "ids": corpus.document_ids,
            "tokens": [list(document) for document in corpus.tokens],
            "weights": weights.tolist(),
            "arrays": [[name, array.dtype.str[1:], array.size] for name, array in arrays.items()],
        }
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 4)  # so that all arrays are aligned
        block = len(text).to_bytes(4, "little") + text + b"".join(array.tobytes() for array in arrays.values())
        return gzip.compress(block, compresslevel=6, mtime=0)


def _fixed(logs: NDArray[np.float64]) -> NDArray[np.int16]:
    """Logs in thousandths of a nat, 16 bits; down to -32.767, and one value for -inf."""
    finite = np.clip(np.where(np.isneginf(logs), 0.0, logs) * _UNIT, -32_767, 32_767).round()
    return np.where(np.isneginf(logs), _IMPOSSIBLE, finite).astype("<i2")
