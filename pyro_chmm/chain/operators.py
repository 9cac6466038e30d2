"""The chain as PyTorch operators: custom ops whose forward also computes the gradients, so that autograd keeps no tape.

The ops are private to the package; :mod:`pyro_chmm.chain.api` has the public functions. Optional results travel as empty tensors.
The gradient tensors that an op returns are for its own backward: they are handed to autograd, scaled by the cotangent in place,
at the first backward; a second backward over the same graph computes them anew.
"""

from typing import Any

import torch
from torch import Tensor

from pyro_chmm.chain import backends
from pyro_chmm.chain.validation import check_number
from pyro_chmm.errors import ChainError


@torch.library.custom_op("pyro_chmm::chain_log_evidence", mutates_args=())
def chain_log_evidence(
    initial: Tensor,
    transition: Tensor,
    log_emission: Tensor,
    offsets: Tensor,
    logits: bool,
    backend: str,
    gradients: bool,
    transitions: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Log evidence (B,) and the gradients to initial (B, L), transition (N, L, L) and log emission (N, L)."""
    inputs = [part.detach().contiguous() for part in (initial, transition, log_emission, offsets)]
    run = backends.function(backend, "forward_backward", log_emission.device)
    evidence, *saved = run(*inputs, logits=logits, gradients=gradients, transitions=transitions)
    check_number(evidence, inputs, logits=logits)
    return evidence, *(_or_empty(part, log_emission) for part in saved)


@torch.library.custom_op("pyro_chmm::chain_objective", mutates_args=())
def chain_objective(
    initial: Tensor,
    transition: Tensor,
    log_emission: Tensor,
    offsets: Tensor,
    logits: bool,
    backend: str,
    gradients: bool,
    transitions: bool,
    evidence_weight: float,
    entropy_weight: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The weighted sum of log evidence and entropy, both apart (B,), and the gradients of the sum."""
    inputs = [part.detach().contiguous() for part in (initial, transition, log_emission, offsets)]
    run = backends.function(backend, "objective", log_emission.device)
    evidence, entropy, *saved = run(
        *inputs,
        logits=logits,
        gradients=gradients,
        transitions=transitions,
        evidence_weight=evidence_weight,
        entropy_weight=entropy_weight,
    )
    check_number(evidence, inputs, logits=logits)
    total = entropy_weight * entropy
    if evidence_weight != 0:
        total = evidence_weight * evidence + total
    return total, evidence, entropy, *(_or_empty(part, log_emission) for part in saved)


@chain_log_evidence.register_fake
def _(
    initial: Tensor,
    transition: Tensor,
    log_emission: Tensor,
    offsets: Tensor,
    logits: bool,
    backend: str,
    gradients: bool,
    transitions: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    per_document = initial.new_empty(offsets.shape[0] - 1, dtype=torch.float64)
    saved = _fake_gradients(initial, transition, log_emission, offsets, gradients, transitions)
    return per_document, *saved


@chain_objective.register_fake
def _(
    initial: Tensor,
    transition: Tensor,
    log_emission: Tensor,
    offsets: Tensor,
    logits: bool,
    backend: str,
    gradients: bool,
    transitions: bool,
    evidence_weight: float,
    entropy_weight: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    documents = offsets.shape[0] - 1
    total, evidence, entropy = (initial.new_empty(documents, dtype=torch.float64) for _ in range(3))
    saved = _fake_gradients(initial, transition, log_emission, offsets, gradients, transitions)
    return total, evidence, entropy, *saved


def _fake_gradients(
    initial: Tensor,
    transition: Tensor,
    log_emission: Tensor,
    offsets: Tensor,
    gradients: bool,
    transitions: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        initial.new_empty((offsets.shape[0] - 1, initial.shape[0]) if gradients else 0),
        transition.new_empty(transition.shape if gradients and transitions else 0),
        log_emission.new_empty(log_emission.shape if gradients else 0),
    )


def _or_empty(part: Tensor | None, like: Tensor) -> Tensor:
    return like.new_empty(0) if part is None else part


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.options = inputs[4:]
    # detached: an output of the op that the op's own node holds would be a reference cycle
    ctx.gradients = [part.detach() for part in output[-3:]]
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _backward(operator: Any, ctx: Any, cotangents: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    nothing = (None,) * (1 + len(ctx.options))
    cotangent = cotangents[0]
    if cotangent is None:
        return None, None, None, *nothing
    offsets = ctx.saved_tensors[3]
    gradients, ctx.gradients = ctx.gradients or operator(*ctx.saved_tensors, *ctx.options)[-3:], []
    if torch.is_grad_enabled():
        gradients = [_once(part, ctx.saved_tensors[:3]) for part in gradients]
    initial, transition, log_emission = gradients
    # not while torch.compile traces, where the type is a subclass: the graph is functional
    in_place = type(log_emission) is Tensor and not torch.is_grad_enabled()
    cotangent = cotangent.to(log_emission.dtype)
    scale = _per_token(cotangent, offsets, len(log_emission))
    wanted = ctx.needs_input_grad
    return (
        cotangent @ initial if wanted[0] else None,
        _scaled(transition, scale[:, None, None], in_place) if wanted[1] else None,
        _scaled(log_emission, scale[:, None], in_place) if wanted[2] else None,
        *nothing,
    )


def _per_token(cotangent: Tensor, offsets: Tensor, tokens: int) -> Tensor:
    """(N,), or (1,) if it is the same for all documents: the usual case, a mean, which is quicker to multiply with."""
    if type(cotangent) is Tensor and cotangent.device.type == "cpu" and not torch.is_grad_enabled() and tokens > 0:
        low, high = torch.aminmax(cotangent)
        if float(low) == float(high):
            return low[None]
    return torch.repeat_interleave(cotangent, offsets.diff(), output_size=tokens)


class _FirstOrderOnly(torch.autograd.Function):
    """Passes a gradient on; says so if somebody differentiates it again, where autograd would answer 0."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, *inputs: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        raise ChainError("the chain's gradient cannot be differentiated again; it has first derivatives only")


def _once(gradient: Tensor, inputs: list[Tensor]) -> Tensor:
    result: Tensor = _FirstOrderOnly.apply(gradient, *inputs)  # type: ignore[no-untyped-call]
    return result


def _scaled(gradient: Tensor, scale: Tensor, in_place: bool) -> Tensor:
    return gradient.mul_(scale) if in_place else gradient * scale


def _backward_log_evidence(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
    return _backward(chain_log_evidence, ctx, cotangents)


def _backward_objective(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
    return _backward(chain_objective, ctx, cotangents)


chain_log_evidence.register_autograd(_backward_log_evidence, setup_context=_setup_context)
chain_objective.register_autograd(_backward_objective, setup_context=_setup_context)
