"""Equations (1) to (4)."""

import pytest
import torch

from pyro_chmm.errors import ConfigError
from pyro_chmm.model.reliability import (
    check_expansion,
    emit_to_o,
    expand_reliability,
    reliability_scores,
    scale_reliability,
)

GRID = torch.linspace(0, 1, 2001, dtype=torch.float64)
# (n, s, r) of Table 11 with r = 1/K, and the shapes of figure 3
SCALINGS = [
    (1.2, 1.5, 1 / 16),
    (1.2, 3, 1 / 5),
    (0.9, 1.1, 1 / 9),
    (0.8, 1.5, 1 / 3),
    (1.1, 1, 1 / 17),
    (2, 1, 0.5),
    (3, 2, 0.5),
]
# (L, n, r) of Table 11 and of figure 4
EXPANSIONS = [(9, 4, 1 / 18), (9, 4, 1 / 180), (3, 4, 1 / 60), (5, 4, 1 / 50), (37, 4, 1 / 185), (5, 2, 0.3)]


@pytest.mark.parametrize(("n", "s", "r"), SCALINGS)
def test_scaling_is_continuous_and_monotonic_with_the_right_end_points(n: float, s: float, r: float) -> None:
    scaled = scale_reliability(GRID, n, s, r)
    assert scaled[0].item() == pytest.approx(0, abs=1e-3)
    assert scaled[-1].item() == pytest.approx(1, abs=1e-6)
    assert (scaled.diff() > 0).all()
    split = r**s
    around = torch.tensor([split * (1 - 1e-9), split, split * (1 + 1e-9)], dtype=torch.float64)
    assert scale_reliability(around, n, s, r).tolist() == pytest.approx([r] * 3, abs=1e-6)


def test_scaling_by_hand() -> None:
    scores = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    # n = 2, s = 1, r = 0.5: a^2 / 0.5 below, 1 - (1 - a)^2 / 0.5 above
    assert scale_reliability(scores, 2, 1, 0.5).tolist() == pytest.approx([0.125, 0.5, 0.875])
    assert scale_reliability(scores, 1, 1, 0.5).tolist() == pytest.approx(scores.tolist())


def test_figure_3_s_above_1_raises_all_and_n_above_1_spreads() -> None:
    inner = GRID[1:-1]
    assert (scale_reliability(inner, 1, 2, 0.5) > inner).all()
    spread = scale_reliability(inner, 2, 1, 0.5)
    assert (spread[inner < 0.5] < inner[inner < 0.5]).all()
    assert (spread[inner > 0.5] > inner[inner > 0.5]).all()


def test_gradients_are_finite_at_both_ends() -> None:
    ends = torch.tensor([0.0, 1e-30, 1.0], dtype=torch.float64, requires_grad=True)
    scale_reliability(ends, 0.8, 1.5, 1 / 3).sum().backward()
    assert torch.isfinite(ends.grad).all()


@pytest.mark.parametrize(("labels", "n", "r"), EXPANSIONS)
def test_emit_to_o(labels: int, n: float, r: float) -> None:
    values = emit_to_o(GRID, labels, n, r)
    assert values[0].item() == 1
    assert values[-1].item() == pytest.approx(0, abs=1e-12)
    assert (values.diff() < 0).all()
    around = emit_to_o(torch.tensor([r, r * (1 + 1e-10)], dtype=torch.float64), labels, n, r)
    assert around[0].item() == pytest.approx(around[1].item(), abs=1e-7)
    zero = torch.zeros((), dtype=torch.float64, requires_grad=True)
    emit_to_o(zero, labels, n, r).backward()
    assert zero.grad.item() == pytest.approx(1 - labels)
    check_expansion(labels, n, r)


def test_figure_4_left_off_diagonals_start_as_the_diagonal_does() -> None:
    small = torch.tensor([[1e-6] * 5], dtype=torch.float64)
    row = expand_reliability(small, 2, 0.3)[0, 2]
    assert row[1].item() == pytest.approx(row[2].item(), rel=1e-4)


def test_larger_n_lowers_emit_to_o_faster() -> None:
    below = GRID[(GRID > 0) & (GRID < 0.1)]
    assert (emit_to_o(below, 5, 4, 0.1) < emit_to_o(below, 5, 2, 0.1)).all()


def test_an_expansion_that_leaves_the_simplex_is_refused() -> None:
    with pytest.raises(ConfigError, match="smaller g_r"):
        check_expansion(9, 2.0, 0.9)


@pytest.mark.parametrize("naive", [False, True])
@pytest.mark.parametrize("labels", [3, 5, 9, 37])
def test_base_prior_rows_lie_on_the_simplex(labels: int, naive: bool) -> None:
    reliability = torch.rand(4, 6, labels, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    reliability[0, 0], reliability[0, 1] = 0, 1
    prior = expand_reliability(reliability, 4, 1 / (20 * labels), naive)
    assert prior.shape == (4, 6, labels, labels)
    assert prior.sum(-1).flatten().tolist() == pytest.approx([1.0] * (4 * 6 * labels))
    assert (prior >= -1e-12).all()
    assert torch.equal(prior.diagonal(dim1=-2, dim2=-1), reliability)


def test_base_prior_by_hand() -> None:
    a = torch.tensor([[0.9, 0.5, 0.2]], dtype=torch.float64)
    prior = expand_reliability(a, 4, 0.1)[0]
    g = emit_to_o(a[0], 3, 4, 0.1).tolist()
    assert prior[0].tolist() == pytest.approx([0.9, 0.05, 0.05])
    assert prior[1].tolist() == pytest.approx([g[1], 0.5, 0.5 - g[1]])
    assert prior[2].tolist() == pytest.approx([g[2], 0.8 - g[2], 0.2])
    assert expand_reliability(a, 4, 0.1, naive=True)[0, 1].tolist() == pytest.approx([0.25, 0.5, 0.25])


def test_detached_entries_carry_no_gradient() -> None:
    a = torch.tensor([[0.9, 0.5, 0.2]], dtype=torch.float64, requires_grad=True)
    expand_reliability(a, 4, 0.1, detach=True)[0, 1, 2].backward()
    assert a.grad.abs().sum() == 0


def test_softmax_guarantees_one_trusted_lf_and_o_is_independent() -> None:
    logits = torch.randn(7, 5, 3, generator=torch.Generator().manual_seed(0))
    scores = reliability_scores(logits)
    assert scores[..., 1:].sum(-2).flatten().tolist() == pytest.approx([1.0] * 14)
    assert torch.equal(scores[..., 0], torch.sigmoid(logits[..., 0]))
    assert torch.equal(reliability_scores(logits, softmax=False), torch.sigmoid(logits))


def test_a_single_lf_has_no_share_to_take() -> None:
    logits = torch.randn(2, 1, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(reliability_scores(logits), torch.sigmoid(logits))
