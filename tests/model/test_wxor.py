"""Equations (5) and (6)."""

import itertools

import pytest
import torch
from torch import Tensor

from pyro_chmm.model.wxor import addon_prior, wxor_rates, wxor_scores


def rates_by_the_book(reliability: Tensor, labels: Tensor, index: Tensor, num_labels: int) -> Tensor:
    """Eq. (5), every loop written out."""
    lfs = labels.shape[1]
    totals = torch.zeros(lfs, num_labels, num_labels, dtype=torch.float64)
    counts = torch.zeros(lfs, num_labels, dtype=torch.float64)
    for n in range(len(labels)):
        trust = reliability[index[n]]
        for k, query in itertools.product(range(lfs), range(1, num_labels)):
            if labels[n, k] != query:
                continue
            counts[k, query] += 1
            for target in range(1, num_labels):
                others = sum(trust[j, target] for j in range(lfs) if j != k and labels[n, j] == target)
                if target != query:
                    totals[k, query, target] += (1 - trust[k, query]) * others
    return totals / counts.clamp(min=1).unsqueeze(-1)


@pytest.fixture
def observations() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    reliability = torch.rand(3, 4, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(-1, 5, (60, 4), generator=generator)
    index = torch.arange(3).repeat_interleave(20)
    return reliability, labels, index


def test_rates_equal_the_written_out_sums(observations: tuple[Tensor, Tensor, Tensor]) -> None:
    expected = rates_by_the_book(*observations, num_labels=5)
    torch.testing.assert_close(wxor_rates([observations], 4, 5), expected)


def test_rates_do_not_depend_on_batches(observations: tuple[Tensor, Tensor, Tensor]) -> None:
    reliability, labels, index = observations
    parts = [
        (reliability[m : m + 1], labels[index == m], torch.zeros(20, dtype=torch.long)) for m in range(3)
    ]
    torch.testing.assert_close(wxor_rates(parts, 4, 5), wxor_rates([observations], 4, 5))


def test_agreeing_and_silent_lfs_have_rate_0() -> None:
    labels = torch.tensor([[1, 1, 0], [2, 2, -1], [0, 0, 0]])
    rates = wxor_rates([(torch.full((1, 3, 3), 0.5), labels, torch.zeros(3, dtype=torch.long))], 3, 3)
    assert rates.abs().sum() == 0


def test_rate_by_hand() -> None:
    # LF 0 says B (doubt 0.4) against LF 1's I (trust 0.7) on one of its two Bs
    labels = torch.tensor([[1, 2], [1, 0]])
    reliability = torch.tensor([[[0.9, 0.6, 0.5], [0.9, 0.8, 0.7]]])
    rates = wxor_rates([(reliability, labels, torch.zeros(2, dtype=torch.long))], 2, 3)
    assert rates[0, 1, 2].item() == pytest.approx(0.4 * 0.7 / 2)
    assert rates[1, 2, 1].item() == pytest.approx(0.3 * 0.6)


@pytest.mark.parametrize("normalization", ["softmax", "sum", "rate"])
def test_scores_are_0_at_o_and_on_the_diagonal(
    normalization: str, observations: tuple[Tensor, Tensor, Tensor]
) -> None:
    scores = wxor_scores(wxor_rates([observations], 4, 5), normalization)
    assert scores[:, 0].abs().sum() == scores[:, :, 0].abs().sum() == 0
    assert scores.diagonal(dim1=1, dim2=2).abs().sum() == 0
    assert (scores >= 0).all()
    assert (scores <= 1).all()


def test_softmax_runs_over_queries() -> None:
    rates = torch.zeros(1, 3, 3)
    rates[0, 1, 2] = 0.3
    scores = wxor_scores(rates)
    assert scores[0, 1, 2].item() == pytest.approx(torch.tensor([0.3, 0.0]).softmax(0)[0].item())


def test_sum_is_all_or_nothing_with_one_entity_type() -> None:
    rates = torch.zeros(1, 3, 3)
    rates[0, 1, 2] = 1e-6
    assert wxor_scores(rates, "sum")[0].tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 0]]


def test_addon_prior_has_targets_as_rows() -> None:
    scores = torch.zeros(1, 3, 3)
    scores[0, 1, 2] = 0.5  # query B, target I
    scale = torch.tensor([[[0.1, 0.2, 0.3]]])
    prior = addon_prior(scale, scores)
    assert prior.shape == (1, 1, 3, 3)
    assert prior[0, 0, 2, 1].item() == pytest.approx(0.2 * 0.5)
    assert prior.sum().item() == pytest.approx(0.1)
