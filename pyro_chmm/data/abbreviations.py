"""Abbreviations that a document defines: what an LF says of "chronic renal failure (CRF)", it says of every CRF.

Definitions are found as Schwartz and Hearst do (A simple algorithm for identifying abbreviation definitions in biomedical text,
Pacific Symposium on Biocomputing 2003): an abbreviation in parentheses, its characters in order in the words before them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.labels import ABSTAIN, Ids, O

#: An abbreviation has 2 to 10 characters; a tokenizer may make several tokens of it.
_CHARACTERS = range(2, 11)
_MOST_TOKENS = 4


@dataclass(frozen=True)
class Definition:
    """Where in its document an abbreviation is defined.

    :param long_form: the first of its tokens; the last is that before the parenthesis.
    :param start: the first token of the abbreviation, after the parenthesis.
    :param end: one past its last.
    """

    long_form: int
    start: int
    end: int


def definitions(words: Sequence[str]) -> Iterator[Definition]:
    """The abbreviations that a document defines, in its order."""
    for opening in (n for n, word in enumerate(words) if word == "(" and n > 0):
        inside = words[opening + 1 : opening + 2 + _MOST_TOKENS]
        if ")" not in inside:
            continue
        end = opening + 1 + inside.index(")")
        short = "".join(words[opening + 1 : end])
        if len(short) not in _CHARACTERS or not short[0].isalnum() or not any(map(str.isalpha, short)):
            continue
        before = max(0, opening - min(len(short) + 5, 2 * len(short)))
        first = _long_form(words[before:opening], short)
        if first is not None:
            yield Definition(before + first, opening + 1, end)


def _long_form(words: Sequence[str], short: str) -> int | None:
    """The word at which the long form starts: the abbreviation's letters and digits are in its text, from the right."""
    text = " ".join(words)
    at = len(text)
    for place, character in reversed(list(enumerate(short))):
        if not character.isalnum():
            continue
        at -= 1
        # the first character must start a word
        while at >= 0 and (text[at].lower() != character.lower() or (place == 0 and at > 0 and text[at - 1].isalnum())):
            at -= 1
        if at < 0:
            return None
    first = text.count(" ", 0, at)
    return None if short in words[first:] or len(text) - at <= len(short) else first


def carry_votes(corpus: Corpus) -> Corpus:
    """The corpus in which LFs also mark the abbreviations of what they marked.

    Where a span of an LF ends with the long form, every place in the document where the abbreviation stands, and where that LF
    marked nothing, gets a span of its type, coarse or not. An ``s`` may follow the abbreviation.
    """
    observed, known = np.array(corpus.observed_labels), len(corpus.label_set)
    changed = False
    for document, words in enumerate(corpus.tokens):
        labels = observed[corpus.document_slice(document)]
        for definition in definitions(words):
            changed |= _carry(words, labels, definition)
    if not changed:
        return corpus
    coarse = None if corpus.coarse_labels is None else np.where(observed < known, ABSTAIN, observed - known)
    return replace(corpus, weak_labels=np.where(observed < known, observed, ABSTAIN), coarse_labels=coarse)


def _carry(words: Sequence[str], labels: Ids, definition: Definition) -> bool:
    """Carry the votes ``(T, K)`` on one long form to its abbreviation; whether there were any."""
    last = labels[definition.start - 2]
    # ids are B-X odd, I-X the even one after it; a span that goes on into the parenthesis is another's
    lfs = np.flatnonzero((last > O) & (labels[definition.start - 1] != last + last % 2))
    if len(lfs) == 0:
        return False
    begins = last[lfs] - (last[lfs] % 2 == 0)
    for start, end in _occurrences(words, words[definition.start : definition.end]):
        free = (labels[start:end, lfs] <= O).all(axis=0)
        labels[start, lfs[free]] = begins[free]
        labels[start + 1 : end, lfs[free]] = begins[free] + 1
    return True


def _occurrences(words: Sequence[str], short: Sequence[str]) -> Iterator[tuple[int, int]]:
    size, stem = len(short), list(short[:-1])
    endings = (short[-1], short[-1] + "s")
    for start in range(len(words) - size + 1):
        if words[start + size - 1] in endings and list(words[start : start + size - 1]) == stem:
            yield start, start + size
