"""The layers: what standardising, sharing, the hidden layer and dropout do."""

from __future__ import annotations

import pytest
import torch

from pyro_chmm.model.networks import StandardizedLinear, StandardizedProjection, Transition


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def randomized(module: torch.nn.Module) -> None:
    with torch.no_grad():
        for value in [*module.parameters(), *module.buffers()]:
            value.copy_(torch.rand_like(value) + 0.5)


def test_vectors_are_standardised() -> None:
    layer = StandardizedLinear(3, 2)
    randomized(layer)
    vectors = torch.randn(4, 3)
    expected = ((vectors - layer.mean) / layer.deviation) @ layer.weight.T + layer.bias
    torch.testing.assert_close(layer(vectors), expected)


def test_dropout_leaves_features_out_of_a_batch_and_keeps_the_mean() -> None:
    """Each of 20,000 steps drops a feature or doubles it; a feature's share of steps is within 5 standard errors of a half."""
    layer = StandardizedProjection(3, 1, dropout=0.5)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 10.0, 100.0]]))
    vectors = torch.ones(2, 3)
    outputs = torch.cat([layer(vectors) for _ in range(20000)], dim=1)
    assert torch.equal(outputs[0], outputs[1])  # the same features for all vectors of a step
    sums = {2.0 * (a + 10 * b + 100 * c) for a in (0, 1) for b in (0, 1) for c in (0, 1)}
    assert set(outputs[0].tolist()) == sums
    assert abs(float((outputs[0] >= 200).float().mean()) - 0.5) < 5 * 0.5 / 20000**0.5
    assert layer.eval()(vectors).tolist() == [[111.0], [111.0]]


def test_the_papers_transition_is_one_linear_layer() -> None:
    layer = Transition(4, 3)
    randomized(layer)
    vectors = torch.randn(5, 4)
    standardized = (vectors - layer.outer.mean) / layer.outer.deviation
    torch.testing.assert_close(layer(vectors), layer.bias + (standardized @ layer.outer.weight.T).unflatten(-1, (3, 3)))


def test_shared_weights_look_at_the_label_entered_alone() -> None:
    layer = Transition(4, 3, shared=True)
    randomized(layer)
    moved = layer(torch.randn(5, 4)) - layer.bias
    assert layer.outer.weight.shape == (3, 4)
    assert torch.equal(moved[:, 0], moved[:, 1])
    assert torch.equal(moved[:, 0], moved[:, 2])
    assert not torch.equal(moved[:, :, 0], moved[:, :, 1])


@pytest.mark.parametrize("shared", [False, True])
def test_a_hidden_layer(shared: bool) -> None:
    layer = Transition(4, 3, hidden=6, shared=shared, dropout=0.4)
    randomized(layer)
    assert layer.inner is not None
    with torch.no_grad():
        layer.inner.weight.sub_(1.0)  # some units off, some on
        layer.inner.bias.sub_(1.0)
    vectors = torch.randn(5, 4)
    hidden = torch.relu(layer.eval().inner(vectors))  # type: ignore[misc]
    assert 0 < int((hidden > 0).sum()) < hidden.numel()
    outputs = layer.outer(hidden)
    expected = layer.bias + (outputs.unsqueeze(-2) if shared else outputs.unflatten(-1, (3, 3)))
    torch.testing.assert_close(layer(vectors), expected)
    assert torch.equal(layer(vectors), layer(vectors))
    layer.train()
    assert not torch.equal(layer(vectors), layer(vectors))
