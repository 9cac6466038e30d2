"""Eq. (10) against a loop over every token and labeling function."""

import pytest
import torch
from torch import Tensor

from pyro_chmm import chain
from pyro_chmm.errors import ChainError
from tests.chain.cases import INF, close

BACKENDS = ("reference", "cpu")
LENGTHS = (3, 0, 1, 6, 2)


def make(labels: int, lfs: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(labels)
    tokens = sum(LENGTHS)
    log_emission = torch.randn(len(LENGTHS), lfs, labels, labels, generator=generator, dtype=dtype)
    # half of what is said is label 0, as in real weak labels: runs of the same label
    weak_labels = torch.randint(-1, labels, (tokens, lfs), generator=generator)
    weak_labels[torch.rand(tokens, lfs, generator=generator) < 0.5] = 0
    weight = torch.rand(tokens, lfs, generator=generator, dtype=dtype)
    offsets = torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0).tolist()])
    return log_emission, weak_labels.to(torch.int16), weight, offsets


def plain(log_emission: Tensor, weak_labels: Tensor, weight: Tensor | None, offsets: Tensor) -> Tensor:
    rows = []
    for document in range(len(offsets) - 1):
        for n in range(int(offsets[document]), int(offsets[document + 1])):
            row = log_emission.new_zeros(log_emission.shape[2])
            for k in range(weak_labels.shape[1]):
                said = int(weak_labels[n, k])
                if said >= 0:
                    factor = 1.0 if weight is None else weight[n, k]
                    row = row + factor * log_emission[document, k, :, said]
            rows.append(row)
    return torch.stack(rows)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("labels", "lfs"), [(1, 1), (3, 4), (9, 0), (37, 5)])
def test_values_and_gradients(backend: str, weighted: bool, dtype: torch.dtype, labels: int, lfs: int) -> None:
    log_emission, weak_labels, weights, offsets = make(labels, lfs, dtype)
    weight = weights.requires_grad_() if weighted else None
    leaves = [log_emission.requires_grad_()] + ([weights] if weighted else [])
    expected = plain(log_emission, weak_labels, weight, offsets)
    actual = chain.emission_evidence(log_emission, weak_labels, weight, offsets, backend=backend)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    assert actual.dtype == dtype
    assert close(actual, expected, tolerance)
    cotangent = torch.randn(expected.shape, generator=torch.Generator().manual_seed(0), dtype=dtype)
    if lfs == 0:
        return
    pairs = zip(
        torch.autograd.grad(actual, leaves, cotangent),
        torch.autograd.grad(expected, leaves, cotangent),
        strict=True,
    )
    for got, want in pairs:
        assert close(got, want, tolerance)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_silenced_lf_says_nothing_even_where_it_is_impossible(backend: str) -> None:
    log_emission, weak_labels, weight, offsets = make(3, 4)
    log_emission[:, 1] = -INF
    weight[:, 1] = 0
    silent = weak_labels.clone()
    silent[:, 1] = -1
    log_emission.requires_grad_()
    weight.requires_grad_()
    actual = chain.emission_evidence(log_emission, weak_labels, weight, offsets, backend=backend)
    assert torch.equal(actual, chain.emission_evidence(log_emission, silent, weight, offsets, backend=backend))
    actual[:, :1].sum().backward()
    assert log_emission.grad.isfinite().all()
    assert (log_emission.grad[:, 1] == 0).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_impossible_emissions_come_through(backend: str) -> None:
    log_emission, weak_labels, _, offsets = make(3, 4)
    log_emission[0, 2, 1, :] = -INF
    weak_labels[0, 2] = 2
    actual = chain.emission_evidence(log_emission, weak_labels, None, offsets, backend=backend)
    assert actual[0, 1] == -INF
    assert actual.isnan().sum() == 0


def test_integer_types_and_strides() -> None:
    log_emission, weak_labels, weight, offsets = make(3, 4)
    expected = chain.emission_evidence(log_emission, weak_labels, weight, offsets)
    for dtype in (torch.int8, torch.int32, torch.int64):
        assert torch.equal(chain.emission_evidence(log_emission, weak_labels.to(dtype), weight, offsets), expected)
    turned = weak_labels.T.contiguous().T
    other = log_emission.movedim(3, 2).contiguous().movedim(2, 3)
    assert torch.equal(chain.emission_evidence(other, turned, weight, offsets), expected)


def test_bad_input() -> None:
    log_emission, weak_labels, weight, offsets = make(3, 4)

    def refuse(message: str, *inputs: Tensor | None) -> None:
        with pytest.raises(ChainError, match=message):
            chain.emission_evidence(*inputs)

    refuse(r"log_emission has shape \(5, 4, 9\)", log_emission.flatten(2), weak_labels, weight, offsets)
    refuse(r"log_emission has shape .*; expected \(B, K, L, L\)", log_emission[..., :2], weak_labels, weight, offsets)
    refuse(r"weak_labels has shape \(12, 3\); expected \(N, 4\)", log_emission, weak_labels[:, :3], weight, offsets)
    refuse("weak_labels has dtype torch.float64", log_emission, weak_labels.double(), weight, offsets)
    refuse("weight has shape", log_emission, weak_labels, weight[:3], offsets)
    refuse("weight is .*float32", log_emission, weak_labels, weight.float(), offsets)
    refuse(r"expected \(6,\): log_emission holds 5", log_emission, weak_labels, weight, torch.tensor([0, 5, 12]))
    refuse("offsets run from 0 to 11", log_emission, weak_labels, weight, offsets.clamp(max=11))
    for wrong in (3, -2):
        bad = weak_labels.clone()
        bad[7, 2] = wrong
        refuse(rf"weak_labels\[7, 2\] is {wrong}; expected a label id from 0 to 2", log_emission, bad, weight, offsets)
    refuse("has 129 labels", torch.zeros(5, 1, 129, 129), weak_labels[:, :1], None, offsets)
