"""Hidden states of sub-tokens become one vector a word and one a document."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pyro_chmm import progress
from pyro_chmm.data.windows import cut_windows
from pyro_chmm.errors import EncoderError

if TYPE_CHECKING:
    from pyro_chmm.data.corpus import Corpus
    from pyro_chmm.data.encoder import DocumentVector
    from pyro_chmm.data.language_model import Ids, LanguageModel
    from pyro_chmm.data.vector_cache import Half

log = logging.getLogger(__name__)

_TOKENISED_AT_ONCE = 1000
_LARGEST_HALF = float(np.finfo(np.float16).max)


@dataclass(frozen=True)
class _Reading:
    """One input to the model: a document, or a window of one.

    :ivar document: position in the corpus.
    :ivar words: the words that take their vectors here, as packed tokens.
    :ivar ids: the sub-tokens, special ones included.
    :ivar boundaries: ``(words + 1,)`` where each of the words starts in ``ids``, and where the last ends.
    :ivar share: 1 over the number of windows of the document.
    """

    document: int
    words: slice
    ids: Ids
    boundaries: Ids
    share: float


def encode_words(
    model: LanguageModel, corpus: Corpus, document_vector: DocumentVector, batch_tokens: int, tokens: Half, documents: Half
) -> int:
    """Fill ``tokens`` ``(N, width)`` and ``documents`` ``(B, width)``; returns the number of sub-tokens read.

    :raises EncoderError: where the model has no [CLS] token but its state is asked for, or gives numbers that are not finite.
    """
    if document_vector == "cls" and model.first is None:
        raise EncoderError(f"The encoder {model.name!r} has no [CLS] token; choose the document vector mean.")
    readings = _readings(model, corpus)
    # the longest first: if memory is short, it shows at once
    readings.sort(key=lambda reading: -len(reading.ids))
    total = sum(len(reading.ids) for reading in readings)
    states_of_first = np.zeros(documents.shape, np.float32)
    clipped = False
    with progress.task("encoding", total=total, unit="sub-tokens") as advance, torch.inference_mode():
        for batch in _batches(readings, batch_tokens):
            states = model.states([reading.ids for reading in batch])
            _check_finite(model, corpus, batch, states)
            clipped |= _store_words(batch, states, tokens)
            for reading, state in zip(batch, states, strict=True):
                if document_vector == "cls":
                    states_of_first[reading.document] += reading.share * state[model.first].cpu().numpy()
                elif len(reading.boundaries) == 1:  # no words: the mean over the special tokens
                    states_of_first[reading.document] = state[: len(reading.ids)].mean(dim=0).cpu().numpy()
            advance(sum(len(reading.ids) for reading in batch))
    if document_vector == "mean":
        for m in np.flatnonzero(np.diff(corpus.offsets)).tolist():
            states_of_first[m] = tokens[corpus.document_slice(m)].mean(axis=0, dtype=np.float32)
    clipped |= bool((np.abs(states_of_first) > _LARGEST_HALF).any())
    documents[:] = np.clip(states_of_first, -_LARGEST_HALF, _LARGEST_HALF)
    if clipped:
        log.warning("Some numbers in the vectors of %s are beyond what float16 holds; they were set to its largest.", model.name)
    return total


def _readings(model: LanguageModel, corpus: Corpus) -> list[_Reading]:
    readings = []
    for start in range(0, corpus.num_documents, _TOKENISED_AT_ONCE):
        chunk = range(start, min(start + _TOKENISED_AT_ONCE, corpus.num_documents))
        for document, pieces in zip(chunk, model.tokenize([corpus.tokens[m] for m in chunk]), strict=True):
            first = int(corpus.offsets[document])
            windows = cut_windows(pieces.boundaries, model.capacity)
            for window in windows:
                boundaries = pieces.boundaries[window.first_word : window.last_word + 1] - window.start + len(model.prefix)
                words = slice(first + window.first_word, first + window.last_word)
                ids = model.join(pieces.ids[window.start : window.end])
                readings.append(_Reading(document, words, ids, boundaries, 1 / len(windows)))
    return readings


def _batches(readings: list[_Reading], batch_tokens: int) -> Iterator[list[_Reading]]:
    """Neighbours of falling length, together at most ``batch_tokens`` with padding, but at least one."""
    start = 0
    while start < len(readings):
        end = start + max(batch_tokens // len(readings[start].ids), 1)
        yield readings[start:end]
        start = end


def _store_words(batch: list[_Reading], states: Tensor, tokens: Half) -> bool:
    """Write the mean over each word's sub-tokens; returns whether some number was too large for float16."""
    longest = states.shape[1]
    rows = np.concatenate([row * longest + np.arange(r.boundaries[0], r.boundaries[-1]) for row, r in enumerate(batch)])
    if not len(rows):
        return False
    lengths = np.concatenate([np.diff(reading.boundaries) for reading in batch])
    pieces = states.flatten(0, 1)[torch.from_numpy(rows).to(states.device)]
    means = torch.segment_reduce(pieces, "mean", lengths=torch.from_numpy(lengths).to(states.device))
    halves = means.clamp(-_LARGEST_HALF, _LARGEST_HALF).half().cpu().numpy()
    start = 0
    for reading in batch:
        end = start + len(reading.boundaries) - 1
        tokens[reading.words] = halves[start:end]
        start = end
    return bool(means.abs().max() > _LARGEST_HALF)


def _check_finite(model: LanguageModel, corpus: Corpus, batch: list[_Reading], states: Tensor) -> None:
    lengths = torch.tensor([len(reading.ids) for reading in batch], device=states.device)
    real = torch.arange(states.shape[1], device=states.device) < lengths[:, None]
    bad = ~(states.isfinite().all(dim=-1) | ~real).all(dim=-1)
    if bool(bad.any()):
        document = batch[int(bad.nonzero()[0])].document
        raise EncoderError(
            f"The encoder {model.name!r} gives numbers that are not finite for document {corpus.document_ids[document]!r}; "
            "its weights are damaged, or the layers asked for cannot be used."
        )
