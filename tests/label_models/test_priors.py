"""Priors as users have them: by keyword, and they move what the model believes as they should."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyro.distributions import Dirichlet, TorchDistribution
from torch import Tensor

import pyro_chmm
from pyro_chmm import CorpusSplits, SparseCHMM
from pyro_chmm.data.corpus import Corpus
from pyro_chmm.errors import ConfigError, DataError
from pyro_chmm.label_models.posterior import type_reliabilities
from pyro_chmm.model.priors import Diagonal

#: One stage to near its optimum, chosen by the objective; reliabilities are free of each other, so a prior can have its way.
FREE: dict[str, Any] = {
    "encoder": "none",
    "verify": False,
    "select": "evidence",
    "softmax_reliability": False,
    "scale_reliability": False,
    "stage2": "none",
    "epochs_stage1": 40,
    "epochs_stage3": 0,
    "patience": 100,
    "batch_size": 30,
    "weight_averaging": 0.0,
    "learning_rate_stage1": 0.05,
}
BELIEFS = {"title": {"PER": {"recall": 0.2}}, "capitals": {"recall": 0.7}}


@pytest.fixture(scope="module")
def demo() -> CorpusSplits:
    whole = pyro_chmm.load_dataset("demo")
    return CorpusSplits("demo", {name: whole[name].select_documents(range(60)) for name in ("train", "test")})


@pytest.fixture(scope="module")
def without(demo: CorpusSplits) -> SparseCHMM:
    """The data's answer."""
    return SparseCHMM(**FREE).fit(demo.train)


def diagonal_of(model: SparseCHMM, corpus: Corpus) -> Any:
    """Posterior mean of how often each LF repeats each label: ``(K, L)``."""
    return np.diagonal(model.posterior(corpus, draws=50).emission().mean(0), axis1=-2, axis2=-1)


def test_a_stronger_diagonal_raises_the_posterior_diagonal(demo: CorpusSplits) -> None:
    found = []
    for prior in ("amortized", "diagonal:10", "diagonal:100", "diagonal:1000", "diagonal:1e5"):
        model = SparseCHMM(encoder="none", verify=False, emission_prior=prior).fit(demo.train)
        found.append(diagonal_of(model, demo.test).mean())
    assert all(after > before + 0.02 for before, after in pairwise(found))
    assert found[-1] > 0.99  # strength to infinity gives the prior back


def test_believed_accuracies_move_the_posterior_toward_them(demo: CorpusSplits) -> None:
    title, capitals = demo.train.lf_names.index("title"), demo.train.lf_names.index("capitals")
    distances = []
    for strength in (None, 20.0, 1000.0, 1e6):
        prior = None if strength is None else {"name": "accuracies", "accuracies": BELIEFS, "strength": strength}
        model = SparseCHMM(encoder="none", verify=False, emission_prior=prior).fit(demo.train)
        diagonal = diagonal_of(model, demo.test)
        distances.append(np.abs(diagonal[title, 1:3] - 0.2).mean() + np.abs(diagonal[capitals, 1:] - 0.7).mean())
    assert all(after < before - 0.01 for before, after in pairwise(distances))
    assert distances[-1] < 0.01


def test_believed_accuracies_move_reliabilities_toward_them(demo: CorpusSplits, without: SparseCHMM) -> None:
    title, capitals = demo.train.lf_names.index("title"), demo.train.lf_names.index("capitals")

    def distance(reliability: Any) -> Any:
        return np.abs(reliability[title, 1:3] - 0.2).mean() + np.abs(reliability[capitals, 1:] - 0.7).mean()

    for keyword in ("emission_prior", "reliability_prior"):
        distances = [distance(without.reliabilities(demo.test))]
        for strength in (20.0, 1e5):
            prior = {"name": "accuracies", "accuracies": BELIEFS, "strength": strength}
            model = SparseCHMM(**FREE, **{keyword: prior}).fit(demo.train)
            distances.append(distance(model.reliabilities(demo.test)))
        assert distances[0] > distances[1] > distances[2] - 0.01
        # strength to infinity gives the prior back: in the emission, where the prior is on that
        last = distances[-1] if keyword == "reliability_prior" else distance(diagonal_of(model, demo.test))
        assert last < 0.05


def test_an_infinitely_strong_transition_prior_is_given_back(demo: CorpusSplits) -> None:
    mean = np.full((7, 7), 0.02) + np.eye(7) * 0.86
    prior = {"name": "table", "mean": mean.tolist(), "strength": 1e6}
    model = SparseCHMM(**FREE, transition_prior=prior, transition_hidden=0, ngrams=0).fit(demo.train)
    rows = model._fitted().networks.transition.bias.softmax(-1).detach().numpy()
    np.testing.assert_allclose(rows, mean, atol=0.02)


def test_strength_to_0_gives_the_data_s_answer(demo: CorpusSplits) -> None:
    few = {**FREE, "epochs_stage1": 4, "learning_rate_stage1": 0.01}  # more steps, and rounding errors grow
    without = SparseCHMM(**few).fit(demo.train)
    weak = SparseCHMM(**few, transition_prior="symmetric:1e-9", reliability_prior=1e-9).fit(demo.train)
    np.testing.assert_allclose(weak.reliabilities(demo.test), without.reliabilities(demo.test), atol=1e-4)
    for found, expected in zip(weak.predict_proba(demo.test), without.predict_proba(demo.test), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-3)
    # of an emission's prior, it is the weight of the KL divergence that goes to 0: no Dirichlet is without any opinion
    weightless = SparseCHMM(**few, emission_prior="diagonal:50", kl_weight=0.0).fit(demo.train)
    np.testing.assert_allclose(weightless.reliabilities(demo.test), without.reliabilities(demo.test), atol=1e-4)


def test_a_hierarchical_prior_pools_documents_and_survives_saving(demo: CorpusSplits, tmp_path: Path) -> None:
    model = SparseCHMM(**FREE, emission_prior="hierarchical:200").fit(demo.train)
    guide = model._fitted().networks.corpus_emission
    assert guide is not None
    corpus = guide() / guide().sum(-1, keepdim=True)
    document = torch.from_numpy(model.emission(demo.test))
    assert (corpus - document).abs().mean() < 0.05
    assert model.history_[-1].kl < model.history_[0].kl
    model.save(tmp_path)
    loaded = SparseCHMM.load(tmp_path)
    assert loaded.prior == model.prior
    assert loaded.predict(demo.test) == model.predict(demo.test)


def test_every_form_of_a_prior_is_the_same_prior(demo: CorpusSplits) -> None:
    few = {**FREE, "epochs_stage1": 1}
    forms: list[Any] = [30.0, "diagonal:30", Diagonal(30.0), {"name": "diagonal", "strength": 30.0}]
    found = [SparseCHMM(**few, emission_prior=form).fit(demo.train).reliabilities(demo.test) for form in forms]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


# before training


def test_prior_predictive_draws_are_of_the_prior(demo: CorpusSplits) -> None:
    model = SparseCHMM(encoder="none", emission_prior="diagonal:20", transition_prior="sticky:30")
    prior = model.prior_predictive(demo.test, draws=1000)
    emission = prior.emission(3)
    concentration = 20 * np.eye(7) + 1 / 7
    np.testing.assert_allclose(emission.mean(0), np.broadcast_to(concentration / 21, (6, 7, 7)), atol=0.02)
    found = prior.document(3)
    assert demo.test.label_set.allowed_transitions[found.labels[:, :-1], found.labels[:, 1:]].all()
    # after B-X or I-X, 31 of 32 pseudo-observations are on I-X
    inside = (found.labels[:, :-1] > 0).nonzero()
    after, before = found.labels[:, 1:][inside], found.labels[:, :-1][inside]
    goes_on = after == np.where(before % 2 == 1, before + 1, before)
    assert goes_on.mean() == pytest.approx(30.2 / 31, abs=0.05)
    right = found.weak_labels == found.labels[..., None]
    assert right[found.weak_labels >= 0].mean() == pytest.approx(concentration[0, 0] / 21, abs=0.02)
    tree = prior.to_inference_data()
    assert list(tree.children)[:2] == ["prior", "prior_predictive"]


def test_prior_predictive_reliabilities_and_hierarchy(demo: CorpusSplits) -> None:
    believed = {"name": "accuracies", "accuracies": BELIEFS, "strength": 100.0}
    prior = SparseCHMM(encoder="none", concentration_base=0.01, reliability_prior=believed).prior_predictive(demo.test, draws=500)
    found = type_reliabilities(prior.emission(0)).mean(0)
    assert found[demo.test.lf_names.index("title"), 1] == pytest.approx(0.2, abs=0.02)
    assert found[demo.test.lf_names.index("capitals"), 1:] == pytest.approx([0.7] * 3, abs=0.02)
    shared = SparseCHMM(encoder="none", emission_prior="hierarchical:1e5").prior_predictive(demo.test, draws=20)
    np.testing.assert_allclose(shared.emission(0), shared.emission(1), atol=0.03)
    assert shared.emission(0).std(0).mean() > 0.05


def test_prior_predictive_needs_no_fit_and_knows_names(demo: CorpusSplits, without: SparseCHMM) -> None:
    for prior in (without.prior_predictive(demo.test, draws=3), SparseCHMM(encoder="none").prior_predictive(demo.test, draws=3)):
        assert prior.weak_labels(0).shape == (3, len(demo.test.tokens[0]), 6)
    wrong = SparseCHMM(encoder="none", reliability_prior={"name": "accuracies", "accuracies": {"nobody": {"recall": 0.5}}})
    with pytest.raises(ConfigError, match="reliability_prior: there is no LF 'nobody'; the LFs are gazetteer, capitals"):
        wrong.prior_predictive(demo.test)
    with pytest.raises(DataError, match="lacks the LF"):
        without.prior_predictive(demo.test.select_lfs(["title"]))


# bad input


def negative(document_vectors: Tensor) -> TorchDistribution:
    return Dirichlet(-torch.ones(len(document_vectors), 6, 7, 7)).to_event(2)


def unchecked(document_vectors: Tensor) -> TorchDistribution:
    return Dirichlet(torch.zeros(len(document_vectors), 6, 7, 7), validate_args=False).to_event(2)


def flat(vectors: Tensor) -> TorchDistribution:
    return Dirichlet(torch.ones(len(vectors), 3, 3)).to_event(1)


@pytest.mark.parametrize(
    ("priors", "message"),
    [
        ({"emission_prior": negative}, "emission_prior returned no distribution: Expected parameter concentration"),
        ({"emission_prior": unchecked}, "emission_prior returned concentrations down to 0; expected positive ones"),
        ({"transition_prior": flat}, r"transition_prior returned .* event shape \(3, 3\), expected .* \(7, 7\)"),
        ({"reliability_prior": flat}, r"reliability_prior returned .* event shape \(3, 3\), expected .* \(6, 7\)"),
        ({"reliability_prior": lambda vectors: vectors}, "reliability_prior returned a Tensor, expected a Pyro distribution"),
        ({"emission_prior": {"name": "accuracies", "accuracies": {"x": {"recall": 1}}}}, "emission_prior: there is no LF 'x'"),
        ({"transition_prior": {"name": "table", "mean": [[1.0]], "strength": 2}}, r"has shape \(1, 1\); expected \(7, 7\)"),
    ],
)
def test_priors_that_do_not_fit_are_refused_before_training(priors: dict[str, Any], message: str, demo: CorpusSplits) -> None:
    with pytest.raises(ConfigError, match=message):
        SparseCHMM(**FREE, **priors).fit(demo.train)


def test_a_callable_is_not_saved_and_not_forgotten(demo: CorpusSplits, tmp_path: Path) -> None:
    def rows(token_vectors: Tensor) -> TorchDistribution:
        return Dirichlet(torch.ones(len(token_vectors), 7, 7)).to_event(1)

    model = SparseCHMM(**{**FREE, "epochs_stage1": 1}, transition_prior=rows).fit(demo.train)
    model.save(tmp_path)
    loaded = SparseCHMM.load(tmp_path)
    assert loaded.predict(demo.test) == model.predict(demo.test)
    with pytest.raises(ConfigError, match="transition_prior was a callable, which a saved model does not hold"):
        loaded.fit(demo.train)
