"""The public functions of the chain: they validate, choose a backend and call it.

They share one signature. With B documents, N packed tokens and L labels:

* ``initial`` (L,): probabilities of z_0, which stands before the first token and has no evidence.
* ``transition`` (N, L, L): for each token the matrix (from, to) of the step into it; unnormalised logits with ``logits=True``
  (-inf forbids a transition), probabilities with ``logits=False``.
* ``log_emission`` (N, L): log evidence of each token for each label; -inf rules a label out.
* ``offsets`` (B + 1,) int64: document m holds the tokens ``offsets[m]`` to ``offsets[m + 1]``. Documents may be empty.
* ``backend``: "auto" (by the tensors' device), "reference", "cpu" or "cuda".
* ``check``: also check that probabilities sum to 1.

For one document, p(z, x) = initial[z_0] * prod_t transition[t][z_{t-1}, z_t] * exp(log_emission[t, z_t]).

A document without any possible path has log evidence -inf and zero gradients; :func:`impossible_step` says where. Wrong shapes,
dtypes, devices, offsets, NaN and +inf raise :class:`~pyro_chmm.errors.ChainError`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from pyro_chmm.chain import backends
from pyro_chmm.chain.operators import chain_log_evidence, chain_objective
from pyro_chmm.chain.validation import check_chain, check_number


class Marginals(NamedTuple):
    """Posterior marginals given all evidence of the document; 0 throughout an impossible document."""

    state: Tensor
    """(N, L): p(z_t = j | x)"""
    transition: Tensor | None
    """(N, L, L): p(z_{t-1} = i, z_t = j | x), where asked for"""
    log_evidence: Tensor
    """(B,) float64: log p(x)"""


class ViterbiPath(NamedTuple):
    """The most probable path of each document."""

    labels: Tensor
    """(N,) int64; -1 throughout an impossible document"""
    log_score: Tensor
    """(B,) float64: max over z_0..z_T of log p(z, x); -inf for an impossible document"""


class SharpenedEvidence(NamedTuple):
    """Log evidence less a multiple of the posterior entropy; only ``value`` can be differentiated."""

    value: Tensor
    """(B,) float64: log_evidence - sharpening * entropy"""
    log_evidence: Tensor
    """(B,) float64"""
    entropy: Tensor
    """(B,) float64"""


class ImpossibleStep(NamedTuple):
    """Where the evidence of a document became zero."""

    document: int
    token: int
    """counted from the first token of the document"""


def log_evidence(
    initial: Tensor,
    transition: Tensor,
    log_emission: Tensor,
    offsets: Tensor,
    *,
    logits: bool = True,
    backend: str = "auto",
    check: bool = False,
) -> Tensor:
    """log p(x) of each document, (B,) float64, differentiable once in ``initial``, ``transition`` and ``log_emission``.

    The gradients are computed along with the value, if any input requires them. An empty document has log evidence 0.
    """
    check_chain(initial, transition, log_emission, offsets, logits=logits, check=check)
    wanted = _wanted(initial, transition, log_emission)
    result: tuple[Tensor, ...] = chain_log_evidence(initial, transition, log_emission, offsets, logits, backend, *wanted)
    return result[0]


def entropy(
    initial: Tensor,
    transition: Tensor,
    log_emission: Tensor,
    offsets: Tensor,
    *,
    logits: bool = True,
    backend: str = "auto",
    check: bool = False,
) -> Tensor:
    """Entropy (nats) of p(z_0..z_T | x) for each document, (B,) float64, differentiable once.

    H = log Z - sum of marginals times log potentials. Its gradient is the Hessian of log Z times the log potentials (with a minus),
    computed by forward-mode tangents. Transitions of probability 0 get gradient 0. An impossible document has entropy 0.
    """
    check_chain(initial, transition, log_emission, offsets, logits=logits, check=check)
    wanted = _wanted(initial, transition, log_emission)
    result: tuple[Tensor, ...] = chain_objective(initial, transition, log_emission, offsets, logits, backend, *wanted, 0.0, 1.0)
    return result[0]


def sharpened_evidence(
    initial: Tensor,
    transition: Tensor,
    log_emission: Tensor,
    offsets: Tensor,
    sharpening: float,
    *,
    logits: bool = True,
    backend: str = "auto",
    check: bool = False,
) -> SharpenedEvidence:
    """log p(x) - sharpening * entropy of each document with both parts, the gradient in the same pass.

    Only ``value`` is differentiable; ``log_evidence`` and ``entropy`` are for reporting.
    """
    if sharpening == 0:
        evidence = log_evidence(initial, transition, log_emission, offsets, logits=logits, backend=backend, check=check)
        with torch.no_grad():
            posterior = entropy(initial, transition, log_emission, offsets, logits=logits, backend=backend)
        return SharpenedEvidence(evidence, evidence.detach(), posterior)
    check_chain(initial, transition, log_emission, offsets, logits=logits, check=check)
    wanted = _wanted(initial, transition, log_emission)
    value, evidence, posterior, *_ = chain_objective(
        initial, transition, log_emission, offsets, logits, backend, *wanted, 1.0, -float(sharpening)
    )
    return SharpenedEvidence(value, evidence.detach(), posterior.detach())


@torch.no_grad()
def marginals(
    initial: Tensor,
    transition: Tensor,
    log_emission: Tensor,
    offsets: Tensor,
    *,
    transitions: bool = False,
    logits: bool = True,
    backend: str = "auto",
    check: bool = False,
) -> Marginals:
    """Posterior marginals of the labels and, with ``transitions=True``, of pairs of neighbouring labels. Not differentiable."""
    check_chain(initial, transition, log_emission, offsets, logits=logits, check=check)
    if transitions and logits:
        dead = (transition == -torch.inf).all(-1, keepdim=True)
        transition, logits = transition.softmax(-1).masked_fill_(dead, 0.0), False
    evidence, _, pairs, state = chain_log_evidence(initial, transition, log_emission, offsets, logits, backend, True, transitions)
    # the gradient to a probability is the pair's marginal without that probability
    return Marginals(state, pairs.mul_(transition) if transitions else None, evidence)


@torch.no_grad()
def viterbi(
    initial: Tensor,
    transition: Tensor,
    log_emission: Tensor,
    offsets: Tensor,
    *,
    logits: bool = True,
    backend: str = "auto",
    check: bool = False,
) -> ViterbiPath:
    """The most probable path z_0..z_T of each document; z_0 is maximised over but not returned. Ties go to the lowest label."""
    check_chain(initial, transition, log_emission, offsets, logits=logits, check=check)
    run = backends.function(backend, "viterbi", log_emission.device)
    labels, score = run(*_contiguous(initial, transition, log_emission, offsets), logits=logits)
    check_number(score, (initial, transition, log_emission, offsets), logits=logits)
    return ViterbiPath(labels, score)


@torch.no_grad()
def sample(
    initial: Tensor,
    transition: Tensor,
    log_emission: Tensor,
    offsets: Tensor,
    *,
    draws: int,
    generator: torch.Generator | None = None,
    logits: bool = True,
    backend: str = "auto",
    check: bool = False,
) -> Tensor:
    """Independent draws of z_1..z_T from the posterior, (draws, N) int64, by forward filtering and backward sampling.

    One uniform number a draw and token comes from ``generator`` (on the tensors' device). Impossible documents are filled with -1.
    """
    check_chain(initial, transition, log_emission, offsets, logits=logits, check=check)
    # raises for what is not a number, which the draws would hide
    log_evidence(initial, transition, log_emission, offsets, logits=logits, backend=backend)
    shape = (draws, len(log_emission))
    uniforms = torch.rand(shape, generator=generator, dtype=torch.float64, device=log_emission.device)
    run = backends.function(backend, "sample", log_emission.device)
    labels: Tensor = run(*_contiguous(initial, transition, log_emission, offsets), logits=logits, uniforms=uniforms)
    return labels


@torch.no_grad()
def impossible_step(
    initial: Tensor,
    transition: Tensor,
    log_emission: Tensor,
    offsets: Tensor,
    *,
    logits: bool = True,
    backend: str = "auto",
    check: bool = False,
) -> list[ImpossibleStep]:
    """For each document whose log evidence is -inf: the document and the first token that no path survives."""
    check_chain(initial, transition, log_emission, offsets, logits=logits, check=check)
    evidence = log_evidence(initial, transition, log_emission, offsets, logits=logits, backend=backend)
    if not bool((evidence == -torch.inf).any()):
        return []
    run = backends.function(backend, "impossible_step", log_emission.device)
    steps = run(*_contiguous(initial, transition, log_emission, offsets), logits=logits).tolist()
    return [ImpossibleStep(document, token) for document, token in enumerate(steps) if token >= 0]


def _wanted(initial: Tensor, transition: Tensor, log_emission: Tensor) -> tuple[bool, bool]:
    """Whether to compute gradients at all, and that of the transitions."""
    if not torch.is_grad_enabled():
        return False, False
    return (
        initial.requires_grad or transition.requires_grad or log_emission.requires_grad,
        transition.requires_grad,
    )


def _contiguous(*tensors: Tensor) -> list[Tensor]:
    return [tensor.detach().contiguous() for tensor in tensors]
