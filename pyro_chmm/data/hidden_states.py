"""Hidden states of a transformers model, pooled into one vector a word. Imports torch and transformers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoTokenizer

from pyro_chmm import progress
from pyro_chmm.errors import EncoderError

if TYPE_CHECKING:
    from pyro_chmm.data.corpus import Corpus

log = logging.getLogger(__name__)

#: Documents tokenised at once, and sorted by length among themselves.
_CHUNK = 2048
#: Sub-tokens a forward pass: large enough for full matrix products, small enough for the caches.
_BUDGET = 2048
#: Overlap of two windows, in sub-tokens: each side gets at least half of it as context.
_OVERLAP = 128
_LARGEST_HALF = float(np.finfo(np.float16).max)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' progress bars and advice: their subjects are not the user's."""
    previous = transformers.logging.get_verbosity()
    bars = transformers.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(previous)
        if bars:
            transformers.logging.enable_progress_bar()


def _load(loader: Any, path: str, **options: Any) -> Any:
    """Load from a folder or the hub; code from the hub is never run.

    :raises EncoderError: saying what was tried and what to do.
    """
    try:
        with _quiet():
            return loader.from_pretrained(path, **options)
    except (OSError, ValueError, ImportError, RuntimeError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise EncoderError(
            f"The encoder {path} cannot be loaded from that folder, the local hub cache or the hub ({reason}); check the name, give a "
            "local folder, or use --encoder minilm or --encoder none."
        ) from None


def read_config(path: str) -> Any:
    """A model's configuration."""
    return _load(AutoConfig, path)


@dataclass(frozen=True)
class Window:
    """A stretch of a document that fits the model.

    :ivar document: position in the corpus.
    :ivar pieces: sub-token ids with the special tokens.
    :ivar words: for each of ``pieces``, the packed position of its word, or -1 where another window or nobody owns it.
    :ivar first: whether the document vector comes from here.
    """

    document: int
    pieces: list[int]
    words: list[int]
    first: bool


class HiddenStates:
    """A loaded model.

    :param path: folder or hub name.
    :param layers: hidden layers from 0, put side by side; layers above the highest are cut off and never run.
    :param document_vector: ``cls`` or ``mean``.
    """

    def __init__(self, path: str, layers: tuple[int, ...], document_vector: str, device: str) -> None:
        self.tokenizer = _load(AutoTokenizer, path, use_fast=True)
        self.model = _load(AutoModel, path, use_safetensors=True).to(device).eval()
        self.layers, self.document_vector, self.device = layers, document_vector, device
        self._cut(max(layers))
        begin = self._special("cls_token_id", "bos_token_id")
        end = self._special("sep_token_id", "eos_token_id")
        self.prefix, self.suffix = begin, end
        self.unknown = next(iter(self._special("unk_token_id", "mask_token_id")), 0)
        positions = getattr(self.model.config, "max_position_embeddings", 512)
        self.window = min(int(self.tokenizer.model_max_length), int(positions)) - len(begin) - len(end)

    def _special(self, *names: str) -> list[int]:
        ids = [getattr(self.tokenizer, name, None) for name in names]
        return [token for token in ids if token is not None][:1]

    def _cut(self, highest: int) -> None:
        stack = getattr(getattr(self.model, "encoder", None), "layer", None)
        if isinstance(stack, torch.nn.ModuleList) and 0 < highest < len(stack):
            self.model.encoder.layer = stack[:highest]

    def encode_into(self, corpus: Corpus, tokens: NDArray[np.float16], documents: NDArray[np.float16]) -> int:
        """Fill ``tokens`` ``(N, width)`` and ``documents`` ``(B, width)``; returns the number of sub-tokens run."""
        total = 0
        with (
            progress.task("encoding", total=corpus.num_documents, unit="documents") as advance,
            torch.inference_mode(),
        ):
            for start in range(0, corpus.num_documents, _CHUNK):
                chunk = range(start, min(start + _CHUNK, corpus.num_documents))
                first, last = int(corpus.offsets[chunk.start]), int(corpus.offsets[chunk.stop])
                sums = torch.zeros(last - first, tokens.shape[1])
                counts = torch.zeros(last - first, 1)
                for batch in self._batches(self._windows(corpus, chunk)):
                    total += self._run(batch, first, sums, counts, documents)
                    advance(sum(window.first for window in batch))
                vectors = sums / counts
                tokens[first:last] = _half(vectors)
                if self.document_vector == "mean":
                    for m in chunk:
                        a, b = int(corpus.offsets[m]) - first, int(corpus.offsets[m + 1]) - first
                        if b > a:  # an empty document keeps its first token's state
                            documents[m] = _half(vectors[a:b].mean(dim=0))
        return total

    def _windows(self, corpus: Corpus, chunk: range) -> list[Window]:
        texts = [[_encodable(word) for word in corpus.tokens[m]] for m in chunk]
        occupied = [text for text in texts if text]
        with _quiet():
            encoded = (
                self.tokenizer(
                    occupied, is_split_into_words=True, add_special_tokens=False, return_attention_mask=False
                )
                if occupied
                else None
            )
        windows: list[Window] = []
        position = 0
        for m, text in zip(chunk, texts, strict=True):
            pieces: list[int] = []
            words: list[int] = []
            if text and encoded is not None:
                pieces, words = self._complete(
                    encoded["input_ids"][position], encoded.word_ids(position), len(text)
                )
                position += 1
            windows += self._cut_windows(m, pieces, [int(corpus.offsets[m]) + word for word in words])
        return windows

    def _complete(
        self, pieces: list[int], words: list[int | None], count: int
    ) -> tuple[list[int], list[int]]:
        """Give the unknown token to words that the tokenizer left without any."""
        found = [cast(int, word) for word in words]
        missing = set(range(count)) - set(found)
        if not missing:
            return pieces, found
        pairs = sorted(
            [*zip(found, pieces, strict=True), *((word, self.unknown) for word in missing)],
            key=lambda pair: pair[0],
        )
        return [piece for _, piece in pairs], [word for word, _ in pairs]

    def _cut_windows(self, document: int, pieces: list[int], words: list[int]) -> list[Window]:
        """Overlapping windows; each sub-token is owned by the window that gives it the most context."""
        overlap = min(_OVERLAP, self.window // 2)
        windows: list[Window] = []
        start = 0
        while True:
            end = min(start + self.window, len(pieces))
            owned_from = start if start == 0 else start + overlap // 2
            owned_to = end if end == len(pieces) else end - (overlap - overlap // 2)
            owned = [
                word if owned_from <= start + i < owned_to else -1 for i, word in enumerate(words[start:end])
            ]
            windows.append(
                Window(
                    document,
                    [*self.prefix, *pieces[start:end], *self.suffix],
                    [*([-1] * len(self.prefix)), *owned, *([-1] * len(self.suffix))],
                    first=start == 0,
                )
            )
            if end == len(pieces):
                return windows
            start = end - overlap

    def _batches(self, windows: list[Window]) -> Iterator[list[Window]]:
        """Windows of like length, at most ``_BUDGET`` sub-tokens with padding."""
        batch: list[Window] = []
        for window in sorted(windows, key=lambda window: len(window.pieces)):
            if batch and (len(batch) + 1) * len(window.pieces) > _BUDGET:
                yield batch
                batch = []
            batch.append(window)
        if batch:
            yield batch

    def _run(
        self, batch: list[Window], first: int, sums: Tensor, counts: Tensor, documents: NDArray[np.float16]
    ) -> int:
        """One forward pass; adds the owned sub-tokens' states to their words."""
        longest = max(max(len(window.pieces) for window in batch), 1)
        ids = torch.zeros(len(batch), longest, dtype=torch.long)
        mask = torch.zeros(len(batch), longest, dtype=torch.long)
        words = torch.full((len(batch), longest), -1, dtype=torch.long)
        for row, window in enumerate(batch):
            length = len(window.pieces)
            ids[row, :length] = torch.tensor(window.pieces)
            words[row, :length] = torch.tensor(window.words)
            mask[row, :length] = 1
        output = self.model(
            input_ids=ids.to(self.device), attention_mask=mask.to(self.device), output_hidden_states=True
        )
        states = torch.cat([output.hidden_states[layer] for layer in self.layers], dim=-1).float().cpu()
        owned = words >= 0
        index = words[owned] - first
        sums.index_add_(0, index, states[owned])
        counts.index_add_(0, index, torch.ones(len(index), 1))
        for row, window in enumerate(batch):
            if window.first:
                documents[window.document] = _half(states[row, 0])
        return int(mask.sum())


def _encodable(word: str) -> str:
    """The word without lone surrogates, which no tokenizer takes."""
    return word.encode("utf-8", "replace").decode("utf-8")


def _half(vectors: Tensor) -> NDArray[np.float16]:
    return cast("NDArray[np.float16]", vectors.clamp(-_LARGEST_HALF, _LARGEST_HALF).half().numpy())
