"""A transformers model: words in, hidden states of their sub-tokens out. Imports torch and transformers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

from pyro_chmm.data.windows import longest_word
from pyro_chmm.errors import EncoderError

Ids = NDArray[np.int64]

#: The default would ask on the terminal whether to run code that came with a model.
_FROM_FOLDER: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
_SHORTEST_WINDOW = 2


@dataclass(frozen=True)
class Pieces:
    """A document's sub-tokens.

    :ivar ids: ``(n,)`` without special tokens.
    :ivar boundaries: ``(words + 1,)`` where each word starts in ``ids``, and n; every word has at least one sub-token.
    """

    ids: Ids
    boundaries: Ids


class LanguageModel:
    """A loaded model, and its tokenizer.

    :param name: what the user calls it, for messages.
    :param folder: where its files are.
    :param layers: hidden layers to put side by side: 0 the embeddings, 3 after the third layer, -1 the last. Layers above the
        highest of them are not run.
    :raises EncoderError: where it cannot be loaded, or lacks a layer.

    :ivar width: length of a vector.
    :ivar capacity: sub-tokens in a window, without the special tokens.
    :ivar first: position of the [CLS] token in a window, or None where the model has none.
    """

    def __init__(self, name: str, folder: Path, layers: Sequence[int], device: str | torch.device = "cpu") -> None:
        self.name, self.device = name, device
        with _quiet(), self._problems():
            self._load_tokenizer(folder)
            self._load_model(folder)
        self.layers = self._resolve(layers)
        self.width = int(self._model.config.hidden_size) * len(self.layers)
        self.capacity = self._window_size() - len(self.prefix) - len(self.suffix)
        if self.capacity < _SHORTEST_WINDOW:
            raise EncoderError(f"The encoder {name!r} has a window too short for any word; choose another.")
        self._drop_layers_above(max(self.layers))

    def _load_tokenizer(self, folder: Path) -> None:
        tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=True, **_FROM_FOLDER)
        if not tokenizer.is_fast:
            raise ValueError("it has no fast tokenizer (tokenizer.json)")
        self._longest_input = int(tokenizer.model_max_length)
        backend = tokenizer.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True  # a word "[SEP]" in a text is a word
        self._tokenizer = backend
        # sub-tokens made of bytes carry the space before a word; words come without it
        self._before_word = " " if "ByteLevel(" in repr(backend.pre_tokenizer) else ""
        probe = backend.encode(["a"], is_pretokenized=True)
        inside = [place for place, special in enumerate(probe.special_tokens_mask) if not special] or [len(probe.ids)]
        self.prefix = np.array(probe.ids[: inside[0]], np.int64)
        self.suffix = np.array(probe.ids[inside[-1] + 1 :], np.int64)
        places = np.flatnonzero(self.prefix == tokenizer.cls_token_id)
        self.first = int(places[0]) if len(places) else None
        known = (tokenizer.unk_token_id, tokenizer.mask_token_id, tokenizer.eos_token_id, 0)
        self._unknown = next(token for token in known if token is not None)
        self._padding = 0 if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)

    def _load_model(self, folder: Path) -> None:
        model, report = AutoModel.from_pretrained(folder, use_safetensors=True, output_loading_info=True, **_FROM_FOLDER)
        # transformers would make up what is missing; a missing pooler is no harm, its output is not used
        missing = sorted(key for key in report["missing_keys"] if "pooler" not in key)
        if missing:
            raise ValueError(f"its weights lack {len(missing)} tensors, such as {missing[0]}")
        if model.config.is_encoder_decoder:
            model = model.get_encoder()
        self._model = model.float().eval().to(self.device)

    @contextmanager
    def _problems(self) -> Iterator[None]:
        """Whatever transformers raises becomes one sentence."""
        try:
            yield
        except Exception as error:  # many libraries lie below, each with errors of its own
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise EncoderError(
                f"The encoder {self.name!r} cannot be loaded: {lines[0].strip().rstrip('.')[:300]}; "
                "check its files, or use another encoder, such as minilm or none."
            ) from error

    def _resolve(self, layers: Sequence[int]) -> tuple[int, ...]:
        depth = int(self._model.config.num_hidden_layers)
        for layer in layers:
            if not -depth - 1 <= layer <= depth:
                raise EncoderError(
                    f"The encoder {self.name!r} has no layer {layer}: its layers are 0 (embeddings) to {depth}, "
                    f"or -1 (the last) to {-depth - 1}."
                )
        return tuple(layer % (depth + 1) for layer in layers)

    def _window_size(self) -> int:
        limits = [self._longest_input]
        for module_name, module in self._model.named_modules():
            if module_name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
                # RoBERTa and its kin count positions from behind the padding's id
                taken = 0 if module.padding_idx is None else module.padding_idx + 1
                limits.append(module.num_embeddings - taken)
        positions = getattr(self._model.config, "max_position_embeddings", None)
        if isinstance(positions, int) and positions > 0:
            limits.append(positions)
        return min(*limits, 1 << 20)

    def _drop_layers_above(self, highest: int) -> None:
        depth = int(self._model.config.num_hidden_layers)
        stacks = (module for module in self._model.modules() if isinstance(module, nn.ModuleList) and len(module) == depth)
        stack = next(stacks, None)
        if stack is None or not 0 < highest < depth:
            return
        probe = [self.join(np.array([self._unknown], np.int64))]
        expected, dropped = self.states(probe), list(stack[highest:])
        del stack[highest:]
        # some models normalise the state of the last layer once more: there the cut would change it
        if not torch.equal(self.states(probe), expected):
            stack.extend(dropped)

    def tokenize(self, documents: Sequence[Sequence[str]]) -> list[Pieces]:
        """Sub-tokens of each document.

        A word of which the tokenizer leaves nothing (a zero-width character, an empty string) is the unknown token; a word of
        more sub-tokens than a quarter of the window is known by its first ones.
        """
        texts = [[self._before_word + _encodable(word) if word else "" for word in document] for document in documents]
        encodings = self._tokenizer.encode_batch(texts, is_pretokenized=True, add_special_tokens=False)
        return [self._complete(code.ids, code.word_ids, len(text)) for code, text in zip(encodings, texts, strict=True)]

    def _complete(self, ids: list[int], word_ids: list[int], words: int) -> Pieces:
        index = np.array(word_ids, np.int64)
        counts = np.bincount(index, minlength=words)
        starts = np.cumsum(counts) - counts
        within = np.arange(len(index)) - starts[index]
        kept = within < longest_word(self.capacity)
        empty = np.flatnonzero(counts == 0)
        pieces = np.array(ids, np.int64)[kept]
        # an empty word's place is where the next word starts, counted among the sub-tokens that are kept
        counts = np.bincount(index[kept], minlength=words)
        pieces = np.insert(pieces, np.cumsum(counts)[empty], self._unknown)
        counts[empty] = 1
        return Pieces(pieces, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    def join(self, ids: Ids) -> Ids:
        """The input for some sub-tokens: special tokens around them, or the unknown token if that makes nothing at all."""
        joined = np.concatenate([self.prefix, ids, self.suffix])
        return joined if len(joined) else np.array([self._unknown], np.int64)

    def states(self, inputs: Sequence[Ids]) -> Tensor:
        """Hidden states of the chosen layers, side by side.

        :param inputs: from :meth:`join`.
        :returns: ``(inputs, longest, width)`` float32; what stands behind a shorter input has no meaning.
        """
        lengths = [len(ids) for ids in inputs]
        padded = np.full((len(inputs), max(lengths)), self._padding, np.int64)
        for row, ids in zip(padded, inputs, strict=True):
            row[: len(ids)] = ids
        mask = None
        if min(lengths) < max(lengths):
            mask = torch.from_numpy(np.arange(max(lengths)) < np.array(lengths)[:, None]).long().to(self.device)
        with torch.inference_mode():
            result = self._model(input_ids=torch.from_numpy(padded).to(self.device), attention_mask=mask, output_hidden_states=True)
            return torch.cat([result.hidden_states[layer] for layer in self.layers], dim=-1)


def _encodable(word: str) -> str:
    """The word with lone surrogates, which no tokenizer takes, as question marks."""
    return word if word.isascii() else word.encode("utf-8", "replace").decode("utf-8")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' progress bars, advice and warnings, whose subjects are not the user's."""
    verbosity, bars = transformers.logging.get_verbosity(), transformers.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        if bars:
            transformers.logging.enable_progress_bar()
