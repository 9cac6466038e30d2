"""Character n-grams beside the vectors."""

import numpy as np
import pytest

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.encoder import EncoderSettings, encode
from pyro_chmm.data.ngrams import WithNGrams
from pyro_chmm.errors import ConfigError


def similarity(first: str, second: str) -> float:
    rows = WithNGrams(np.zeros((2, 1), np.float16), [first, second], 512)[:][:, 1:].astype(np.float64)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-3)
    return float(rows[0] @ rows[1])


def test_words_of_like_spelling_are_near_each_other() -> None:
    assert similarity("morphine", "morphine") == pytest.approx(1, abs=1e-3)
    assert similarity("Morphine", "morphine") == pytest.approx(1, abs=1e-3)  # case is the language model's affair
    assert similarity("carbamazepine", "oxcarbazepine") > similarity("carbamazepine", "hypertension") + 0.3


def test_equal_words_share_a_row() -> None:
    features = WithNGrams(np.zeros((4, 2), np.float16), ["a", "pain", "a", "pain"], 8)
    assert features.index.tolist() == [0, 1, 0, 1]
    assert features.table.shape == (2, 8)
    assert features.shape == (4, 10)
    assert len(features) == 4


def test_without_an_encoder_the_ngrams_are_all_there_is() -> None:
    corpus = Corpus.from_spans([["drug", "pain"]], [[[]]], entity_types=["X"], lf_names=["lf"])
    vectors = encode(corpus, EncoderSettings("none", ngrams=8))
    assert vectors.tokens.shape == (2, 9)
    assert np.all(vectors.tokens[:][:, 0] == 1)
    assert not np.array_equal(vectors.tokens[:1], vectors.tokens[1:])


def test_a_lone_surrogate_is_a_character_like_others() -> None:
    assert np.isfinite(WithNGrams(np.zeros((1, 1), np.float16), ["a\ud800"], 8)[:]).all()


def test_a_corpus_without_tokens() -> None:
    assert WithNGrams(np.zeros((0, 3), np.float16), [], 4)[:].shape == (0, 7)


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="ngrams is -1"):
        EncoderSettings("none", ngrams=-1)
