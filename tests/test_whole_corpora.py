"""Whole corpora of every kind: fit, predict, save, load and predict again give finite, normalised, equal results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyro_chmm import Corpus, SparseCHMM, load_dataset

SHORT: dict[str, Any] = {
    "encoder": "none",
    "select": "evidence",
    "epochs_stage1": 1,
    "epochs_stage2": 1,
    "epochs_stage3": 1,
    "verify": False,
}
ANNA, OSLO = (0, 1, "T0"), (1, 2, "T1")


def corpus(documents: list[list[str]], spans: list[list[Any]], types: int = 2) -> Corpus:
    names = [f"T{number}" for number in range(types)]
    return Corpus.from_spans(documents, spans, names, [f"lf{number}" for number in range(len(spans[0]))])


CORPORA: dict[str, Corpus] = {
    "one token": corpus([["a"]], [[[ANNA], []]]),
    "empty documents between": corpus([[], ["a", "b"], []], [[[], []], [[ANNA], [OSLO]], [[], []]]),
    "silent LF": corpus([["a", "b"]] * 3, [[[ANNA], []]] * 3),
    "all abstain": corpus([["a", "b"]] * 3, [[None, None]] * 3),
    "an LF abstains everywhere": corpus([["a", "b"]] * 3, [[[ANNA], None]] * 3),
    "nobody labels the middle one": corpus([["a", "b"], ["c"], ["a"]], [[[ANNA], []], [[], []], [[ANNA], []]]),
    "one span in all": corpus([["a", "b"]] * 5, [[[ANNA], [], [], [], []]] + [[[]] * 5] * 4),
    "identical LFs": corpus([["a", "b"]] * 3, [[[ANNA], [ANNA], [ANNA]]] * 3),
    "one LF": corpus([["a", "b"]] * 3, [[[ANNA]]] * 3),
    "labels everything": corpus([["a", "b"]] * 3, [[[(0, 2, "T0")], []]] * 3),
    "60 LFs": corpus([["a", "b"]] * 3, [[[ANNA]] * 30 + [[OSLO]] * 30] * 3),
    "40 types": corpus([["a", "b"]] * 3, [[[(0, 1, "T39")], [OSLO]]] * 3, types=40),
    "3,000 tokens": corpus([["a"] * 3000], [[[(7, 9, "T0")], [(7, 9, "T1")]]]),
    "rare characters": corpus([["\u200b", "\ud800", "", " ", "\U0001f600", "\U000e0001", "\ufeff"]], [[[ANNA], [OSLO]]]),
}


def check(data: Corpus, folder: Path) -> None:
    model = SparseCHMM(**SHORT).fit(data)
    labels, posteriors = model.predict_ids(data), model.predict_proba(data)
    assert [len(part) for part in posteriors] == np.diff(data.offsets).tolist()
    assert all(np.isfinite(record.loss) for record in model.history_)
    for part in posteriors:
        assert np.isfinite(part).all()
        np.testing.assert_allclose(part.sum(axis=-1), 1, atol=1e-5)
    model.save(folder)
    again = SparseCHMM.load(folder)
    np.testing.assert_array_equal(again.predict_ids(data), labels)
    for part, other in zip(again.predict_proba(data), posteriors, strict=True):
        np.testing.assert_array_equal(part, other)
    # neither the order of the documents nor who is labelled beside them matters
    order = np.arange(data.num_documents)[::-1]
    turned = again.predict_proba(data.select_documents(order))
    for number, part in zip(order, turned, strict=True):
        np.testing.assert_allclose(part, posteriors[number], atol=1e-5)
    for number in range(min(data.num_documents, 3)):
        alone = again.predict_proba(data.select_documents(np.array([number])))
        np.testing.assert_allclose(alone[0], posteriors[number], atol=1e-5)
    reference = SparseCHMM.load(folder)
    reference.config = reference.config.updated({"backend": "reference"})
    if data.num_tokens < 100:
        for part, other in zip(reference.predict_proba(data), posteriors, strict=True):
            np.testing.assert_allclose(part, other, atol=1e-5)


@pytest.mark.parametrize("kind", CORPORA)
def test_corpora_by_hand(kind: str, tmp_path: Path) -> None:
    check(CORPORA[kind], tmp_path)


@st.composite
def drawn(draw: st.DrawFn) -> Corpus:
    lfs, types = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    documents = draw(st.lists(st.lists(st.text(max_size=3), max_size=4), min_size=1, max_size=5).filter(any))

    def spans(length: int) -> Any:
        places = st.tuples(st.integers(0, max(length - 1, 0)), st.integers(1, 3), st.integers(0, types - 1))
        found = st.lists(places, max_size=2 if length else 0)
        return st.none() | found.map(lambda list_: [(s, min(s + n, length), f"T{kind}") for s, n, kind in list_])

    return corpus(documents, [[draw(spans(len(tokens))) for _ in range(lfs)] for tokens in documents], types)


@pytest.mark.filterwarnings("ignore:.*overlapping")
def test_corpora_drawn(tmp_path: Path) -> None:
    @settings(
        max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
    )
    @given(drawn())
    def run(data: Corpus) -> None:
        check(data, tmp_path)

    run()


def check_order_of_lfs(data: Corpus, order: list[int]) -> None:
    """Training sees the same evidence, and ends with the same, whatever the order of the LFs."""
    turned = data.select_lfs([data.lf_names[number] for number in order])
    first, second = (SparseCHMM(**SHORT, sample_emission=False) for _ in range(2))
    first.fit(data), second.fit(turned)
    for one, other in zip(first.history_, second.history_, strict=True):
        assert one.evidence == pytest.approx(other.evidence, rel=1e-4, abs=1e-5)
    assert first.evidence(data) == pytest.approx(second.evidence(turned), rel=1e-4, abs=1e-4)


@pytest.mark.filterwarnings("ignore:.*overlapping")
def test_the_evidence_does_not_depend_on_the_order_of_lfs() -> None:
    @settings(
        max_examples=10, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
    )
    @given(st.data())
    def run(choices: st.DataObject) -> None:
        data = choices.draw(drawn())
        check_order_of_lfs(data, choices.draw(st.permutations(range(data.num_lfs))))

    run()
    demo = load_dataset("demo").valid
    check_order_of_lfs(demo, [2, 0, 1, *range(demo.num_lfs - 1, 2, -1)])


def test_byte_order_marks_and_line_ends(tmp_path: Path) -> None:
    line = json.dumps({"tokens": ["Anna", "\ud800"], "weak_labels": {"a": [[0, 1, "PER"]]}})  # no ids: numbered
    (tmp_path / "x.jsonl").write_bytes(b"\xef\xbb\xbf" + line.encode() + b"\r\n\r\n" + line.encode() + b"\r\n")
    assert load_dataset(tmp_path / "x.jsonl").train.tokens == (("Anna", "\ud800"),) * 2
