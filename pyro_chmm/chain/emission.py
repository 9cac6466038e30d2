"""Eq. (10): the log evidence of each token, from what the labeling functions said, as one fused operator."""

from typing import Any

import torch
from torch import Tensor

from pyro_chmm.chain import backends
from pyro_chmm.chain.validation import check_emission
from pyro_chmm.errors import ChainError


def emission_evidence(
    log_emission: Tensor,
    weak_labels: Tensor,
    weight: Tensor | None,
    offsets: Tensor,
    *,
    backend: str = "auto",
) -> Tensor:
    """out[n, l] = sum over k of weight[n, k] * log_emission[doc(n), k, l, weak_labels[n, k]], over the LFs that did not abstain.

    * ``log_emission`` (B, K, L, L): log probability that LF k says the observed label (last axis) where the label is l
    * ``weak_labels`` (N, K): signed integers, -1 where the LF abstained
    * ``weight`` (N, K) or None (all 1), of the dtype of ``log_emission``; 0 silences an LF, even one whose log emission is -inf
    * ``offsets`` (B + 1,) int64: the tokens of each document
    * returns (N, L), differentiable once in ``log_emission`` and ``weight``

    Raises ChainError for shapes, dtypes, devices, offsets or label ids that do not fit.
    """
    check_emission(log_emission, weak_labels, weight, offsets)
    result: Tensor = chain_emission_evidence(log_emission, weak_labels.to(torch.int16), weight, offsets, backend)
    return result


@torch.library.custom_op("pyro_chmm::chain_emission_evidence", mutates_args=())
def chain_emission_evidence(
    log_emission: Tensor, weak_labels: Tensor, weight: Tensor | None, offsets: Tensor, backend: str
) -> Tensor:
    """The sum of eq. (10), (N, L)."""
    run = backends.function(backend, "emission_evidence", log_emission.device)
    result: Tensor = run(*_plain(log_emission, weak_labels, weight, offsets))
    return result


@torch.library.custom_op("pyro_chmm::chain_emission_evidence_backward", mutates_args=())
def chain_emission_evidence_backward(
    cotangent: Tensor,
    log_emission: Tensor,
    weak_labels: Tensor,
    weight: Tensor | None,
    offsets: Tensor,
    backend: str,
    weight_gradient: bool,
) -> tuple[Tensor, Tensor]:
    """Gradients to the log emission and to the weight (empty where not asked for)."""
    run = backends.function(backend, "emission_evidence_backward", log_emission.device)
    inputs = _plain(log_emission, weak_labels, weight, offsets)
    first, second = run(cotangent.detach().contiguous(), *inputs, weight_gradient=weight_gradient)
    return first, log_emission.new_empty(0) if second is None else second


@chain_emission_evidence.register_fake
def _(log_emission: Tensor, weak_labels: Tensor, weight: Tensor | None, offsets: Tensor, backend: str) -> Tensor:
    return log_emission.new_empty(weak_labels.shape[0], log_emission.shape[2])


@chain_emission_evidence_backward.register_fake
def _(
    cotangent: Tensor,
    log_emission: Tensor,
    weak_labels: Tensor,
    weight: Tensor | None,
    offsets: Tensor,
    backend: str,
    weight_gradient: bool,
) -> tuple[Tensor, Tensor]:
    gradient = torch.empty_like(log_emission, memory_format=torch.contiguous_format)
    return gradient, log_emission.new_empty(weak_labels.shape if weight_gradient else 0)


def _plain(log_emission: Tensor, weak_labels: Tensor, weight: Tensor | None, offsets: Tensor) -> list[Any]:
    return [None if part is None else part.detach().contiguous() for part in (log_emission, weak_labels, weight, offsets)]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.backend = inputs[4]
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, cotangent: Tensor | None) -> tuple[Tensor | None, ...]:
    if cotangent is None:
        return (None,) * 5
    wanted = ctx.needs_input_grad
    first, second = chain_emission_evidence_backward(cotangent, *ctx.saved_tensors, ctx.backend, wanted[2])
    return first if wanted[0] else None, None, second if wanted[2] else None, None, None


def _setup_context_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)


def _backward_backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
    if any(cotangent is not None for cotangent in cotangents):
        raise ChainError("the gradient of emission_evidence cannot be differentiated again; it offers first derivatives only")
    return (None,) * 7


chain_emission_evidence.register_autograd(_backward, setup_context=_setup_context)
chain_emission_evidence_backward.register_autograd(_backward_backward, setup_context=_setup_context_backward)
