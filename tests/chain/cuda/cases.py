"""Packed batches on which the CUDA backend must agree with the reference."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

INF = float("inf")


class Case(NamedTuple):
    initial: Tensor
    transition: Tensor
    log_emission: Tensor
    offsets: Tensor


def random_case(
    labels: int, lengths: list[int], *, dtype: torch.dtype = torch.float32, device: str = "cpu", seed: int = 0
) -> Case:
    """Logits, about a quarter of the transitions forbidden, and log emissions down to about -10."""
    generator = torch.Generator().manual_seed(seed)
    tokens = sum(lengths)
    transition = 2 * torch.randn(tokens, labels, labels, generator=generator)
    forbidden = torch.rand(tokens, labels, labels, generator=generator) < 0.25
    forbidden &= ~torch.eye(labels, dtype=torch.bool)
    transition[forbidden] = -INF
    log_emission = -5 * torch.rand(tokens, labels, generator=generator) - 5 * torch.rand(
        tokens, 1, generator=generator
    )
    initial = torch.rand(labels, generator=generator).softmax(-1)
    offsets = torch.tensor([0, *lengths]).cumsum(0).to(device)
    return Case(
        initial.to(device, dtype), transition.to(device, dtype), log_emission.to(device, dtype), offsets
    )


def as_probabilities(case: Case) -> Case:
    return case._replace(transition=case.transition.softmax(-1))


def difference(found: Any, expected: Any) -> float:
    """Largest absolute difference, relative to the largest finite number expected where that is above 1.

    Equal infinities are 0 apart.
    """
    found, expected = found.double().cpu(), expected.double().cpu()
    assert found.shape == expected.shape
    if found.numel() == 0:
        return 0.0
    apart = torch.where(found == expected, 0.0, (found - expected).abs())
    finite = expected[expected.isfinite()].abs()
    scale = max(1.0, float(finite.max())) if finite.numel() else 1.0
    return float(apart.max()) / scale
