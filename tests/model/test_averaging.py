"""The average of weights: its values, and that training scores and keeps it."""

from __future__ import annotations

import torch

from pyro_chmm.model.averaging import WeightAverage
from tests.model.corpora import Script, make_trainer, watched


def test_values_by_hand() -> None:
    """A decay of 0.3 holds from the third update on; before, (1 + n) / (10 + n) is less."""
    conditionals = make_trainer().conditionals
    bias = conditionals.networks.reliability.bias
    average = WeightAverage(conditionals, 0.3)
    expected = bias.detach().clone()
    for step in range(1, 8):
        with torch.no_grad():
            bias.fill_(float(step))
        average.update()
        decay = min(0.3, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
        with average.in_place():
            torch.testing.assert_close(conditionals.networks.reliability.bias, expected)
        assert conditionals.networks.reliability.bias is bias


def test_a_decay_of_0_is_no_average() -> None:
    conditionals = make_trainer().conditionals
    average = WeightAverage(conditionals, 0.0)
    with torch.no_grad():
        conditionals.networks.reliability.bias.fill_(7.0)
    average.update()
    with average.in_place():
        assert bool((conditionals.networks.reliability.bias == 7.0).all())


def test_an_error_puts_the_trained_weights_back() -> None:
    conditionals = make_trainer().conditionals
    trained = conditionals.networks
    try:
        with WeightAverage(conditionals, 0.9).in_place():
            assert conditionals.networks is not trained
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert conditionals.networks is trained


def test_an_average_goes_on_from_its_state() -> None:
    conditionals = make_trainer().conditionals
    first = WeightAverage(conditionals, 0.9)
    with torch.no_grad():
        conditionals.networks.reliability.bias.fill_(1.0)
    first.update()
    second = WeightAverage(conditionals, 0.9)
    second.restore(first.state())
    with torch.no_grad():
        conditionals.networks.reliability.bias.fill_(5.0)
    first.update()
    second.update()
    for name, value in first.state().items():
        assert torch.equal(second.state()[name], value)


def test_training_scores_and_keeps_the_average() -> None:
    trainer, script = watched(weight_averaging=0.5, epochs_stage2=0, epochs_stage3=0)
    trainer.run()
    assert isinstance(script, Script)
    kept = trainer.stage_weights[1]
    last = script.seen[-1][1]
    assert all(torch.equal(kept[name], last[name]) for name in kept)
    plain, other = watched(weight_averaging=0.0, epochs_stage2=0, epochs_stage3=0)
    plain.run()
    assert [a[1].keys() for a in script.seen] == [b[1].keys() for b in other.seen]
    bias = "networks.reliability.bias"
    assert torch.equal(script.seen[0][1][bias], other.seen[0][1][bias])  # the first weights are averaged with nothing
    assert not torch.equal(script.seen[-1][1][bias], other.seen[-1][1][bias])
