"""The three stages: what each trains, what is kept, when they stop, and what happens when they cannot go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pyro_chmm import chain
from pyro_chmm.errors import TrainingError
from pyro_chmm.model import initialization, training
from pyro_chmm.model.gradient_steps import Share
from pyro_chmm.model.training import EpochRecord, Selection, Trainer
from pyro_chmm.model.verification import loss_and_gradients
from pyro_chmm.model.wxor import wxor_rates, wxor_scores
from tests.model.corpora import Script, make_corpus, make_packed, make_trainer, watched

Weights = dict[str, Tensor]


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def changed(first: Weights, last: Weights) -> set[str]:
    """The layers whose weights or biases differ."""
    return {name.split(".")[1] for name in first if name.startswith("networks.") and not torch.equal(first[name], last[name])}


def without_seconds(history: list[EpochRecord]) -> list[EpochRecord]:
    return [replace(record, seconds=0.0) for record in history]


# stages

STAGES: dict[str, dict[int, set[str]]] = {
    "separate": {1: {"transition", "reliability"}, 2: {"addon"}, 3: {"transition"}},
    "merged": {1: {"transition", "reliability"}, 3: {"transition", "addon"}},
    "none": {1: {"transition", "reliability"}, 3: {"transition"}},
}


@pytest.mark.parametrize("stage2", STAGES)
@pytest.mark.parametrize("shared_transition", [False, True])
def test_what_each_stage_trains_and_freezes(stage2: str, shared_transition: bool) -> None:
    trainer, script = watched(stage2=stage2, shared_transition=shared_transition)
    assert trainer.run() == 3
    stages = [stage for stage, _ in script.seen]
    assert sorted(set(stages)) == list(STAGES[stage2]) == sorted(trainer.stage_weights)
    for stage, layers in STAGES[stage2].items():
        weights = [state for number, state in script.seen if number == stage]
        assert len(weights) == 1 + 2  # before the first epoch, and after each
        assert changed(weights[0], weights[-1]) == layers
    assert all(parameter.requires_grad for parameter in trainer.conditionals.parameters())
    assert [(record.stage, record.epoch) for record in trainer.history] == [
        (stage, epoch) for stage in STAGES[stage2] for epoch in (1, 2)
    ]


def test_stages_of_no_epochs_are_left_out() -> None:
    trainer, script = watched(epochs_stage2=0, epochs_stage3=0)
    assert trainer.run() == 1
    assert {stage for stage, _ in script.seen} == {1}


def test_the_standardisation_is_never_trained() -> None:
    trainer, script = watched()
    trainer.run()
    first, last = script.seen[0][1], script.seen[-1][1]
    for name in (name for name in first if name.endswith(("mean", "deviation"))):
        assert torch.equal(first[name], last[name])


def test_wxor_is_computed_once_after_stage_1_from_all_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(training, "wxor_rates", lambda *args: calls.append(args) or wxor_rates(*args))
    extra = make_packed(make_corpus(5, seed=1), seed=1)
    trainer, script = watched(extra=extra)
    trainer.run()
    assert len(calls) == 1
    tables = {stage: state["wxor"] for stage, state in script.seen}
    assert not tables[1].any()
    assert torch.equal(tables[2], tables[3])
    trainer.restore(1)
    batches = [next(source.in_order()) for source in (trainer.train, extra)]
    with torch.no_grad():
        triples = [
            (trainer.conditionals.reliability(batch.document_vectors), batch.weak_labels, batch.document_index) for batch in batches
        ]
    torch.testing.assert_close(tables[2], wxor_scores(wxor_rates(triples, 3, 5)).float())
    alone = wxor_scores(wxor_rates(triples[:1], 3, 5)).float()
    assert not torch.allclose(tables[2], alone)


def test_without_stage_2_there_is_no_addon_prior() -> None:
    trainer, script = watched(stage2="none", g_r_stage1=0.05, g_r_stage23=0.05)
    trainer.run()
    assert not script.seen[-1][1]["wxor"].any()
    vectors = torch.randn(2, 5)
    third = trainer.conditionals.emission_mean(vectors)
    trainer.conditionals.stage = 1
    assert torch.equal(trainer.conditionals.emission_mean(vectors), third)


@pytest.mark.parametrize("weight", [0.0, 0.2, 1.0])
def test_stage_2_starts_from_observed_and_stage_1_emissions(weight: float, monkeypatch: pytest.MonkeyPatch) -> None:
    distances: list[Callable[..., Tensor]] = []
    pretrain = initialization.pretrain

    def spy(parameters: Any, distance: Callable[..., Tensor], *rest: Any) -> None:
        distances.append(distance)
        pretrain(parameters, distance, *rest)

    monkeypatch.setattr(initialization, "pretrain", spy)
    trainer = make_trainer(addon_weight=weight)
    trainer.run()
    batch = next(trainer.train.in_order())
    conditionals = trainer.conditionals
    with torch.no_grad():
        trainer.restore(1)
        mean = conditionals.emission_mean(batch.document_vectors).mean(0)
        target = weight * conditionals.observed_emission + (1 - weight) * mean
        trainer.restore(2)
        emission = conditionals.emission_mean(conditionals.networks.addon.mean[None])
        assert len(distances) == 2  # eq. (7), then this
        torch.testing.assert_close(distances[1](), ((emission[0] - target) ** 2).sum((-1, -2)).mean())


def test_the_addon_prior_starts_small() -> None:
    trainer, script = watched(pretrain_steps=0)
    trainer.run()
    first = next(state for stage, state in script.seen if stage == 2)
    assert bool((torch.sigmoid(first["networks.addon.bias"]) < 0.05).all())


# what is kept, and when a stage stops


def test_the_best_weights_of_each_stage_are_kept() -> None:
    # stage 1: before, then 3 epochs; and so on
    trainer, script = watched(*(0, 3, 5, 1), *(5, 4, 6, 2), *(6, 1, 2, 3), epochs_stage1=3, epochs_stage2=3, epochs_stage3=3)
    assert trainer.run() == 2
    assert trainer.stage_selection == {1: 5, 2: 6, 3: 6}
    for stage, place in ((1, 2), (2, 6), (3, 8)):
        kept = trainer.stage_weights[stage]
        assert all(torch.equal(kept[name], value) for name, value in script.seen[place][1].items())
    now = trainer.conditionals.state_dict()
    assert all(torch.equal(now[name], value) for name, value in script.seen[6][1].items())
    assert trainer.conditionals.stage == 2
    assert [record.selection for record in trainer.history] == [3, 5, 1, 4, 6, 2, 1, 2, 3]


def test_each_stage_goes_on_from_the_best_weights() -> None:
    trainer, script = watched(0, 3, 1, epochs_stage3=0, epochs_stage2=1)
    trainer.run()
    assert changed(script.seen[1][1], script.seen[3][1]) == {"addon"}  # stage 2's pre-training alone


def test_a_stage_ends_when_patience_runs_out() -> None:
    trainer = make_trainer(Script(0, 1, 1, 1), epochs_stage1=50, epochs_stage2=0, epochs_stage3=0, patience=2)
    trainer.run()
    assert [record.epoch for record in trainer.history] == [1, 2, 3]  # as good as before is not better


def test_patience_counts_from_the_last_better_epoch() -> None:
    trainer = make_trainer(Script(0, 1, 0, 2, 0, 0), epochs_stage1=50, epochs_stage2=0, epochs_stage3=0, patience=2)
    trainer.run()
    assert len(trainer.history) == 5


def test_the_mean_of_a_window_of_epochs_stands_for_the_last() -> None:
    """Scores 1, 9, 2, 9, 9: the mean of three is best (20 / 3) after the third epoch, not after the first."""
    trainer, script = watched(1, 9, 2, 9, 9, selection_window=3, epochs_stage1=4, epochs_stage2=0, epochs_stage3=0)
    trainer.run()
    assert trainer.stage_selection[1] == pytest.approx(20 / 3)
    kept = trainer.stage_weights[1]
    assert all(torch.equal(kept[name], script.seen[3][1][name]) for name in kept)


def test_scores_go_into_the_history() -> None:
    trainer = make_trainer(lambda: Selection(1.0, {"f1": 1.0, "precision": 2.0, "recall": 3.0}), patience=1)
    trainer.run()
    record = trainer.history[0]
    assert (record.valid_f1, record.valid_precision, record.valid_recall) == (1.0, 2.0, 3.0)
    assert (record.loss, record.kl) == (pytest.approx(-record.elbo), 0.0)
    assert record.evidence == record.elbo
    assert record.seconds > 0


# the loss


def test_training_lowers_the_loss() -> None:
    trainer = make_trainer(epochs_stage1=25, epochs_stage2=0, epochs_stage3=0, learning_rate_stage1=0.02)
    trainer.run()
    losses = [record.loss for record in trainer.history]
    assert losses[-1] < 0.95 * losses[0]


def test_a_step_follows_the_gradient_of_evidence_and_penalty() -> None:
    """One step of plain gradient descent against central differences, in float64."""
    trainer = make_trainer(sample_emission=False, weight_penalty=0.1, gradient_clip=1e9)
    trainer.prepare()
    conditionals = trainer.conditionals.double()
    batch = next(trainer.train.in_order()).to("cpu", torch.float64)
    layer = conditionals.networks.transition.outer
    layer.weight.data += 0.1
    trainer.steps.penalized = [layer.weight]

    def objective() -> float:
        loss, _ = loss_and_gradients(conditionals, trainer.steps.model.prior, batch, "enum")
        return float(loss / len(batch.weak_labels) + 0.1 * (layer.weight.detach() ** 2).sum())

    before, slopes = layer.weight.detach().clone(), {}
    for place in ((0, 0), (1, 3), (4, 2)):
        values = []
        for sign in (1, -1):
            layer.weight.data[place] = before[place] + sign * 1e-6
            values.append(objective())
        layer.weight.data[place] = before[place]
        slopes[place] = (values[0] - values[1]) / 2e-6
    trainer.steps.step(Share(batch, len(batch.weak_labels)), torch.optim.SGD([layer.weight], lr=1.0), "here")
    for place, slope in slopes.items():
        assert float((before - layer.weight.detach())[place]) == pytest.approx(slope, rel=1e-5)


def test_a_step_is_clipped() -> None:
    trainer = make_trainer(gradient_clip=1e-3)
    trainer.prepare()
    layer = trainer.conditionals.networks.transition.outer
    before = layer.weight.detach().clone()
    trainer.steps.step(next(trainer.steps.shares()), torch.optim.SGD([layer.weight], lr=1.0), "here")
    assert float((layer.weight - before).norm().detach()) == pytest.approx(1e-3, rel=1e-3)


# repeatable, and alone


def test_the_same_seed_gives_the_same_history() -> None:
    histories = []
    for _ in range(2):
        torch.manual_seed(3)
        trainer = make_trainer(seed=3)
        trainer.run()
        histories.append(without_seconds(trainer.history))
    assert histories[0] == histories[1]
    torch.manual_seed(4)
    other = make_trainer(seed=4)
    other.run()
    assert without_seconds(other.history) != histories[0]


def test_two_models_trained_side_by_side_are_as_alone() -> None:
    """The second one trains, whole, in the middle of the first one's first stage."""
    other_packed = make_packed(make_corpus(6, seed=5), seed=5)
    arguments: list[dict[str, Any]] = [
        {"sample_emission": False},
        {"sample_emission": False, "packed": other_packed, "reliability_level": "entity"},
    ]
    alone = [make_trainer(**each) for each in arguments]
    for trainer in alone:
        trainer.run()
    (first, script), second = watched(**arguments[0]), make_trainer(**arguments[1])
    script.afterwards = lambda call: None if call != 1 else second.run() and None
    first.run()
    for trainer, expected in zip((first, second), alone, strict=True):
        assert without_seconds(trainer.history) == without_seconds(expected.history)
        weights = trainer.conditionals.state_dict()
        assert all(torch.equal(weights[name], value) for name, value in expected.conditionals.state_dict().items())


# what cannot go on


def finite(trainer: Trainer) -> bool:
    return all(bool(torch.isfinite(parameter).all()) for parameter in trainer.conditionals.parameters())


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("layer", ["transition.outer", "reliability"])
@pytest.mark.parametrize("sample_emission", [True, False])
def test_a_poisoned_weight_stops_training_and_the_last_good_weights_stay(layer: str, sample_emission: bool, poison: float) -> None:
    trainer, script = watched(0, 1, 0.5, sample_emission=sample_emission, epochs_stage1=5)

    def after_epoch_2(call: int) -> None:
        if call == 2:
            trainer.conditionals.networks.get_submodule(layer).weight.data[0, 0] = poison

    script.afterwards = after_epoch_2
    with pytest.raises(TrainingError) as caught:
        trainer.run()
    message = str(caught.value)
    assert message.startswith("Training stopped at stage 1, epoch 3, step 1, documents d")
    assert f"the parameter networks.{layer}.weight is not finite" in message
    assert "smaller learning rate" in message
    assert len(trainer.history) == 2
    now = trainer.conditionals.state_dict()
    assert all(torch.equal(now[name], value) for name, value in script.seen[1][1].items())
    assert finite(trainer)
    assert all(parameter.requires_grad for parameter in trainer.conditionals.parameters())


def test_a_failure_in_stage_3_keeps_the_best_of_all_stages() -> None:
    trainer, script = watched(*(0, 5, 1), *(1, 2, 1), *(1, 2, 3))

    def in_stage_3(call: int) -> None:
        if call == 7:
            trainer.conditionals.networks.transition.bias.data[0] = float("nan")

    script.afterwards = in_stage_3
    with pytest.raises(TrainingError, match="stage 3, epoch 2, step 1"):
        trainer.run()
    assert trainer.conditionals.stage == 1
    now = trainer.conditionals.state_dict()
    assert all(torch.equal(now[name], value) for name, value in script.seen[1][1].items())


def test_a_huge_learning_rate_gives_a_poor_model_not_a_broken_one() -> None:
    script = Script(0, *[-1] * 99)
    trainer = make_trainer(script, learning_rate_stage1=1e3, epochs_stage1=4, transition_normalization="row")
    trainer.run()  # probabilities are bounded
    assert finite(trainer)
    assert trainer.conditionals.stage == 1


def test_a_learning_rate_beyond_all_measure_stops_training() -> None:
    trainer = make_trainer(learning_rate_stage1=1e30)
    with pytest.raises(TrainingError, match=r"stage 1, epoch 1, step 2, documents d.*networks\..* is not finite"):
        trainer.run()
    assert finite(trainer)
    assert trainer.conditionals.stage == 1


def test_weights_of_a_step_that_overflows_are_not_kept() -> None:
    trainer = make_trainer()
    trainer.prepare()
    layer = trainer.conditionals.networks.transition
    optimizer = torch.optim.SGD([layer.bias], lr=float("inf"))
    with pytest.raises(TrainingError, match=r"at here, documents .*parameter networks.transition.bias is not finite"):
        trainer.steps.step(next(trainer.steps.shares()), optimizer, "here")


def test_a_fast_path_that_is_wrong_is_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    right = chain.log_evidence
    monkeypatch.setattr(chain, "log_evidence", lambda *args, **options: right(*args, **options) * 1.001)
    trainer = make_trainer(verify=True)
    with pytest.raises(TrainingError, match=r"differs from TraceEnum_ELBO .*--marginalize enum"):
        trainer.run()
    assert trainer.history == []
    make_trainer(verify=True, marginalize="enum").run()
    make_trainer(verify=False).run()


def test_a_right_fast_path_passes() -> None:
    make_trainer(verify=True).run()


def test_verification_changes_nothing_of_the_training() -> None:
    runs = []
    for verify in (False, True):
        torch.manual_seed(0)
        trainer = make_trainer(verify=verify, transition_hidden=4, dropout=0.5)
        trainer.run()
        runs.append((without_seconds(trainer.history), trainer.stage_weights[3]))
    (history, weights), (verified_history, verified_weights) = runs
    assert history == verified_history
    assert all(torch.equal(weights[name], verified_weights[name]) for name in weights)
