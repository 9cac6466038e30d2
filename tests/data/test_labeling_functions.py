"""Labeling functions in Python, by hand-counted examples."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import pyro_chmm
from pyro_chmm.errors import DataError


@pyro_chmm.labeling_function()
def titles(tokens: Sequence[str]) -> list[tuple[int, int, str]] | None:
    return None if not tokens else [(i, i + 1, "PER") for i, token in enumerate(tokens) if token.istitle()]


def test_lfs_make_a_corpus() -> None:
    cities = pyro_chmm.dictionary_matcher("cities", {"LOC": ["new york", "York"]}, ignore_case=True)
    years = pyro_chmm.regex_matcher("years", r"\b\d{4}(?: to \d{4})?\b", "YEAR")
    documents = [["New", "York", "1990", "to", "1991"], [], ["x1990"]]
    corpus = pyro_chmm.apply_lfs(documents, [titles, cities, years], entity_types=["PER", "LOC", "YEAR"])
    assert corpus.lf_names == ("titles", "cities", "years")
    names = [[corpus.label_set.names[id] for id in row] for row in corpus.weak_labels.T]
    assert names == [
        ["B-PER", "B-PER", "O", "O", "O", "O"],
        ["B-LOC", "I-LOC", "O", "O", "O", "O"],
        ["O", "O", "B-YEAR", "I-YEAR", "I-YEAR", "O"],
    ]
    assert corpus.num_documents == 3


def test_an_lf_may_abstain_and_be_coarse() -> None:
    quiet = pyro_chmm.labeling_function("quiet")(lambda tokens: None)
    some = pyro_chmm.regex_matcher("some", "a", "ENT")
    corpus = pyro_chmm.apply_lfs([["bab", "b"]], [quiet, some], entity_types=["X"], coarse_types=["ENT"])
    assert corpus.observed_labels.tolist() == [[-1, 3], [-1, 0]]


def test_what_lfs_do_wrong_is_said() -> None:
    bad = pyro_chmm.labeling_function("bad")(lambda tokens: [(0, 1, tokens[5])] if tokens else [])
    far = pyro_chmm.labeling_function("far")(lambda tokens: [(0, 9, "X")])
    with pytest.raises(DataError, match="'bad' failed on document number 1: IndexError"):
        pyro_chmm.apply_lfs([[], ["a"]], [bad], entity_types=["X"])
    with pytest.raises(DataError, match="LF 'far': the span"):
        pyro_chmm.apply_lfs([["a"]], [far], entity_types=["X"])
    with pytest.raises(DataError, match="no labeling function"):
        pyro_chmm.apply_lfs([["a"]], [len], entity_types=["X"])  # type: ignore[list-item]
    with pytest.raises(DataError, match="is in A and in B"):
        pyro_chmm.dictionary_matcher("d", {"A": ["x"], "B": ["x"]})
    with pytest.raises(DataError, match="has no token"):
        pyro_chmm.dictionary_matcher("d", {"A": [" "]})
    with pytest.raises(DataError, match="no regular expression"):
        pyro_chmm.regex_matcher("r", "(", "A")
