"""An explanation adds up to the posterior, and says what the corpus says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pyro_chmm
from pyro_chmm import SparseCHMM
from pyro_chmm.data.corpus import Corpus, CorpusSplits
from pyro_chmm.errors import ConfigError, DataError
from tests.label_models.test_sparse_chmm import FEW


@pytest.fixture(scope="module")
def demo() -> CorpusSplits:
    whole = pyro_chmm.load_dataset("demo")
    return CorpusSplits("demo", {name: corpus.select_documents(range(40)) for name, corpus in whole.splits.items()})


def fitted(demo: CorpusSplits, **options: object) -> SparseCHMM:
    return SparseCHMM(**{**FEW, "o_weight_prediction": 0.5, **options}).fit(demo.train, valid=demo.valid)


@pytest.mark.parametrize(
    "options",
    [{}, {"majority_vote_lf": True}, {"transition_normalization": "row"}, {"constrained_decoding": False}],
)
def test_the_parts_add_up_to_the_posterior(demo: CorpusSplits, options: dict[str, object]) -> None:
    model, corpus = fitted(demo, **options), demo.test
    posterior, labels = model.predict_proba(corpus), model.predict(corpus)
    for document in (0, 2, 7):
        for token in range(len(corpus.tokens[document])):
            found = model.explain(corpus, document, token)
            assert np.allclose(found.log_evidence, sum(vote.log_evidence for vote in found.votes), atol=1e-9)
            product = np.exp(found.log_evidence) * found.left * found.right
            np.testing.assert_allclose(product / product.sum(), posterior[document][token], atol=1e-5)
            np.testing.assert_allclose(found.marginals, posterior[document][token], atol=1e-6)
            assert found.left.sum() == pytest.approx(1)
            assert found.right.sum() == pytest.approx(1)
            assert found.evidence.sum() == pytest.approx(1)
            assert found.label == labels[document][token]


def test_it_tells_the_votes_with_weight_and_reliability(demo: CorpusSplits) -> None:
    model, corpus = fitted(demo), demo.test
    found = model.explain(corpus, "test-0", 1)
    assert (found.document, found.token, found.word, found.gold) == ("test-0", 1, "Press", "I-ORG")
    assert found.labels == corpus.label_set.names
    votes = {vote.lf: vote for vote in found.votes}
    assert [vote.lf for vote in found.votes] == list(corpus.lf_names)
    assert (votes["capitals"].label, votes["capitals"].weight) == ("I-ORG", 1.0)
    assert (votes["gazetteer"].label, votes["gazetteer"].weight) == ("O", 0.0)  # contested: another LF fires here
    assert (votes["title"].label, votes["title"].weight, votes["title"].reliability) == (None, 0.0, None)
    assert not votes["title"].log_evidence.any()
    assert not votes["gazetteer"].log_evidence.any()
    place, label = corpus.lf_names.index("capitals"), corpus.label_set.id("I-ORG")
    mean = model.reliabilities(corpus)[place, label]  # with encoder none, the same in every document
    assert votes["capitals"].reliability == pytest.approx(mean, abs=1e-6)
    emission = model.emission(corpus)[place, :, label]
    np.testing.assert_allclose(votes["capitals"].log_evidence, np.log(emission), atol=1e-5)


def test_a_coarse_label_counts_as_the_sum_of_what_it_allows() -> None:
    documents = [["Anna", "sings"], ["in", "Oslo"]]
    weak = [[[(0, 1, "PER")], [(0, 1, "ENT")]], [[(1, 2, "LOC")], [(1, 2, "ENT")]]]
    corpus = Corpus.from_spans(documents, weak, ["PER", "LOC"], ["fine", "coarse"], coarse_types=["ENT"])
    model = SparseCHMM(**{**FEW, "select": "evidence"}).fit(corpus)
    vote = model.explain(corpus, 0, 0).votes[1]
    assert (vote.label, vote.weight, vote.reliability) == ("B-ENT", 1.0, None)
    allowed = [corpus.label_set.id(name) for name in ("B-PER", "B-LOC")]
    expected = np.log(model.emission(corpus)[1][:, allowed].sum(axis=1))
    np.testing.assert_allclose(vote.log_evidence, expected, atol=1e-5)


def test_what_is_not_there_is_one_sentence(demo: CorpusSplits) -> None:
    model, corpus = fitted(demo), demo.test
    with pytest.raises(DataError, match=r"no document 'nobody'; the corpus has 40 documents, the first of them 'test-0'"):
        model.explain(corpus, "nobody", 0)
    with pytest.raises(DataError, match="no document number 40; the corpus has 40 documents"):
        model.explain(corpus, 40, 0)
    with pytest.raises(DataError, match=r"'test-0' has no token 10; its 10 tokens are counted from 0 to 9"):
        model.explain(corpus, "test-0", 10)
    with pytest.raises(DataError, match="has no token -1"):
        model.explain(corpus, 0, -1)
    with pytest.raises(ConfigError, match="has not been fitted"):
        SparseCHMM(encoder="none").explain(corpus, 0, 0)
    assert model.explain(replace(corpus, gold=None), 0, 0).gold is None
