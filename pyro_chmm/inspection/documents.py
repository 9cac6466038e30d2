"""The documents of a report, packed small: what the page needs to show any of them and to explain any token.

One gzip-compressed block: a 4-byte length, that many bytes of JSON (texts, and a list of arrays), then the arrays, little-endian.
``report.js`` reads it. Probabilities become logs in thousandths of a nat; of labels, only those are kept in each document that some
LF or the gold labels name there or that have a marginal of at least :data:`LEAST_MARGINAL` at some token.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.labels import ABSTAIN, Ids
from pyro_chmm.label_models.explanation import DecodedBatch

#: A label less probable than this at every token of a document, and named by nobody there, is not shown.
LEAST_MARGINAL = 1e-3
_UNIT, _IMPOSSIBLE = 1000.0, -32768
"""Stored numbers a nat, and what stands for -inf."""


@dataclass
class _Columns:
    """What is collected over the batches; each list becomes one array, in the order of documents."""

    kept_counts: list[int] = field(default_factory=list)
    kept: list[NDArray[np.int64]] = field(default_factory=list)
    evidence: list[NDArray[np.float64]] = field(default_factory=list)
    reliability: list[NDArray[np.float64]] = field(default_factory=list)
    left: list[NDArray[np.float64]] = field(default_factory=list)
    right: list[NDArray[np.float64]] = field(default_factory=list)
    weight: list[NDArray[np.float32]] = field(default_factory=list)
    confidence: list[NDArray[np.float64]] = field(default_factory=list)


def packed_documents(corpus: Corpus, decoded: Iterable[DecodedBatch], labels: Ids, vote: Ids) -> bytes:
    """All documents of a corpus as one block.

    :param decoded: of this corpus, see :meth:`SparseCHMM.decoded`.
    :param labels: ``(N,)`` the model's labels; ``vote``, majority vote's.
    """
    columns = _Columns()
    for part, document, tokens in _documents(decoded):
        _add(columns, part, document, tokens, corpus)
    weights, weight_index = np.unique(_joined(columns.weight, (0, corpus.num_lfs)), return_inverse=True)
    arrays: dict[str, NDArray[np.generic]] = {
        "said": corpus.observed_labels.astype("<i2"),
        "weight": weight_index.reshape(-1).astype("<u2"),
        "label": labels.astype("<i2"),
        "vote": vote.astype("<i2"),
        "keptCounts": np.array(columns.kept_counts, "<u2"),
        "kept": _joined(columns.kept).astype("<u2"),
        "evidence": _fixed(_joined(columns.evidence)),
        "reliability": (_joined(columns.reliability) * 10_000).round().astype("<i2"),
        "left": _fixed(_joined(columns.left)),
        "right": _fixed(_joined(columns.right)),
        "confidence": (_joined(columns.confidence) * 65_535).round().astype("<u2"),
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


def _documents(decoded: Iterable[DecodedBatch]) -> Iterator[tuple[DecodedBatch, int, slice]]:
    """Each document: its batch, its number there, and its tokens there."""
    for part in decoded:
        bounds = part.batch.offsets.tolist()
        for document in range(part.batch.num_documents):
            yield part, document, slice(bounds[document], bounds[document + 1])


def _add(columns: _Columns, part: DecodedBatch, document: int, tokens: slice, corpus: Corpus) -> None:
    lfs, num_labels = corpus.num_lfs, len(corpus.label_set)
    position = int(part.batch.documents[document])
    said = part.observed[tokens, :lfs].numpy()
    marginals, best = part.marginals[tokens].double().numpy(), part.labels[tokens].numpy()
    named = [said[(said >= 0) & (said < num_labels)], best[best >= 0], [0]]
    if corpus.gold is not None:
        named.append(corpus.gold[corpus.document_slice(position)])
    probable = np.flatnonzero((marginals >= LEAST_MARGINAL).any(axis=0))
    kept = np.unique(np.concatenate([*named, probable]).astype(np.int64))
    emission = part.emission[document].double().numpy()
    reliability = part.reliability[document].double().numpy()
    for lf in range(lfs):  # the page counts columns in the same order: LF, then what it says
        for label in np.unique(said[:, lf][said[:, lf] != ABSTAIN]):
            columns.evidence.append(np.log(emission[lf, kept, label]))
            columns.reliability.append(np.array([reliability[lf, label] if label < num_labels else -1e-4]))
    columns.kept_counts.append(len(kept))
    columns.kept.append(kept)
    for name in ("left", "right"):
        messages: torch.Tensor = getattr(part, name)[tokens]
        getattr(columns, name).append(messages.numpy()[:, kept].reshape(-1))
    columns.weight.append(part.weight[tokens, :lfs].numpy())
    columns.confidence.append(np.clip(marginals[np.arange(len(best)), np.maximum(best, 0)], 0, 1))


def _joined(parts: list[NDArray[np.generic]] | list[NDArray[np.float64]], empty: tuple[int, ...] = (0,)) -> NDArray[np.float64]:
    return np.concatenate(parts) if parts else np.zeros(empty)  # type: ignore[arg-type]


def _fixed(logs: NDArray[np.float64]) -> NDArray[np.int16]:
    """Logs in thousandths of a nat, 16 bits; down to -32.767, and one value for -inf."""
    finite = np.clip(np.where(np.isneginf(logs), 0.0, logs) * _UNIT, -32_767, 32_767).round()
    return np.where(np.isneginf(logs), _IMPOSSIBLE, finite).astype("<i2")
