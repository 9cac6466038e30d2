"""The best consensus: by hand, and the published figures to the digit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyro_chmm.data.corpus import Corpus, CorpusSplits
from pyro_chmm.errors import DataError
from pyro_chmm.label_models.best_consensus import best_consensus, best_consensus_ids


def test_the_gold_label_wins_where_an_lf_says_it(tiny: Corpus) -> None:
    assert best_consensus_ids(tiny.select_lfs(["b", "c"])).tolist() == [1, 0, 0, 0, 0, 0]
    assert best_consensus(tiny).f1 == 100.0
    # one LF knows how a name begins, the other how it goes on: by token, together, they know it
    corpus = Corpus.from_spans(
        [["w", "w"]], [[[(0, 1, "X")], ["O", "I-X"]]], ["X"], ["a", "b"], [[(0, 2, "X")]]
    )
    assert best_consensus_ids(corpus).tolist() == [1, 0]  # a stray I-X is read as B-X


def test_abstentions_are_no_opinion_and_gold_is_needed(tiny: Corpus) -> None:
    assert best_consensus_ids(tiny.select_lfs(["c"])).tolist() == [0] * 6
    for function in (best_consensus, best_consensus_ids):
        with pytest.raises(DataError, match="the corpus has none"):
            function(tiny.without_gold())


@pytest.mark.parametrize(
    ("name", "f1", "precision", "recall"),
    [
        ("laptop", 77.60, 100.0, 63.40),
        ("ncbi", 81.65, 99.85, 69.06),
        ("bc5cdr", 88.42, 99.86, 79.33),
        ("conll", 86.73, 98.62, 77.39),
    ],
)
def test_the_published_figures(
    wrench: Callable[[str], CorpusSplits], name: str, f1: float, precision: float, recall: float
) -> None:
    found = best_consensus(wrench(name).test)
    assert (round(found.f1, 2), round(found.precision, 2), round(found.recall, 2)) == (f1, precision, recall)
