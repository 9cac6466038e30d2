"""Packed batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from pyro_chmm.data.batching import OWeights, PackedCorpus, TokenVectors
from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.encoder import EncoderSettings, Vectors
from pyro_chmm.data.ngrams import WithNGrams
from pyro_chmm.errors import DataError

LENGTHS = [3, 0, 1, 4]


@pytest.fixture
def packed() -> PackedCorpus:
    corpus = Corpus.from_spans(
        tokens=[[f"{m}.{t}" for t in range(length)] for m, length in enumerate(LENGTHS)],
        weak_spans=[[[(0, 2, "X")], []], [[], []], [[], [(0, 1, "X")]], [[], []]],
        entity_types=["X"],
        lf_names=["first", "second"],
    )
    tokens = np.arange(8 * 2, dtype=np.float16).reshape(8, 2)
    documents = np.arange(4, dtype=np.float16).reshape(4, 1)
    return PackedCorpus(corpus, Vectors(tokens, documents, EncoderSettings("none"), cached=False), OWeights())


def test_a_batch_holds_the_documents_asked_for(packed: PackedCorpus) -> None:
    batch = packed.batch(np.array([0, 2, 3]))
    assert batch.offsets.tolist() == [0, 3, 4, 8]
    assert batch.document_index.tolist() == [0, 0, 0, 1, 2, 2, 2, 2]
    assert batch.lengths.tolist() == [3, 1, 4]
    assert batch.num_documents == 3
    assert batch.token_vectors[:, 0].tolist() == [0, 2, 4, 6, 8, 10, 12, 14]
    assert batch.token_vectors.dtype == torch.float32
    assert batch.document_vectors[:, 0].tolist() == [0, 2, 3]
    assert batch.weak_labels.tolist() == [[1, 0], [2, 0], [0, 0], [0, 1], *[[0, 0]] * 4]


def test_a_batch_out_of_order_equals_its_documents_alone(packed: PackedCorpus) -> None:
    both = packed.batch(np.array([3, 0]))
    first = both.token_vectors.clone()
    alone = [packed.batch(np.array([m])) for m in (3, 0)]
    assert torch.equal(first, torch.cat([part.token_vectors for part in alone]))
    assert torch.equal(both.weak_labels, torch.cat([part.weak_labels for part in alone]))
    assert torch.equal(both.weight, torch.cat([part.weight for part in alone]))


def test_shuffled_batches_hold_every_occupied_document_once(packed: PackedCorpus) -> None:
    batches = list(packed.shuffled(2, 1000, torch.Generator().manual_seed(0)))
    assert [batch.num_documents for batch in batches] == [2, 1]
    assert sorted(torch.cat([batch.documents for batch in batches]).tolist()) == [0, 2, 3]


@pytest.mark.parametrize("max_tokens", [1, 3, 4, 100])
def test_batches_in_order_hold_every_document(packed: PackedCorpus, max_tokens: int) -> None:
    batches = list(packed.in_order(max_tokens))
    assert torch.cat([batch.documents for batch in batches]).tolist() == [0, 1, 2, 3]
    assert all(len(batch.weak_labels) <= max_tokens or batch.num_documents == 1 for batch in batches)


def test_what_an_o_counts() -> None:
    weak_labels = np.array([[0, 0, -1], [0, 0, 0], [0, 1, -1], [2, 0, 0], [0, 0, 0]], np.int16)
    weights = OWeights(contested=0.25, silent=0.5, beside=2.0)
    # the last token is of another document: nobody fires beside it
    found = weights.of(weak_labels, np.array([0, 4, 4, 5]))
    assert found.tolist() == [[0.5, 0.5, 0], [2, 2, 2], [0.25, 1, 0], [1, 0.25, 0.25], [0.5, 0.5, 0.5]]
    assert found.dtype == np.float32
    assert weights.of(weak_labels[:0], np.array([0, 0])).shape == (0, 3)


def test_weights_can_be_changed(packed: PackedCorpus) -> None:
    before, weights = packed.weight.copy(), OWeights(0.25, 0.5, 2.0)
    packed.reweigh(weights)
    expected = weights.of(packed.corpus.weak_labels, packed.corpus.offsets)
    assert not np.array_equal(before, expected)
    offsets = packed.corpus.offsets
    rows = np.concatenate([np.arange(offsets[m], offsets[m + 1]) for m in (2, 0)])
    np.testing.assert_array_equal(packed.batch(np.array([2, 0])).weight.numpy(), expected[rows])


@pytest.mark.parametrize("batch_tokens", [1, 2, 4, 100])
def test_shuffled_batches_hold_few_tokens(packed: PackedCorpus, batch_tokens: int) -> None:
    batches = list(packed.shuffled(2, batch_tokens, torch.Generator().manual_seed(0)))
    assert sorted(torch.cat([batch.documents for batch in batches]).tolist()) == [0, 2, 3]
    assert all(batch.num_documents <= 2 for batch in batches)
    assert all(len(batch.weak_labels) <= batch_tokens or batch.num_documents == 1 for batch in batches)


def test_vectors_of_another_corpus_are_refused(packed: PackedCorpus) -> None:
    wrong = Vectors(
        np.zeros((7, 2), np.float16), np.zeros((4, 1), np.float16), EncoderSettings("none"), cached=False
    )
    with pytest.raises(DataError, match="7 tokens"):
        PackedCorpus(packed.corpus, wrong, OWeights())


def test_vectors_that_stay_on_disk_give_the_same_batches(packed: PackedCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyro_chmm.data.batching._RESIDENT_BYTES", 0)
    streamed = PackedCorpus(packed.corpus, packed.vectors, OWeights())
    for documents in (np.array([3, 0]), np.array([0, 1, 2]), np.array([1])):
        assert torch.equal(streamed.batch(documents).token_vectors, packed.batch(documents).token_vectors)


@pytest.mark.parametrize("on_disk", [False, True])
def test_ngrams_stand_beside_the_vectors(on_disk: bool, packed: PackedCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    if on_disk:
        monkeypatch.setattr("pyro_chmm.data.batching._RESIDENT_BYTES", 0)
    corpus, vectors = packed.corpus, packed.vectors
    words = [word for document in corpus.tokens for word in document]
    tokens = WithNGrams(np.asarray(vectors.tokens), words, 16)
    both = PackedCorpus(corpus, replace(vectors, tokens=tokens), OWeights())
    expected = np.concatenate([tokens.vectors, tokens.table[tokens.index]], axis=1)
    offsets = corpus.offsets
    for documents in ([0, 1, 2, 3], [3, 0], [2]):
        rows = np.concatenate([np.arange(offsets[m], offsets[m + 1]) for m in documents])
        found = both.batch(np.array(documents)).token_vectors
        assert isinstance(found, TokenVectors)
        assert len(found.ngrams) == len(set(rows))  # here every token is another word
        np.testing.assert_array_equal(found.whole().numpy(), expected[rows].astype(np.float32))
    np.testing.assert_array_equal(tokens[:], expected)
