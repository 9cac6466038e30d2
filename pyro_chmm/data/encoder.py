"""Words become vectors: any transformers model, every token gets one, and the result is kept on disk."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pyro_chmm.data.model_source import MINILM, find_model, model_identity
from pyro_chmm.data.ngrams import WithNGrams
from pyro_chmm.data.vector_cache import FORMAT, VectorEntry, default_directory
from pyro_chmm.errors import ConfigError, EncoderError

if TYPE_CHECKING:
    from pyro_chmm.data.corpus import Corpus

log = logging.getLogger(__name__)

NONE = "none"

DocumentVector = Literal["cls", "mean"]


@dataclass(frozen=True)
class EncoderSettings:
    """What a vector is.

    :param name: ``minilm``, a hub name, a folder, or ``none`` (a constant vector of width 1).
    :param layers: hidden layers put side by side: 0 the embeddings, 3 after the third layer, -1 the last.
    :param document_vector: ``cls``, the state of the [CLS] token, or ``mean``, the mean of the token vectors.
    :param ngrams: hashed character n-grams at the side of each token vector, see :class:`~pyro_chmm.data.ngrams.WithNGrams`.
    :raises ConfigError: where a value makes no sense.
    """

    name: str = MINILM
    layers: tuple[int, ...] = (-1,)
    document_vector: DocumentVector = "cls"
    ngrams: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        if not self.layers or not all(isinstance(layer, int) for layer in self.layers):
            raise ConfigError(f"layers is {self.layers!r}; give at least one whole number, such as -1 for the last layer.")
        if self.document_vector not in get_args(DocumentVector):
            raise ConfigError(
                f"document_vector is {self.document_vector!r}; it must be one of {', '.join(get_args(DocumentVector))}."
            )
        if self.ngrams < 0:
            raise ConfigError(f"ngrams is {self.ngrams}; it must be 0 (for none) or more.")


@dataclass(frozen=True, eq=False)
class Vectors:
    """A corpus's vectors; width is that of the model times the number of layers.

    :ivar tokens: ``(N, width)`` float16, a read-only memory map: the mean of each word's sub-tokens; n-grams at their side add
        to the width.
    :ivar documents: ``(B, width)`` float16, likewise.
    :ivar settings: how they were made.
    :ivar cached: whether they were found in the cache.
    """

    tokens: NDArray[np.float16] | WithNGrams
    documents: NDArray[np.float16]
    settings: EncoderSettings
    cached: bool


def encode(
    corpus: Corpus,
    settings: EncoderSettings,
    *,
    cache_dir: str | Path | None = None,
    batch_tokens: int | None = None,
    device: str = "cpu",
) -> Vectors:
    """Vectors of every token and document of a corpus; what was encoded once is found in the cache.

    A word of no sub-token is encoded as the unknown token. A document longer than the model's window goes through overlapping
    windows: each word is taken from the one that gives it the most context, and the [CLS] state is the mean over them. An empty
    document has the vector of a text without words.

    :param cache_dir: default ``$PYRO_CHMM_CACHE``, else the user's cache folder.
    :param batch_tokens: sub-tokens in a forward pass, padding included; by default what suits the device.
    :raises EncoderError: where the model cannot be loaded or run, saying what was tried and what to do, or the cache cannot be
        written.
    """
    if settings.name == NONE:
        tokens, documents = (np.ones((count, 1), np.float16) for count in (corpus.num_tokens, corpus.num_documents))
        return _vectors(corpus, tokens, documents, settings, cached=False)
    folder = find_model(settings.name)
    directory = default_directory() if cache_dir is None else Path(cache_dir)
    key = _key(corpus, settings, folder)
    entry = VectorEntry(directory, key, corpus.num_tokens, corpus.num_documents)
    found = entry.read()
    if found is not None:
        log.debug("The vectors of %d documents by %s are in the cache.", corpus.num_documents, settings.name)
        return _vectors(corpus, *found, settings, cached=True)
    _make(entry, corpus, settings, folder, batch_tokens, device)
    made = entry.read()
    if made is None:
        raise EncoderError(f"The vectors just written to {directory} are gone or damaged; is another program changing them?")
    return _vectors(corpus, *made, settings, cached=False)


def _vectors(
    corpus: Corpus, tokens: NDArray[np.float16], documents: NDArray[np.float16], settings: EncoderSettings, *, cached: bool
) -> Vectors:
    """With n-grams where they are asked for; these are hashed anew each time, which takes less than reading them."""
    if not settings.ngrams:
        return Vectors(tokens, documents, settings, cached)
    words = [word for document in corpus.tokens for word in document]
    return Vectors(WithNGrams(tokens, words, settings.ngrams), documents, settings, cached)


def _make(
    entry: VectorEntry, corpus: Corpus, settings: EncoderSettings, folder: Path, batch_tokens: int | None, device: str
) -> None:
    from pyro_chmm.data.language_model import LanguageModel  # torch and transformers take seconds to import
    from pyro_chmm.data.pooling import encode_words

    model = LanguageModel(settings.name, folder, settings.layers, device)
    if batch_tokens is None:
        batch_tokens = 512 if str(device) == "cpu" else 16_384  # the states of 512 sub-tokens fit a core's cache
    about = {**asdict(settings), "documents": corpus.num_documents, "tokens": corpus.num_tokens}
    started = time.perf_counter()
    try:
        with entry.writing(model.width, about) as (tokens, documents):
            count = encode_words(model, corpus, settings.document_vector, batch_tokens, tokens, documents)
    except OSError as error:
        megabytes = (corpus.num_tokens + corpus.num_documents) * model.width * 2 / 1e6
        raise EncoderError(
            f"The vectors ({megabytes:,.0f} MB) cannot be kept in {entry.directory}: {error.strerror or error}; make room there, "
            "or set PYRO_CHMM_CACHE to another folder."
        ) from None
    seconds = max(time.perf_counter() - started, 1e-9)
    log.info(
        "Encoded %d documents, %d sub-tokens, with %s in %.1f s: %.0f documents/s, %.0f sub-tokens/s.",
        *(corpus.num_documents, count, settings.name, seconds, corpus.num_documents / seconds, count / seconds),
    )


def _key(corpus: Corpus, settings: EncoderSettings, folder: Path) -> str:
    parts = {
        "format": FORMAT,
        "model": model_identity(folder),
        "transformers": importlib.metadata.version("transformers"),
        "text": corpus.fingerprint(),
        "layers": settings.layers,
        "document_vector": settings.document_vector,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def resolve_encoder(preferred: str) -> str:
    """``preferred`` where it can be had here, else ``minilm``, said in one line.

    :raises EncoderError: where neither can be had, saying what was tried and what to do.
    """
    if preferred == NONE:
        return preferred
    try:
        find_model(preferred)
    except EncoderError as error:
        if preferred == MINILM:
            raise
        try:
            find_model(MINILM)
        except EncoderError as second:
            raise EncoderError(f"{error} Nor is there minilm in its place: {second}") from None
        log.warning("The encoder %s cannot be had here; minilm takes its place.", preferred)
        return MINILM
    log.info("The encoder is %s.", preferred)
    return preferred
