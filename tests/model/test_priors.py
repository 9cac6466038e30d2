"""Priors: what they hold, what they refuse, and that they are one objective under both ways of marginalising."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pyro.distributions import Beta as BetaDistribution
from pyro.distributions import Dirichlet, TorchDistribution
from torch import Tensor

from pyro_chmm.data.batching import PackedBatch
from pyro_chmm.data.labels import LabelSet
from pyro_chmm.errors import ConfigError
from pyro_chmm.model.conditionals import Conditionals
from pyro_chmm.model.config import SparseCHMMConfig
from pyro_chmm.model.prior_densities import log_densities
from pyro_chmm.model.priors import (
    Accuracies,
    Amortized,
    Beta,
    BioConstrained,
    Diagonal,
    Empirical,
    EmpiricalTransition,
    Hierarchical,
    ReliabilityAccuracies,
    Sticky,
    Symmetric,
    SymmetricTransition,
    Table,
    TransitionTable,
    prior_spec,
    read_priors,
    resolve_prior,
)
from pyro_chmm.model.sparse_chmm import SparseCHMMModel
from pyro_chmm.model.statistics import ObservedStatistics
from pyro_chmm.model.verification import compare, loss_and_gradients

from .conftest import DOCUMENT_WIDTH, TOKEN_WIDTH

LABELS, LFS = LabelSet(("PER", "LOC")), ("a", "b", "c")
BELIEFS = {"a": {"precision": 0.9, "recall": 0.4}, "b": {"LOC": {"recall": 0.7}}}
RAGGED = [5, 1, 3, 1, 8]


def rows_of_transitions(token_vectors: Tensor) -> TorchDistribution:
    concentration = torch.eye(5, dtype=torch.float64) * 4 + 1
    return Dirichlet(concentration.expand(len(token_vectors), 5, 5)).to_event(1)


def reliabilities_near_1(document_vectors: Tensor) -> TorchDistribution:
    ones = torch.ones(len(document_vectors), 3, 5, dtype=torch.float64)
    return BetaDistribution(5 * ones, 2 * ones).to_event(2)


EMISSION: dict[str, Any] = {
    "hierarchical": Hierarchical(30.0),
    "hierarchical over diagonal": Hierarchical(5.0, "diagonal:20"),
    "accuracies": Accuracies(BELIEFS, 30.0),
    "table": Table((torch.eye(5) * 0.5 + 0.1).expand(3, 5, 5).tolist(), 20.0),
}
TRANSITION: dict[str, Any] = {
    "symmetric": SymmetricTransition(10.0),
    "sticky": Sticky(10.0),
    "bio": BioConstrained(),
    "empirical": EmpiricalTransition(10.0),
    "table": TransitionTable((torch.eye(5) * 0.5 + 0.1).tolist(), 5.0),
    "callable": rows_of_transitions,
}
RELIABILITY: dict[str, Any] = {
    "beta": Beta(20.0),
    "accuracies": ReliabilityAccuracies(BELIEFS),
    "callable": reliabilities_near_1,
}


def with_priors(
    conditionals_of: Callable[..., Conditionals], *, emission: Any = None, transition: Any = None, **options: Any
) -> Any:
    """Conditionals with random observed statistics and priors, and the emission's prior."""
    reliability = options.pop("reliability", None)
    hierarchical = isinstance(emission, Hierarchical)
    conditionals = conditionals_of(3, 5, **options)
    if hierarchical:
        config = SparseCHMMConfig.from_dict({**conditionals.config.to_dict(), "emission_prior": emission.spec})
        torch.manual_seed(0)
        state = conditionals.state_dict()
        conditionals = Conditionals.build(config, LABELS, 3, TOKEN_WIDTH, DOCUMENT_WIDTH).double()
        conditionals.load_state_dict({**state, "networks.corpus_emission.log_concentration": torch.rand(3, 5, 5) * 3})
    with torch.no_grad():
        conditionals.allowed_transitions.copy_(torch.from_numpy(LABELS.allowed_transitions.copy()))
        generator = torch.Generator().manual_seed(1)
        transitions = torch.rand(5, 5, generator=generator)
        conditionals.observed_transition.copy_(transitions / transitions.sum(-1, keepdim=True))
        conditionals.label_share.copy_(torch.tensor([0.7, 0.1, 0.05, 0.1, 0.05]))
        conditionals.training_size.copy_(torch.tensor([20, 90]))

    def bound(prior: Any) -> Any:
        return prior.bound(LFS, LABELS) if hasattr(prior, "bound") else prior

    conditionals.transition_prior, conditionals.reliability_prior = bound(transition), bound(reliability)
    conditionals.emission_prior = bound(emission or Amortized())
    return conditionals, conditionals.emission_prior


# one objective


@pytest.mark.parametrize("normalization", ["sequence", "row"])
@pytest.mark.parametrize("kind", [*(("emission", name) for name in EMISSION), *(("transition", name) for name in TRANSITION)])
def test_fast_equals_enumeration(
    kind: tuple[str, str],
    normalization: str,
    batch_of: Callable[..., PackedBatch],
    conditionals_of: Callable[..., Conditionals],
) -> None:
    prior = {kind[0]: (EMISSION if kind[0] == "emission" else TRANSITION)[kind[1]]}
    conditionals, emission = with_priors(conditionals_of, **prior, transition_normalization=normalization, kl_weight=0.7)
    comparison = compare(conditionals, emission, batch_of(RAGGED, 3, 5))
    assert comparison.loss < 1e-10
    assert comparison.gradient < 1e-8


@pytest.mark.parametrize("name", RELIABILITY)
def test_fast_equals_enumeration_with_a_prior_on_reliabilities(
    name: str, batch_of: Callable[..., PackedBatch], conditionals_of: Callable[..., Conditionals]
) -> None:
    for options in ({}, {"emission": Hierarchical(5.0), "transition": Sticky(5.0), "stage": 3}):
        conditionals, emission = with_priors(conditionals_of, reliability=RELIABILITY[name], **options)
        comparison = compare(conditionals, emission, batch_of(RAGGED, 3, 5))
        assert comparison.loss < 1e-10
        assert comparison.gradient < 1e-8


def test_the_hierarchical_kl_by_hand(batch_of: Callable[..., PackedBatch], conditionals_of: Callable[..., Conditionals]) -> None:
    """Both parts by torch's own KL divergence, at the corpus emission that was drawn; the corpus counts 5 documents of 20."""
    conditionals, prior = with_priors(conditionals_of, emission=Hierarchical(12.0, "diagonal:3"))
    batch = batch_of(RAGGED, 3, 5)
    loss, gradients = loss_and_gradients(conditionals, prior, batch, "fast", seed=4)
    assert gradients["networks.corpus_emission.log_concentration"].abs().max() > 0
    corpus = torch.distributions.Dirichlet(conditionals.networks.corpus_emission())
    torch.manual_seed(4)
    drawn = corpus.rsample()
    documents = torch.distributions.Dirichlet(conditionals.concentration(batch.document_vectors, drawn))
    given = torch.distributions.Dirichlet(12 * drawn.clamp(min=1e-4).expand(5, 3, 5, 5))
    kl = torch.distributions.kl_divergence(documents, given).sum()
    base = torch.distributions.Dirichlet((3 * torch.eye(5) + 0.2).double().expand(3, 5, 5))
    kl = kl + 5 / 20 * torch.distributions.kl_divergence(corpus, base).sum()
    evidence = conditionals.log_evidence(documents.rsample(), batch).sum()
    assert loss.item() == pytest.approx((kl - evidence).item(), rel=1e-9)


def test_densities_of_an_epoch_add_up_to_one(
    batch_of: Callable[..., PackedBatch], conditionals_of: Callable[..., Conditionals]
) -> None:
    """The same vector at every token and document: the sum over an epoch is the density there, of Pyro's distributions."""
    conditionals, _ = with_priors(conditionals_of, transition=Sticky(10.0), reliability=Beta(20.0, 0.7))
    batch = batch_of([18] * 5, 3, 5)
    batch.token_vectors[:] = batch.token_vectors[0].clone()
    batch.document_vectors[:] = batch.document_vectors[0].clone()
    logits = conditionals.transition_logits(batch.token_vectors)
    found = log_densities(conditionals, batch, logits)
    concentration = conditionals.transition_prior.concentration(conditionals.observed, conditionals.allowed_transitions)
    rows = logits[0].softmax(-1)
    expected = 0.0
    for row, counts in zip(rows, concentration.double(), strict=True):
        seen = counts > 0  # in the basis of logits: the volume element is the product of the probabilities
        inside = row[seen] / row[seen].sum()
        expected += Dirichlet(counts[seen]).log_prob(inside) + inside.log().sum() + counts.sum() * row[seen].sum().log()
    assert found["transition_prior"].sum().item() == pytest.approx(expected.item(), rel=1e-9)
    right = conditionals.reliability(batch.document_vectors)[0]
    beta = (BetaDistribution(14.0, 6.0).log_prob(right) + (right * (1 - right)).log()).sum()
    assert found["reliability_prior"].sum().item() == pytest.approx(beta.item() * 5 / 20, rel=1e-6)


def test_the_mode_is_the_mean() -> None:
    from pyro_chmm.model.priors.parameters import log_density

    counts, logits = torch.tensor([0.5, 3.0, 0.0, 1.5]), torch.zeros(4, requires_grad=True)
    optimizer = torch.optim.LBFGS([logits], max_iter=200)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = -log_density(counts, logits.log_softmax(-1))
        loss.backward()
        return loss

    optimizer.step(closure)
    assert logits.softmax(-1).tolist() == pytest.approx([0.1, 0.6, 0.0, 0.3], abs=1e-3)


def test_bio_rules_out_invalid_transitions(
    batch_of: Callable[..., PackedBatch], conditionals_of: Callable[..., Conditionals]
) -> None:
    conditionals, _ = with_priors(conditionals_of, transition=BioConstrained())
    rows = conditionals.transition_logits(batch_of(RAGGED, 3, 5).token_vectors).softmax(-1)
    assert (rows[:, ~conditionals.allowed_transitions] == 0).all()
    assert (rows[:, conditionals.allowed_transitions] > 0).all()


def test_prior_samples_of_the_model(batch_of: Callable[..., PackedBatch], conditionals_of: Callable[..., Conditionals]) -> None:
    import pyro

    conditionals, prior = with_priors(conditionals_of, emission=Hierarchical(50.0, "diagonal:20"))
    trace = pyro.poutine.trace(SparseCHMMModel(conditionals, prior)).get_trace(batch_of(RAGGED, 3, 5))
    corpus, emission = trace.nodes["corpus_emission"]["value"], trace.nodes["emission"]["value"]
    assert corpus.shape == (3, 5, 5)
    assert emission.shape == (5, 3, 5, 5)
    assert corpus.diagonal(dim1=-2, dim2=-1).mean() > 0.9


# what believed accuracies amount to


def observed() -> ObservedStatistics:
    share = torch.tensor([0.8, 0.06, 0.04, 0.06, 0.04])
    return ObservedStatistics(torch.full((5, 5), 0.2), torch.full((3, 5, 5), 0.2), share)


def test_accuracies_by_hand() -> None:
    concentration = Accuracies(BELIEFS, 50.0).bound(LFS, LABELS).concentration(observed())
    b_per = (concentration / concentration.sum(-1, keepdim=True))[0, 1].tolist()
    assert b_per == pytest.approx([0.54, 0.4, 0.02, 0.02, 0.02])
    # B-PER at an O: 0.06 * 0.4 * 0.1 / (0.9 * 0.8)
    assert (concentration[0, 0] / 50).tolist() == pytest.approx([1 - 20 / 5400 * 3, *[0.06 / 18, 0.04 / 18] * 2], abs=1e-3)
    assert concentration[0, 0, 1].item() == pytest.approx(50 * 0.06 * 0.04 / 0.72, rel=1e-5)
    assert concentration[1, 3, 3].item() == pytest.approx(35)
    assert concentration[1, :3].tolist() == [[1.0] * 5] * 3
    assert concentration[2].tolist() == [[1.0] * 5] * 5


def test_the_precision_that_was_believed_comes_out() -> None:
    share, mean = observed().share, Accuracies(BELIEFS, 1e6).bound(LFS, LABELS).concentration(observed())[0] / 1e6
    said = (share[:, None] * mean)[:, 1]
    assert said[1] / (said[0] + said[1]) == pytest.approx(0.9, rel=1e-3)


def test_accuracies_as_reliabilities() -> None:
    counts = ReliabilityAccuracies(BELIEFS, 10.0).bound(LFS, LABELS).concentration(observed())
    assert counts[0, 1].tolist() == pytest.approx([4.0, 6.0])
    assert counts[1, 4].tolist() == pytest.approx([7.0, 3.0])
    assert counts[2].abs().sum() == 0
    assert counts[1, 0].tolist() == [0.0, 0.0]


def test_sticky_by_hand() -> None:
    allowed = torch.from_numpy(LABELS.allowed_transitions.copy())
    counts = Sticky(10.0).concentration(observed(), allowed)
    assert counts[0].tolist() == pytest.approx([10 + 1 / 3, 1 / 3, 0, 1 / 3, 0])
    assert counts[1].tolist() == pytest.approx([0.25, 0.25, 10.25, 0.25, 0])
    assert counts[2].tolist() == pytest.approx([0.25, 0.25, 10.25, 0.25, 0])


# by name, dict, file


@pytest.mark.parametrize(
    ("keyword", "given", "expected"),
    [
        ("emission_prior", None, Amortized()),
        ("emission_prior", 50, Diagonal(50)),
        ("emission_prior", "diagonal:50", Diagonal(50.0)),
        ("emission_prior", {"name": "symmetric", "strength": 3}, Symmetric(3)),
        ("emission_prior", Empirical(2.0), Empirical(2.0)),
        ("emission_prior", "hierarchical:5", Hierarchical(5.0)),
        ("transition_prior", None, None),
        ("transition_prior", 20.0, Sticky(20.0)),
        ("transition_prior", "bio", BioConstrained()),
        ("reliability_prior", 20.0, Beta(20.0)),
        ("reliability_prior", {"name": "beta", "strength": 5.0, "mean": 0.6}, Beta(5.0, 0.6)),
    ],
)
def test_resolved(keyword: str, given: Any, expected: Any) -> None:
    assert resolve_prior(keyword, given) == expected


@pytest.mark.parametrize("prior", [*EMISSION.values(), *TRANSITION.values(), *RELIABILITY.values(), Diagonal(0.12345678901)])
def test_through_json_and_back(prior: Any) -> None:
    spec = json.loads(json.dumps(prior_spec(prior)))
    if spec != "callable":
        assert resolve_prior(prior.keyword, spec) == prior


def test_a_file_of_priors_and_assignments(tmp_path: Path) -> None:
    path = tmp_path / "priors.toml"
    path.write_text(
        'transition = "sticky:20"\n[emission]\nname = "accuracies"\nstrength = 30\n'
        "[emission.accuracies.dictionary]\nprecision = 0.9\nrecall = 0.4\n"
    )
    found = read_priors(["transition=bio", "reliability = beta:5"], path)
    accuracies = {"dictionary": {"precision": 0.9, "recall": 0.4}}
    assert found == {
        "emission_prior": {"name": "accuracies", "accuracies": accuracies, "strength": 30},
        "transition_prior": "bio",
        "reliability_prior": {"name": "beta", "strength": 5.0, "mean": 0.8},
    }


# bad input


@pytest.mark.parametrize(
    ("keyword", "given", "message"),
    [
        ("emission_prior", "gaussian:3", "emission_prior is 'gaussian:3'; expected one of amortized, symmetric, diagonal"),
        ("emission_prior", "diagonal:no", "emission_prior is 'diagonal:no'; expected a positive number after the colon"),
        ("emission_prior", "diagonal", "diagonal needs strength, as in diagonal:50"),
        ("emission_prior", "amortized:3", "amortized takes nothing, not 'strength'"),
        ("emission_prior", -1.0, "emission_prior: the strength of diagonal is -1.0; expected a positive number"),
        ("emission_prior", "diagonal:0", "strength of diagonal is 0.0"),
        ("emission_prior", "diagonal:inf", "strength of diagonal is inf"),
        ("emission_prior", True, "emission_prior is True; expected"),
        ("emission_prior", {"strength": 3}, "expected one of amortized"),
        ("emission_prior", {"name": "diagonal", "force": 3}, "diagonal takes strength, not 'force'"),
        ("emission_prior", Sticky(3.0), "emission_prior is Sticky, which is for transition_prior"),
        ("emission_prior", {"name": "accuracies", "accuracies": {"a": {"recall": 1.2}}}, "recall is 1.2; expected a share"),
        ("emission_prior", {"name": "accuracies", "accuracies": {"a": {"f1": 0.2, "recall": 1}}}, "LF 'a', f1: found 0.2"),
        ("emission_prior", {"name": "accuracies", "accuracies": {}}, "the accuracies are {}"),
        ("transition_prior", "amortized", "expected one of symmetric, sticky, bio, empirical, table or none"),
        ("reliability_prior", {"name": "beta", "strength": 3, "mean": 1.0}, "the mean of beta is 1.0"),
    ],
)
def test_refused(keyword: str, given: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_prior(keyword, given)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (Accuracies({"d": {"recall": 0.5}}), "emission_prior: there is no LF 'd'; the LFs are a, b, c"),
        (Accuracies({"a": {"ORG": {"recall": 0.5}}}), "there is no entity type 'ORG'; the types are PER, LOC"),
        (ReliabilityAccuracies({"d": {"recall": 0.5}}), "reliability_prior: there is no LF 'd'"),
        (Table([[[1.0]]], 5.0), r"emission_prior: the table has shape (1, 1, 1); expected (3, 5, 5)"),
        (TransitionTable([[0.3] * 5] * 5, 5.0), "transition_prior: row [0] of the table sums to 1.5; expected 1"),
        (TransitionTable([[1.2, -0.2, 0, 0, 0]] * 5, 5.0), "the table has -0.2 at [0, 1]; expected probabilities"),
        (TransitionTable([["x"]], 5.0), "the table holds [['x']]; expected numbers of shape (5, 5)"),
        (Hierarchical(3.0, "amortized"), "hierarchical is over 'amortized'; expected another prior"),
    ],
)
def test_refused_with_these_lfs_and_labels(prior: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        prior.bound(LFS, LABELS)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("assignments", "content", "message"),
    [
        (["diagonal:50"], "", "--prior is 'diagonal:50'; expected emission=, transition= or reliability="),
        (["emissions=diagonal:50"], "", "--prior is 'emissions=diagonal:50'"),
        ([], "emission =", "cannot be read as TOML"),
        ([], 'observation = "diagonal:50"', "has 'observation'; expected emission, transition or reliability"),
        ([], "emission = -3", "the strength of diagonal is -3"),
    ],
)
def test_refused_on_the_command_line(assignments: list[str], content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "priors.toml").write_text(content)
    with pytest.raises(ConfigError) as caught:
        read_priors(assignments, tmp_path / "priors.toml")
    assert message in str(caught.value)
