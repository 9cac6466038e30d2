"""The fast path against TraceEnum_ELBO, on a user's own documents."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace

import pyro
import torch
from torch import Tensor

from pyro_chmm.data.batching import PackedBatch
from pyro_chmm.errors import TrainingError
from pyro_chmm.model.conditionals import Conditionals
from pyro_chmm.model.priors import AnyPrior
from pyro_chmm.model.sparse_chmm import SparseCHMMGuide, SparseCHMMModel

#: Largest relative difference allowed in float64.
TOLERANCE = 1e-5
#: Before training, so many short documents of so many tokens are compared: under a second.
_DOCUMENTS, _TOKENS = 4, 12


@dataclass(frozen=True)
class Comparison:
    """Largest relative differences between ``marginalize="fast"`` and ``"enum"``."""

    loss: float
    gradient: float

    @property
    def ok(self) -> bool:
        """Whether both lie within the tolerance; a NaN does not."""
        return self.loss <= TOLERANCE and self.gradient <= TOLERANCE


def loss_and_gradients(
    conditionals: Conditionals, prior: AnyPrior, batch: PackedBatch, marginalize: str, seed: int = 0
) -> tuple[Tensor, dict[str, Tensor]]:
    """Minus the ELBO of a batch and its gradient at every parameter; the same seed draws the same emissions."""
    config = conditionals.config
    model = SparseCHMMModel(conditionals, prior, config.kl_weight, marginalize)
    guide = SparseCHMMGuide(conditionals, prior, config.kl_weight)
    conditionals.zero_grad()
    with torch.random.fork_rng(devices=[]), pyro.validation_enabled(False):
        torch.manual_seed(seed)
        loss: Tensor = model.elbo().differentiable_loss(model, guide, batch)  # type: ignore[no-untyped-call]
    loss.backward()
    gradients = {
        name: parameter.grad.clone()
        for name, parameter in conditionals.named_parameters()
        if parameter.grad is not None
    }
    conditionals.zero_grad()
    return loss.detach(), gradients


def compare(conditionals: Conditionals, prior: AnyPrior, batch: PackedBatch) -> Comparison:
    """Loss and gradients of both paths in float64, on copies: the model stays as it is."""
    double = copy.deepcopy(conditionals).double()
    for parameter in double.parameters():
        parameter.requires_grad_(True)
    double_batch = batch.to(batch.offsets.device, torch.float64)
    fast, fast_gradients = loss_and_gradients(double, prior, double_batch, "fast")
    slow, slow_gradients = loss_and_gradients(double, prior, double_batch, "enum")
    differences = gradient_differences(fast_gradients, slow_gradients)
    return Comparison(relative_difference(fast, slow), max(differences.values(), key=_nan_first, default=0.0))


def gradient_differences(found: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, float]:
    """Largest difference of each parameter's gradient, relative to that gradient's largest entry.

    A gradient that is 0 but for rounding, as that of weights on constant vectors, has no scale of its own: it is compared with a
    millionth of the largest entry of all.
    """
    least = 1e-6 * max((largest(gradient) for gradient in expected.values()), default=0.0)
    return {name: relative_difference(found[name], expected[name], least) for name in expected}


def worst_parameter(differences: dict[str, float]) -> str:
    """The parameter with the largest difference; a NaN is larger than any number."""
    return max(differences, key=lambda name: _nan_first(differences[name]))


def relative_difference(found: Tensor, expected: Tensor, least: float = 0.0) -> float:
    """Largest difference, relative to the largest expected value, or to ``least`` if that is larger; NaN if there is one."""
    return largest(found - expected) / max(largest(expected), least, 1e-12)


def largest(values: Tensor) -> float:
    """Largest absolute value, 0 of none; unlike with Python's max, a NaN is kept."""
    return float(values.abs().amax()) if values.numel() else 0.0


def _nan_first(difference: float) -> float:
    return math.inf if math.isnan(difference) else difference


def shortened(batch: PackedBatch, documents: int, tokens: int) -> PackedBatch:
    """The first tokens of the first documents of a batch."""
    lengths = batch.lengths[:documents].clamp(max=tokens)
    rows = torch.cat(
        [
            torch.arange(int(n), device=lengths.device) + start
            for start, n in zip(batch.offsets, lengths, strict=False)
        ]
    )
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    return replace(
        batch,
        documents=batch.documents[:documents],
        offsets=offsets,
        document_vectors=batch.document_vectors[:documents],
        token_vectors=batch.token_vectors[rows],
        weak_labels=batch.weak_labels[rows],
        weight=batch.weight[rows],
        coarse=None if batch.coarse is None else batch.coarse.rows(rows),
    )


def refuse_mismatch(conditionals: Conditionals, prior: AnyPrior, batch: PackedBatch) -> None:
    """Compare on a few short documents of a batch.

    :raises TrainingError: where the fast path differs from enumeration.
    """
    comparison = compare(conditionals, prior, shortened(batch, _DOCUMENTS, _TOKENS))
    if not comparison.ok:
        raise TrainingError(
            f"The fast path differs from TraceEnum_ELBO on the first batch: loss by {comparison.loss:.2e}, gradients by "
            f"{comparison.gradient:.2e} (relative, at most {TOLERANCE:.0e}). Train with --marginalize enum or "
            "--backend reference, and report this with `pyro-chmm verify --json`."
        )
