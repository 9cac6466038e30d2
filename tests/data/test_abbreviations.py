"""Abbreviations that a document defines, and the votes that are carried to them."""

import numpy as np
import pytest

from pyro_chmm import SparseCHMM
from pyro_chmm.data.abbreviations import Definition, carry_votes, definitions
from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.labels import Span


@pytest.mark.parametrize(
    ("text", "long_form", "short"),
    [
        ("the chronic renal failure ( CRF ) of rats", "chronic renal failure", "CRF"),
        ("a heparin-induced thrombocytopenia ( HIT ) was", "heparin-induced thrombocytopenia", "HIT"),
        ("Parkinson 's disease ( PD )", "Parkinson 's disease", "PD"),
        ("with 5 - hydroxytryptamine ( 5 - HT )", "5 - hydroxytryptamine", "5 - HT"),
        ("angiotensin converting enzyme inhibitors ( ACEIs )", "angiotensin converting enzyme inhibitors", "ACEIs"),
    ],
)
def test_definitions_are_found_with_their_long_forms(text: str, long_form: str, short: str) -> None:
    words = text.split()
    (found,) = definitions(words)
    assert " ".join(words[found.long_form : found.start - 1]) == long_form
    assert " ".join(words[found.start : found.end]) == short


@pytest.mark.parametrize(
    "text",
    [
        "renal failure ( rats )",  # no r, a, t, s in order at the start of a word
        "( CRF ) is renal failure",
        "in a group ( 20 ) of them",
        "failure ( of the renal and hepatic kind )",
        "chronic renal failure ( C",
        "ends with (",
        "chronic renal failure ( )",
        "chronic renal failure ( C )",
        "the CRF chronic renal failure of CRF ( CRF )",
        "",
    ],
)
def test_other_parentheses_define_nothing(text: str) -> None:
    assert list(definitions(text.split())) == []


def test_every_definition_of_a_document_is_found_in_order() -> None:
    words = ["renal", "failure", "(", "RF", ")", "and", "liver", "failure", "(", "LF", ")"]
    assert list(definitions(words)) == [Definition(0, 3, 4), Definition(6, 9, 10)]


def test_characters_that_grow_in_lower_case_do_not_shift_places() -> None:
    words = ["İİİ", "İstanbul", "agency", "(", "IA", ")", "and", "renal", "failure", "(", "RF", ")"]
    assert [words[found.start] for found in definitions(words)][-1:] == ["RF"]


TEXT = ["renal", "failure", "(", "RF", ")", ".", "In", "RF", ",", "RFs", "and", "RF1", "the", "drug", "RF"]


def carried(*spans: list[Span] | None, tokens: list[str] = TEXT, coarse: tuple[str, ...] = ()) -> list[list[Span]]:
    corpus = Corpus.from_spans(
        [tokens], [list(spans)], ["Disease", "Drug"], [f"lf{place}" for place in range(len(spans))], coarse_types=coarse
    )
    found = carry_votes(corpus)
    return [found.observed_set.decode_spans(labels) for labels in found.observed_labels.T]


def test_a_vote_on_the_long_form_is_one_on_every_abbreviation() -> None:
    assert carried([(0, 2, "Disease")]) == [[(a, b, "Disease") for a, b in [(0, 2), (3, 4), (7, 8), (9, 10), (14, 15)]]]


def test_a_vote_on_the_end_of_the_long_form_is_enough() -> None:
    assert (3, 4, "Disease") in carried([(1, 2, "Disease")])[0]


def test_votes_elsewhere_are_not_carried() -> None:
    for spans in ([(0, 1, "Disease")], [(0, 3, "Disease")], [(3, 4, "Disease")], [], None):
        before = [] if spans is None else spans
        assert carried(spans) == [before]


def test_what_an_lf_says_itself_stays() -> None:
    (found,) = carried([(0, 2, "Disease"), (13, 15, "Drug")])
    assert (13, 15, "Drug") in found
    assert (7, 8, "Disease") in found


def test_each_lf_carries_its_own_vote() -> None:
    first, second, third = carried([(0, 2, "Disease")], [(1, 2, "Drug")], [])
    assert (7, 8, "Disease") in first
    assert (7, 8, "Drug") in second
    assert third == []


def test_an_abbreviation_of_several_tokens_is_one_span() -> None:
    words = ["hydroxy", "tryptamine", "(", "H", "-", "T", ")", ".", "H", "-", "T", "again"]
    assert carried([(0, 2, "Drug")], tokens=words) == [[(0, 2, "Drug"), (3, 6, "Drug"), (8, 11, "Drug")]]


def test_coarse_votes_are_carried_too_and_keep_to_themselves() -> None:
    coarse, fine = carried([(0, 2, "ENT")], [(0, 2, "Disease"), (7, 8, "ENT")], coarse=("ENT",))
    assert (7, 8, "ENT") in coarse
    assert (7, 8, "ENT") in fine
    assert (14, 15, "Disease") in fine


def test_abstentions_become_votes_and_gold_stays() -> None:
    corpus = Corpus.from_spans([TEXT], [[[(0, 2, "Drug")]]], ["Drug"], ["lf"], gold_spans=[[(0, 2, "Drug")]])
    abstaining = np.where(corpus.weak_labels == 0, -1, corpus.weak_labels)
    found = carry_votes(Corpus(corpus.label_set, corpus.lf_names, corpus.tokens, corpus.offsets, abstaining, corpus.gold, ("0",)))
    assert found.weak_labels[[3, 7, 9, 14], 0].tolist() == [1, 1, 1, 1]
    assert found.weak_labels[4, 0] == -1
    assert found.gold is not None
    np.testing.assert_array_equal(found.gold, corpus.gold)


def test_a_corpus_without_definitions_is_returned_as_it_is() -> None:
    corpus = Corpus.from_spans([["renal", "failure"]], [[[(0, 2, "Drug")]]], ["Drug"], ["lf"])
    assert carry_votes(corpus) is corpus


def test_the_model_finds_abbreviations_that_no_lf_knows_and_says_why() -> None:
    sentences = [TEXT, ["no", "drug", "here"], ["liver", "failure", "is", "bad"]] * 10
    spans = [[[(0, 2, "Disease")], []], [[], [(1, 2, "Disease")]], [[(0, 2, "Disease")], []]] * 10
    corpus = Corpus.from_spans(sentences, spans, ["Disease"], ["dictionary", "other"])
    settings = {"encoder": "none", "epochs_stage1": 3, "epochs_stage2": 0, "epochs_stage3": 0}
    with_them, without = (SparseCHMM(abbreviations=on, **settings).fit(corpus) for on in (True, False))
    assert [with_them.predict(corpus)[0][n] for n in (0, 1, 7, 14)] == ["B-Disease", "I-Disease", "B-Disease", "B-Disease"]
    assert [without.predict(corpus)[0][n] for n in (7, 14)] == ["O", "O"]
    votes = with_them.explain(corpus, 0, 7).votes
    assert [(vote.label, vote.carried) for vote in votes] == [("B-Disease", True), ("O", False)]
