"""Labels for the training of a tagger: what a model found, hard or with probabilities, without what it is not sure of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.formats import conll, docbin, huggingface, replacing_path
from pyro_chmm.data.labels import ABSTAIN, find_spans
from pyro_chmm.errors import ConfigError

IGNORED = -100
"""What losses of torch leave out: the number of a token that the model is not sure of, in Hugging Face's ``ner_tags``."""

Posteriors = Sequence[NDArray[np.floating]]


def unsure_tokens(
    corpus: Corpus, ids: NDArray[np.integer], posteriors: Posteriors, min_confidence: float
) -> NDArray[np.bool_]:
    """(N,) bool: tokens whose label has less than ``min_confidence``, and all others of their entities: half an entity is wrong."""
    packed = np.concatenate([np.zeros((0, len(corpus.label_set))), *posteriors])
    unsure = packed[np.arange(len(ids)), ids] < min_confidence
    found = find_spans(ids, corpus.offsets)
    for start, end in zip(found.start.tolist(), found.end.tolist(), strict=True):
        unsure[start:end] = unsure[start:end].any()
    result: NDArray[np.bool_] = unsure
    return result


def export(
    path: Path,
    corpus: Corpus,
    ids: NDArray[np.integer],
    posteriors: Posteriors,
    to: str,
    *,
    soft: bool = False,
    min_confidence: float = 0.0,
) -> int:
    """Write what a tagger is trained on.

    * ``spacy``: a DocBin for ``spacy train``, with ``doc.ents``; unsure tokens are missing values. ``soft``: the probabilities
      are in ``doc.user_data``.
    * ``hf``: a data set in a folder: ``tokens``, ``ner_tags`` (-100 where unsure), and ``soft`` ``soft_labels``.
    * ``conll``: token and label, ``-`` where unsure, and ``soft`` the probabilities, as more columns.

    :param ids: (N,) labels.
    :param posteriors: for each document (T, L) probabilities.
    :param min_confidence: a token whose label is less probable is left out, with the entity that it belongs to.
    :returns: how many tokens were left out.
    :raises ConfigError: for another target, or a bound outside 0 to 1.
    :raises DataError: for tokens that the format cannot hold.
    """
    writers: dict[str, Callable[[Path, Corpus, NDArray[np.int16], Posteriors | None], None]] = {
        "spacy": _to_spacy,
        "hf": _to_hf,
        "conll": _to_conll,
    }
    if to not in writers:
        raise ConfigError(f"There is no export to {to!r}; expected {', '.join(writers)}.")
    if not 0 <= min_confidence <= 1:
        raise ConfigError(f"The least confidence is {min_confidence}; expected a number from 0 to 1.")
    unsure = unsure_tokens(corpus, ids, posteriors, min_confidence)
    labels = np.where(unsure, ABSTAIN, ids).astype(np.int16)
    writers[to](path, corpus, labels, posteriors if soft else None)
    return int(unsure.sum())


def _to_spacy(path: Path, corpus: Corpus, labels: NDArray[np.int16], posteriors: Posteriors | None) -> None:
    spacy = docbin.load_spacy()
    vocab = spacy.vocab.Vocab()
    box = spacy.tokens.DocBin(store_user_data=posteriors is not None)
    for number in range(corpus.num_documents):
        doc = docbin.make_doc(corpus, number, vocab, path)
        ids = labels[corpus.document_slice(number)]
        missing = [spacy.tokens.Span(doc, place, place + 1) for place in np.flatnonzero(ids == ABSTAIN).tolist()]
        doc.set_ents(docbin.make_spans(doc, ids, corpus.label_set), missing=missing, default="outside")
        if posteriors is not None:
            doc.user_data[docbin.POSTERIOR] = np.asarray(posteriors[number], np.float64).round(6).tolist()
        box.add(doc)
    with replacing_path(path) as temporary:
        temporary.write_bytes(box.to_bytes())


def _to_hf(path: Path, corpus: Corpus, labels: NDArray[np.int16], posteriors: Posteriors | None) -> None:
    numbers = np.where(labels == ABSTAIN, IGNORED, labels).tolist()
    slices = [corpus.document_slice(number) for number in range(corpus.num_documents)]
    columns: dict[str, list[object]] = {
        "id": list(corpus.document_ids),
        "tokens": [list(document) for document in corpus.tokens],
        "ner_tags": [numbers[span] for span in slices],
    }
    if posteriors is not None:
        columns["soft_labels"] = [np.asarray(part, np.float32).tolist() for part in posteriors]
    huggingface.save_tagged(path, columns, corpus.label_set)


def _to_conll(path: Path, corpus: Corpus, labels: NDArray[np.int16], posteriors: Posteriors | None) -> None:
    """The labels as those of one LF, which may abstain."""
    column = Corpus(
        corpus.label_set, ("label",), corpus.tokens, corpus.offsets, labels[:, None], None, corpus.document_ids
    )
    conll.write(path, column, posteriors)
