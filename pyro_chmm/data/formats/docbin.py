"""spaCy's DocBin, as skweak leaves it: the spans of each LF in ``doc.spans[lf]``, gold labels in ``doc.ents``.

An LF without a group of spans in a document abstains there; a group's attribute ``abstained`` lists single tokens. What spaCy has
no place for is in ``doc.user_data["pyro_chmm"]``: the document's name, the LFs, types and coarse labels. Labels that this package
found are in ``doc.ents`` and ``doc.spans["pyro_chmm"]``, their probabilities in ``doc.user_data["pyro_chmm_posterior"]``.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.formats import MAX_BYTES, Documents, collect_gold, read_bytes, replacing_path
from pyro_chmm.data.labels import ABSTAIN, Ids, LabelSet
from pyro_chmm.errors import DataError

if TYPE_CHECKING:
    from spacy.tokens import Doc

RESULT = "pyro_chmm"
"""Group of spans and key of ``user_data`` that are this package's."""
POSTERIOR = "pyro_chmm_posterior"


def read(path: Path) -> Documents:
    """Read a file; :class:`DataError` for one that is no DocBin, or where spaCy is not installed."""
    spacy = load_spacy()
    content = read_bytes(path)
    try:
        unpacked = zlib.decompressobj()
        unpacked.decompress(content, MAX_BYTES)
        if unpacked.unconsumed_tail:
            raise DataError(f"{path} unpacks to more than {MAX_BYTES:,} bytes; split it.")
        box = spacy.tokens.DocBin(store_user_data=True).from_bytes(content)
        if any(array.ndim != 2 or len(array) != len(spaces) for array, spaces in zip(box.tokens, box.spaces, strict=True)):
            raise ValueError("its arrays do not fit each other")
        documents = [_document(doc) for doc in box.get_docs(spacy.vocab.Vocab())]
    except DataError:
        raise
    except Exception as error:  # the parsers of spaCy and msgpack raise what they please on damaged bytes
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise DataError(f"{path} is not a DocBin that spaCy can read ({reason}); write it again with DocBin.to_disk.") from None
    return _documents(path, documents)


def load_spacy() -> Any:
    """The library; :class:`DataError` where it is not installed."""
    try:
        import spacy
    except ImportError:
        raise DataError('DocBin files need spaCy, which is not installed: pip install "pyro-chmm[spacy]".') from None
    return spacy


def _document(doc: Doc) -> dict[str, Any]:
    ours = doc.user_data.get(RESULT)
    ours = ours if isinstance(ours, dict) else {}
    columns = {name: _column(group, len(doc)) for name, group in doc.spans.items() if name != RESULT}
    has_gold = ours.get("gold", doc.has_annotation("ENT_IOB") if len(doc) else None)
    return {
        "tokens": [token.text for token in doc],
        "columns": columns,
        "gold": [[span.start, span.end, span.label_] for span in doc.ents] if has_gold else None,
        "has_gold": has_gold,
        **{key: ours.get(key) for key in ("id", "lfs", "types", "coarse")},
    }


def _column(group: Any, length: int) -> list[Any]:
    spans = [[span.start, span.end, span.label_] for span in group]
    abstained = group.attrs.get("abstained", ())
    if not abstained:
        return spans
    column: list[str | None] = ["O"] * length
    for start, end, kind in spans:
        column[start:end] = [f"B-{kind}", *[f"I-{kind}"] * (end - start - 1)]
    for place in abstained:
        column[place] = None
    return column


def _documents(path: Path, documents: list[dict[str, Any]]) -> Documents:
    first: dict[str, Any] = documents[0] if documents else {}
    lists = {key: _strings(first.get(key)) for key in ("lfs", "types", "coarse")}
    lfs = lists["lfs"] or tuple(dict.fromkeys(name for document in documents for name in document["columns"]))
    names = [document["id"] if isinstance(document["id"], str) else str(n) for n, document in enumerate(documents)]
    known = any(document["has_gold"] for document in documents)
    golds = [[] if known and not document["tokens"] else document["gold"] for document in documents]
    return Documents(
        path,
        names,
        [document["tokens"] for document in documents],
        [[document["columns"].get(lf) for lf in lfs] for document in documents],
        collect_gold(golds, names, path),
        lfs,
        lists["types"],
        lists["coarse"],
    )


def _strings(value: Any) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value) else ()


def write(path: Path, corpus: Corpus, posteriors: Sequence[NDArray[np.floating]] | None = None) -> None:
    """Write a corpus, in one step; with posteriors, its gold labels are those that this package found.

    :raises DataError: for an empty token or one without UTF-8, which spaCy cannot hold, or where spaCy is not installed.
    """
    spacy = load_spacy()
    vocab = spacy.vocab.Vocab()
    box = spacy.tokens.DocBin(store_user_data=True)
    for number in range(corpus.num_documents):
        doc = make_doc(corpus, number, vocab, path)
        span = corpus.document_slice(number)
        about: dict[str, Any] = {"id": corpus.document_ids[number], "gold": corpus.gold is not None}
        if number == 0:
            about |= {"lfs": corpus.lf_names, "types": corpus.label_set.entity_types, "coarse": corpus.coarse_types}
        doc.user_data[RESULT] = about
        for place, lf in enumerate(corpus.lf_names):
            _add_group(doc, lf, corpus.observed_labels[span, place], corpus.observed_set)
        if corpus.gold is not None:
            doc.set_ents(make_spans(doc, corpus.gold[span], corpus.label_set))
        if posteriors is not None:
            doc.spans[RESULT] = list(doc.ents)
            doc.user_data[POSTERIOR] = np.asarray(posteriors[number], np.float64).round(6).tolist()
        box.add(doc)
    with replacing_path(path) as temporary:
        temporary.write_bytes(box.to_bytes())


def make_doc(corpus: Corpus, number: int, vocab: Any, path: Path) -> Doc:
    """The tokens of a document as spaCy has them; :class:`DataError` for a token that it cannot hold."""
    spacy = load_spacy()
    try:
        doc: Doc = spacy.tokens.Doc(vocab, words=list(corpus.tokens[number]))
    except (ValueError, UnicodeError):
        wrong = next(place for place, token in enumerate(corpus.tokens[number]) if not token or not _has_utf8(token))
        raise DataError(
            f"{path}: document {corpus.document_ids[number]!r}, token {wrong}: spaCy has no token "
            f"{corpus.tokens[number][wrong]!r}; write JSON lines."
        ) from None
    return doc


def _has_utf8(token: str) -> bool:
    try:
        token.encode()
    except UnicodeEncodeError:
        return False
    return True


def _add_group(doc: Doc, lf: str, ids: Ids, label_set: LabelSet) -> None:
    spacy = load_spacy()
    abstained = np.flatnonzero(ids == ABSTAIN).tolist()
    if len(ids) and len(abstained) == len(ids):
        return
    attributes = {"abstained": abstained} if abstained else {}
    doc.spans[lf] = spacy.tokens.SpanGroup(doc, name=lf, spans=make_spans(doc, ids, label_set), attrs=attributes)


def make_spans(doc: Doc, ids: NDArray[np.integer], label_set: LabelSet) -> list[Any]:
    """The spans of BIO label ids as spaCy has them."""
    spacy = load_spacy()
    return [spacy.tokens.Span(doc, start, end, label=kind) for start, end, kind in label_set.decode_spans(ids)]
