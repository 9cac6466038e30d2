"""Coarse labels: the evidence sums over what they allow, by both ways of marginalising, and the model uses them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyro_chmm import Corpus, SparseCHMM
from pyro_chmm.data.batching import OWeights, PackedCorpus
from pyro_chmm.data.coarse import coarse_allows
from pyro_chmm.data.encoder import EncoderSettings, encode
from pyro_chmm.data.labels import LabelSet
from pyro_chmm.errors import DataError
from pyro_chmm.label_models.majority_vote import MajorityVote
from pyro_chmm.model.conditionals import Conditionals
from pyro_chmm.model.config import SparseCHMMConfig
from pyro_chmm.model.priors import Amortized
from pyro_chmm.model.verification import compare

TYPES = ("PER", "LOC", "MISC")


def coarse_corpus(copies: int = 1) -> Corpus:
    """``a`` knows types, ``b`` only that there is an entity, ``c`` only that something is not MISC."""
    return Corpus.from_spans(
        tokens=[["Anna", "Lee", "sings"], ["in", "Oslo", "today"], [], ["Nobel"]] * copies,
        weak_spans=[
            [[(0, 2, "PER")], [(0, 2, "ENT")], None],
            [[], [(1, 2, "ENT")], [(1, 2, "NOT_MISC")]],
            [[], [], []],
            [[(0, 1, "MISC")], [], None],
        ]
        * copies,
        entity_types=TYPES,
        lf_names=["a", "b", "c"],
        coarse_types=["ENT", "NOT_MISC"],
    )


def test_what_coarse_labels_allow() -> None:
    allows = coarse_allows(LabelSet(TYPES), ["ENT", "NOT_LOC"])
    names = np.array(LabelSet(TYPES).names)
    assert [names[row].tolist() for row in allows] == [
        ["B-PER", "B-LOC", "B-MISC"],
        ["I-PER", "I-LOC", "I-MISC"],
        ["O", "B-PER", "I-PER", "B-MISC", "I-MISC"],
        ["O", "B-PER", "I-PER", "B-MISC", "I-MISC"],
    ]


@pytest.mark.parametrize(
    ("coarse", "message"),
    [(["ANY"], "'ANY' is no coarse label"), (["NOT_X"], "'NOT_X' is no"), (["ENT", "ENT"], "twice"), (["PER"], "both as")],
)
def test_other_names_are_refused(coarse: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Corpus.from_spans([["a"]], [[[]]], TYPES, ["x"], coarse_types=coarse)


def test_a_corpus_keeps_coarse_labels_apart() -> None:
    corpus = coarse_corpus()
    assert corpus.weak_labels[:2].tolist() == [[1, -1, -1], [2, -1, -1]]
    assert corpus.coarse_labels is not None
    assert corpus.coarse_labels.tolist()[:3] == [[-1, 0, -1], [-1, 1, -1], [-1, -1, -1]]
    assert [corpus.observed_set.names[id] for id in corpus.observed_labels[4]] == ["O", "B-ENT", "B-NOT_MISC"]
    some = Corpus.concatenate([corpus.select_documents([0]), corpus.select_documents([1, 2, 3])])
    np.testing.assert_array_equal(some.observed_labels, corpus.observed_labels)
    assert corpus.select_lfs(["a"]).coarse_labels is None
    turned = corpus.relabeled(LabelSet(("MISC", "LOC", "PER", "ORG")))
    assert turned.observed_set.names[int(turned.observed_labels[4, 1])] == "B-ENT"
    with pytest.raises(DataError, match="'ENT' of the span"):
        Corpus.from_spans([["a"]], [[[]]], TYPES, ["x"], gold_spans=[[(0, 1, "ENT")]], coarse_types=["ENT"])


def test_other_models_take_a_coarse_label_for_an_abstention() -> None:
    assert MajorityVote().predict_ids(coarse_corpus()).tolist() == [1, 2, 0, 0, 0, 0, 5]


def packed(corpus: Corpus) -> PackedCorpus:
    return PackedCorpus(corpus, encode(corpus, EncoderSettings("none")), OWeights())


def test_the_evidence_sums_over_what_is_allowed() -> None:
    """By hand: at "Oslo" LF b says B-ENT and c says NOT_MISC; a's O is contested by b's ENT and so counts nothing."""
    corpus = coarse_corpus()
    conditionals = Conditionals.build(SparseCHMMConfig(encoder="none"), corpus.label_set, 3, 1, 1)
    batch = packed(corpus).batch(np.array([1]))
    emission = torch.distributions.Dirichlet(torch.ones(7)).sample((1, 3, 7))
    evidence = conditionals.log_emission_evidence(emission, batch)
    said_b = emission[0, 1][:, [1, 3, 5]].sum(-1)
    said_c = emission[0, 2][:, :5].sum(-1)
    torch.testing.assert_close(evidence[1], said_b.log() + said_c.log())


@pytest.mark.parametrize("prior", ["amortized", "diagonal:50"])
def test_enumeration_and_the_fast_path_agree(prior: str) -> None:
    corpus = coarse_corpus()
    config = SparseCHMMConfig(encoder="none", emission_prior=prior)
    conditionals = Conditionals.build(config, corpus.label_set, 3, 1, 1)
    with torch.no_grad():
        for parameter in conditionals.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    batch = packed(corpus).batch(np.array([0, 1, 3]))
    assert batch.coarse is not None
    assert compare(conditionals, Amortized(), batch).ok
    without = compare(conditionals, Amortized(), packed(corpus.select_lfs(["a", "b", "c"])).batch(np.array([0, 1, 3])))
    assert without.ok


def test_the_model_follows_an_lf_that_only_knows_that_there_is_an_entity() -> None:
    """LF b sees "Oslo" and "Bergen" as entities, a types "Bergen" alone: "Oslo" becomes an entity of some type."""
    documents = [["in", "Oslo"], ["in", "Bergen"], ["he", "sings"]] * 20
    spans = [[[], [(1, 2, "ENT")]], [[(1, 2, "LOC")], [(1, 2, "ENT")]], [[], []]] * 20
    corpus = Corpus.from_spans(documents, spans, ["LOC"], ["a", "b"], coarse_types=["ENT"])
    short = {"epochs_stage1": 5, "epochs_stage2": 2, "epochs_stage3": 2, "select": "evidence"}
    model = SparseCHMM(encoder="none", **short).fit(corpus)
    assert model.predict(corpus.select_documents([0, 1, 2])) == [["O", "B-LOC"], ["O", "B-LOC"], ["O", "O"]]
