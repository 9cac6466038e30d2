"""The LF table: by hand, and tables 6 to 9 of the paper to the digit."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from pyro_chmm.data.corpus import Corpus, CorpusSplits
from pyro_chmm.inspection.lf_table import lf_table


def test_three_tokens_by_hand() -> None:
    """skweak#13: "hard drive fails"; two LFs differ about a boundary, two about the type."""
    corpus = Corpus.from_spans(
        [["hard", "drive", "fails"]],
        [[[(0, 2, "PART")], [(1, 2, "PART")], [(1, 3, "FAULT")], None]],
        ["PART", "FAULT"],
        ["long", "short", "fault", "silent"],
        [[(0, 2, "PART")]],
    )
    table = lf_table(corpus)
    third = 100 / 3
    expected = {
        #         precision, recall, f1, spans, coverage, overlaps, within, between
        "long": (100, 100, 100, 1, 2 * third, third, third, third),
        "short": (0, 0, 0, 1, third, third, third, third),
        "fault": (0, 0, 0, 1, 2 * third, third, 0, third),
        "silent": (0, 0, 0, 0, 0, 0, 0, 0),
    }
    assert [row.name for row in table.rows] == list(expected)
    for row in table.rows:
        assert tuple(vars(row).values())[1:] == pytest.approx(expected[row.name])
    assert (table.documents, table.tokens, table.coverage) == (1, 3, 100)


def test_a_boundary_counts_where_both_fire_even_if_both_begin_there() -> None:
    corpus = Corpus.from_spans(
        [["a", "b"]], [[[(0, 2, "X")], [(0, 1, "X")], [(0, 1, "X")]]], ["X"], list("pqr")
    )
    rows = lf_table(corpus).rows
    assert [row.conflicts_within_type for row in rows] == [50, 50, 50]
    assert [row.overlaps for row in rows] == [50, 50, 50]
    assert [row.coverage for row in rows] == [100, 50, 50]
    assert [row.conflicts_between_types for row in rows] == [0, 0, 0]


def test_lfs_that_agree_are_in_no_conflict() -> None:
    spans = [(0, 2, "X"), (2, 3, "Y")]
    rows = lf_table(Corpus.from_spans([["a", "b", "c"]], [[spans, spans]], ["X", "Y"], list("pq"))).rows
    for row in rows:
        assert (row.coverage, row.overlaps, row.conflicts_within_type, row.conflicts_between_types) == (
            100,
            100,
            0,
            0,
        )


def test_spans_of_different_documents_never_meet() -> None:
    corpus = Corpus.from_spans([["a"], ["b"]], [[[(0, 1, "X")], []], [[], [(0, 1, "X")]]], ["X"], list("pq"))
    assert [row.overlaps for row in lf_table(corpus).rows] == [0, 0]


def test_no_gold_no_tokens_no_lfs(tiny: Corpus) -> None:
    assert {row.f1 for row in lf_table(tiny.without_gold()).rows} == {None}
    empty = lf_table(tiny.select_documents([1]))
    assert [(row.spans, row.coverage, row.f1) for row in empty.rows] == [(0, 0, 0)] * 3
    assert lf_table(Corpus.from_spans([["a"]], [[]], ["X"], [])).rows == ()


def test_plain_values_for_json(tiny: Corpus) -> None:
    record = json.loads(json.dumps(lf_table(tiny).to_dict()))
    assert list(record) == ["documents", "tokens", "coverage", "lfs"]
    assert record["lfs"][2] == {
        "name": "c",
        "precision": 0.0,
        "recall": 0.0,
        "f1": 0.0,
        "spans": 0,
        "coverage": 0.0,
        "overlaps": 0.0,
        "conflicts_within_type": 0.0,
        "conflicts_between_types": 0.0,
    }


TABLE_6 = """
BTC	67.26	44.56	53.61
corewebmd	70.52	58.27	63.81
crunchbasecased	37.76	6.69	11.37
crunchbaseuncased	32.75	7.31	11.96
fullnamedetector	84.63	11.60	20.40
geocased	67.99	16.63	26.72
geouncased	64.35	20.20	30.75
miscdetector	85.26	20.68	33.29
multitokencrunchbasecased	72.73	3.40	6.50
multitokencrunchbaseuncased	71.22	3.51	6.68
multitokengeocased	72.06	1.74	3.39
multitokengeouncased	66.83	2.35	4.55
multitokenwikicased	94.36	16.01	27.37
multitokenwikiuncased	90.55	16.63	28.09
wikicased	75.62	35.48	48.30
wikiuncased	71.50	38.95	50.43
"""
TABLE_7 = """
tag-CoreDictionaryUncased	80.99	41.39	54.79
tag-CoreDictionaryExact	80.69	17.21	28.37
tag-CancerLike	34.88	1.58	3.03
tag-BodyTerms	68.52	3.91	7.39
link-ExtractedPhrase	96.88	36.11	52.62
"""
TABLE_8 = """
tag-DictCore-Chemical	93.24	29.68	45.03
tag-DictCore-Chemical-Exact	89.55	3.26	6.29
tag-DictCore-Disease	84.19	26.91	40.78
tag-DictCore-Disease-Exact	81.40	1.08	2.13
tag-Organic Chemical	94.06	30.17	45.68
tag-Antibiotic	97.88	2.38	4.64
tag-Disease or Syndrome	79.01	11.81	20.55
link-PostHyphen	86.24	7.93	14.53
link-ExtractedPhrase	87.21	17.88	29.68
"""
TABLE_9 = """
tag-CoreDictionary	72.63	51.61	60.34
link-ExtractedPhrase	97.46	29.40	45.18
link-ConsecutiveCapitals	35.29	0.92	1.79
"""


@pytest.mark.parametrize(
    ("name", "published"), [("conll", TABLE_6), ("ncbi", TABLE_7), ("bc5cdr", TABLE_8), ("laptop", TABLE_9)]
)
def test_the_tables_of_the_paper(wrench: Callable[[str], CorpusSplits], name: str, published: str) -> None:
    rows = lf_table(wrench(name).test).rows
    found = [f"{r.name.replace('_', '')}\t{r.precision:.2f}\t{r.recall:.2f}\t{r.f1:.2f}" for r in rows]
    assert found == published.strip().splitlines()


def test_an_lf_that_never_fires_has_zeros(wrench: Callable[[str], CorpusSplits]) -> None:
    rows = {row.name: row for row in lf_table(wrench("ontonotes").valid).rows}
    silent = rows["money_detector"]
    assert (silent.spans, silent.coverage, silent.precision, silent.f1) == (0, 0.0, 0.0, 0.0)
    for row in rows.values():
        assert row.coverage >= row.overlaps >= max(row.conflicts_within_type, row.conflicts_between_types)
