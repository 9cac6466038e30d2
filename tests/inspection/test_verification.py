"""The comparison of the fast path with enumeration: it agrees where it should, and sees what is wrong."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from pyro_chmm import chain
from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.encoder import EncoderSettings, Vectors
from pyro_chmm.errors import DataError
from pyro_chmm.inspection import verification
from pyro_chmm.inspection.verification import verify_corpus, verify_data_set
from pyro_chmm.model.config import SparseCHMMConfig
from pyro_chmm.model.verification import TOLERANCE


def ragged_corpus(num_lfs: int = 3) -> Corpus:
    """Documents of 0 to 30 tokens, 1 among them; LFs that fire, that are silent, and that abstain."""
    generator = np.random.default_rng(5)
    lengths = [1, 0, 7, 1, 30, 3]
    spans = []
    for length in lengths:
        starts = generator.integers(0, max(length, 1), num_lfs)
        fires = [[(int(start), int(start) + 1, "X")] if start < length else [] for start in starts]
        spans.append([None if generator.random() < 0.2 else span for span in fires])
    tokens = [[f"w{position}" for position in range(length)] for length in lengths]
    return Corpus.from_spans(tokens, spans, ["X", "Y"], [f"lf{number}" for number in range(num_lfs)])


def random_vectors(corpus: Corpus, width: int = 4) -> Vectors:
    generator = np.random.default_rng(6)
    tokens, documents = (
        generator.normal(size=(count, width)).astype(np.float16) for count in (corpus.num_tokens, corpus.num_documents)
    )
    return Vectors(tokens, documents, EncoderSettings("none"), False)


def verified(num_lfs: int = 3, **settings: object) -> verification.VerificationResult:
    corpus = ragged_corpus(num_lfs)
    config = SparseCHMMConfig.from_dict({"encoder": "none", **settings})
    return verify_corpus(corpus, random_vectors(corpus), config)


@pytest.mark.parametrize("backend", ["auto", "reference", "cpu"])
def test_both_ways_agree(backend: str) -> None:
    result = verified(backend=backend)
    assert result.ok
    assert result.max_rel_loss < 1e-10
    assert result.max_rel_grad < 1e-8
    assert result.max_abs_marginal < 1e-10
    assert result.max_rel_viterbi < 1e-10
    assert result.speedup > 0
    assert result.backend == ("cpu" if backend == "auto" else backend)
    assert (result.documents, result.tokens) == (5, 1 + 7 + 1 + verification.MAX_TOKENS + 3)


@pytest.mark.parametrize(
    "settings",
    [
        {"emission_prior": "symmetric:3", "kl_weight": 0.5},
        {"emission_prior": "diagonal:20", "reliability_level": "entity"},
        {"o_weight_contested": 1.0, "sample_emission": False},
        {"posterior_sharpening": 0.5},
        {"transition_normalization": "row"},
        {"transition_hidden": 8, "dropout": 0.5},
        {"num_lfs": 1},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_both_ways_agree_for_other_models(settings: dict[str, object]) -> None:
    assert verified(**settings).ok  # type: ignore[arg-type]


def test_every_parameter_has_a_gradient() -> None:
    corpus = ragged_corpus()
    seen: dict[str, torch.Tensor] = {}
    original = verification.loss_and_gradients

    def spy(*arguments: object) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        loss, gradients = original(*arguments)  # type: ignore[arg-type]
        seen.update(gradients)
        return loss, gradients

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verification, "loss_and_gradients", spy)
        verify_corpus(corpus, random_vectors(corpus), SparseCHMMConfig(encoder="none"))
    assert len(seen) == 8
    assert all(gradient.abs().max() > 1e-6 for gradient in seen.values())


def test_the_verified_model_is_left_alone_and_nothing_is_stored() -> None:
    import pyro

    pyro.clear_param_store()
    state = torch.get_rng_state()
    verified()
    assert dict(pyro.get_param_store()) == {}
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.filterwarnings("ignore:Encountered NaN")  # what the last case is about
@pytest.mark.parametrize("wrong", ["loss", "gradient", "marginals", "viterbi", "nan"])
def test_a_wrong_kernel_is_seen(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log_evidence, marginals, viterbi = chain.log_evidence, chain.marginals, chain.viterbi

    def wrong_evidence(initial, transition, *rest, **options):  # type: ignore[no-untyped-def]
        if wrong == "gradient":  # the same value, a gradient that is a little too large
            transition = transition + 1e-4 * (transition - transition.detach())
        value = log_evidence(initial, transition, *rest, **options)
        return value * {"loss": 1.001, "nan": float("nan")}.get(wrong, 1.0)

    def wrong_marginals(*tensors, **options):  # type: ignore[no-untyped-def]
        found = marginals(*tensors, **options)
        return found._replace(state=found.state.roll(1, 0)) if wrong == "marginals" else found

    def wrong_viterbi(*tensors, **options):  # type: ignore[no-untyped-def]
        found = viterbi(*tensors, **options)
        return found._replace(log_score=found.log_score - 0.1) if wrong == "viterbi" else found

    for name, function in (
        ("log_evidence", wrong_evidence),
        ("marginals", wrong_marginals),
        ("viterbi", wrong_viterbi),
    ):
        monkeypatch.setattr(chain, name, function)
    result = verified()
    assert not result.ok
    found = {
        "loss": result.max_rel_loss,
        "gradient": result.max_rel_grad,
        "marginals": result.max_abs_marginal,
        "viterbi": result.max_rel_viterbi,
        "nan": result.max_rel_loss,
    }
    assert not found[wrong] <= TOLERANCE


def test_a_data_set_by_name() -> None:
    result = verify_data_set("demo", documents=8, encoder="none", split="valid", seed=3)
    assert result.ok
    assert result.documents == 8
    assert set(json.loads(json.dumps(result.to_dict()))) == {
        "max_rel_loss",
        "max_rel_grad",
        "max_abs_marginal",
        "speedup",
        "backend",
        "ok",
    }


def test_a_corpus_without_tokens() -> None:
    corpus = ragged_corpus().select_documents([1])
    with pytest.raises(DataError, match="no token"):
        verify_corpus(corpus, random_vectors(corpus), replace(SparseCHMMConfig(), encoder="none"))


@pytest.mark.parametrize(("settings", "rows"), [({}, 5), ({"shared_transition": False}, 25)])
def test_the_model_compared_is_the_one_that_is_trained(
    settings: dict[str, object], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    real = verification.perturbed
    monkeypatch.setattr(verification, "perturbed", lambda model, seed: seen.append(model) or real(model, seed))
    assert verified(transition_hidden=0, **settings).ok
    assert seen[0].networks.transition.outer.weight.shape == (rows, 4)
