"""The LF table: what each labeling function does, and where it agrees and disagrees with the others."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.labels import LabelSet, find_spans
from pyro_chmm.data.scoring import score


@dataclass(frozen=True)
class LFRow:
    """One LF. An LF *fires* at a token if it says neither O nor nothing there; shares are in percent of all
    N tokens.

    So ``coverage >= overlaps >= conflicts`` of either kind, and a token may be in both kinds of conflict.
    """

    name: str
    precision: float | None
    """Strict, in percent, of the LF's spans against the gold spans; None without gold labels."""
    recall: float | None
    f1: float | None
    spans: int
    """Spans in all."""
    coverage: float
    """Tokens at which it fires."""
    overlaps: float
    """Tokens at which it fires, and another LF too."""
    conflicts_within_type: float
    """Tokens at which it fires, and another LF has a span of the same type with another start or end."""
    conflicts_between_types: float
    """Tokens at which it fires, and another LF fires with another type."""


@dataclass(frozen=True)
class LFTable:
    """One row an LF, in the corpus's order, and what they do together."""

    documents: int
    tokens: int
    coverage: float
    """Tokens at which at least one LF fires, in percent of all."""
    rows: tuple[LFRow, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values: ``{"documents", "tokens", "coverage", "lfs": [{"name", "precision", ...}, ...]}``."""
        return {
            "documents": self.documents,
            "tokens": self.tokens,
            "coverage": self.coverage,
            "lfs": [asdict(row) for row in self.rows],
        }


def lf_table(corpus: Corpus) -> LFTable:
    """Count, and where the corpus has gold labels score, what its LFs say."""
    fires = corpus.weak_labels > 0
    together = fires.sum(axis=1) > 1
    within, between = np.zeros_like(fires), np.zeros_like(fires)
    within[together], between[together] = _conflicts(corpus, np.flatnonzero(together))
    counts = [marks.sum(axis=0) for marks in (fires, fires & together[:, None], within, between)]
    shares = 100.0 * np.stack(counts, axis=1) / max(corpus.num_tokens, 1)
    rows = []
    for place, name in enumerate(corpus.lf_names):
        ids = corpus.weak_labels[:, place]
        spans = len(find_spans(ids, corpus.offsets).start)
        scores: tuple[float | None, float | None, float | None] = (None, None, None)
        if corpus.gold is not None:
            result = score(corpus.label_set, corpus.gold, ids, corpus.offsets)
            scores = (result.precision, result.recall, result.f1)
        rows.append(LFRow(name, *scores, spans, *shares[place].tolist()))
    coverage = 100.0 * int(fires.any(axis=1).sum()) / max(corpus.num_tokens, 1)
    return LFTable(corpus.num_documents, corpus.num_tokens, coverage, tuple(rows))


def _conflicts(corpus: Corpus, tokens: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """At some tokens, (tokens, K) each: conflicts within a type, and between types.

    LFs disagree where the smallest of their values is not the largest, so no pairs of LFs are compared.
    """
    types = np.maximum(LabelSet.to_io(corpus.weak_labels[tokens]), 0)
    fires = types > 0
    between = fires & _differ(types, fires)[:, None]
    spans = np.zeros(types.shape, np.int64)
    for place, column in enumerate(corpus.weak_labels.T):
        spans[:, place] = _span_numbers(column, corpus)[tokens]
    within = np.zeros_like(fires)
    for kind in np.unique(types[fires]):
        same = types == kind
        within |= same & _differ(spans, same)[:, None]
    return within, between


def _differ(values: NDArray[np.integer], among: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(tokens,) whether the values of the LFs in question are not all the same."""
    values = values.astype(np.int64)
    above = np.iinfo(np.int64).max
    highest = np.where(among, values, -1).max(axis=1, initial=-1)
    lowest = np.where(among, values, above).min(axis=1, initial=above)
    differ: NDArray[np.bool_] = lowest < highest
    return differ


def _span_numbers(ids: NDArray[np.int16], corpus: Corpus) -> NDArray[np.int64]:
    """(N,) a number that two LFs share at a token if and only if their spans there start and end together."""
    found = find_spans(ids, corpus.offsets, lenient=True)
    numbers = np.full(corpus.num_tokens, -1, np.int64)
    lengths = found.end - found.start
    nth = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    inside = np.repeat(found.start, lengths) + nth
    numbers[inside] = np.repeat(found.start * (corpus.num_tokens + 1) + found.end, lengths)
    return numbers
