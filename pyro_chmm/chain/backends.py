"""Which module does the arithmetic, and what such a module offers.

A backend is a module of plain functions. They are given tensors that the public functions have already validated: detached,
contiguous, on one device, of one dtype (float32 or float64), ``offsets`` int64 on the same device. They never see autograd.
With N packed tokens, L labels, B documents::

    forward_backward(initial (L,), transition (N, L, L), log_emission (N, L), offsets (B+1,), *,
                     logits: bool, gradients: bool, transitions: bool = True) -> ForwardBackward
    objective(initial, transition, log_emission, offsets, *, logits: bool, evidence_weight: float, entropy_weight: float,
              gradients: bool, transitions: bool = True) -> Objective
    viterbi(initial, transition, log_emission, offsets, *, logits: bool) -> (labels (N,) int64, log_score (B,) float64)
    sample(initial, transition, log_emission, offsets, *, logits: bool, uniforms (draws, N) float64) -> (draws, N) int64
    impossible_step(initial, transition, log_emission, offsets, *, logits: bool) -> (B,) int64, the token or -1
    emission_evidence(log_emission (B, K, L, L), weak_labels (N, K) int16, weight (N, K) | None, offsets) -> (N, L)
    emission_evidence_backward(cotangent (N, L), log_emission, weak_labels, weight, offsets, *, weight_gradient: bool)
        -> (gradient of log_emission (B, K, L, L), gradient of weight (N, K) | None)
    check_available() -> None          # optional; raises ChainError that says what to install

Only ``forward_backward`` is required; whatever else is missing is taken from :mod:`pyro_chmm.chain.reference`, which runs on
any device.

Rules that every backend keeps:

* ``transition`` holds logits (``logits=True``; softmax over the last axis is part of the work) or probabilities. Gradients are with
  respect to what was passed. -inf logits and -inf log emissions are allowed and mean probability 0.
* Gradients have the dtype of the inputs, log evidence and entropy are float64, and the gradient of the log emission is the
  posterior marginal of the label. The gradient of ``initial`` is kept per document, (B, L): the cotangent differs per document.
* A document of length 0 has log evidence 0, entropy 0 and gradient 0.
* An impossible document has log evidence -inf, entropy 0, gradient 0 and, in ``viterbi`` and ``sample``, label -1.
* NaN, +inf, or a row of only -inf logits that a possible path reaches: the log evidence is NaN, or a ChainError is raised.
  The public functions turn a NaN log evidence into a ChainError that names the culprit, so no NaN is handed out.
* Ties in ``viterbi`` go to the lowest label. Results do not change from run to run.
"""

import importlib
import logging
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyro_chmm.errors import ChainError

logger = logging.getLogger(__name__)

BACKENDS = ("auto", "reference", "cpu", "cuda")


class ForwardBackward(NamedTuple):
    """Log evidence and its gradients; the gradients are None where they were not asked for."""

    log_evidence: Tensor
    """(B,) float64"""
    initial: Tensor | None
    """(B, L), per document"""
    transition: Tensor | None
    """(N, L, L) with respect to the logits or probabilities that were passed; None with ``transitions=False``"""
    log_emission: Tensor | None
    """(N, L), the posterior marginals of the labels"""


class Objective(NamedTuple):
    """Log evidence, entropy, and the gradients of ``evidence_weight * log_evidence + entropy_weight * entropy``."""

    log_evidence: Tensor
    """(B,) float64"""
    entropy: Tensor
    """(B,) float64, of z_0..z_T given the evidence"""
    initial: Tensor | None
    """(B, L), per document"""
    transition: Tensor | None
    """(N, L, L)"""
    log_emission: Tensor | None
    """(N, L)"""


def resolve(backend: str, device: torch.device) -> str:
    """The name of the backend that works on tensors of ``device``; ``auto`` is decided here and said in the log.

    Raises ChainError for an unknown name, a backend that does not suit the device, or one that is not installed.
    """
    if backend not in BACKENDS:
        raise ChainError(f"unknown chain backend {backend!r}; expected one of {', '.join(BACKENDS)}")
    if backend == "auto":
        return _automatic(device.type)
    if backend in ("cpu", "cuda"):
        if device.type != backend:
            raise ChainError(
                f"backend {backend!r} was asked to work on tensors on device {str(device)!r}; "
                f"move them with .to({backend!r}) or use backend='auto'"
            )
        _load(backend)
    return backend


@cache
def _automatic(device_type: str) -> str:
    name = device_type if device_type in ("cpu", "cuda") else "reference"
    _load(name)
    logger.debug("chain: backend %r for tensors on %r", name, device_type)
    return name


@cache
def _load(name: str) -> ModuleType:
    try:
        module = importlib.import_module(f"pyro_chmm.chain.{name}")
    except ImportError as error:
        raise ChainError(f"chain backend {name!r} cannot be imported ({error}); use backend='reference'") from error
    if hasattr(module, "check_available"):
        module.check_available()
    return module


def function(backend: str, name: str, device: torch.device) -> Any:
    """The function ``name`` of the backend for tensors of ``device``, or the reference's where the backend has none of its own."""
    return getattr(_load(resolve(backend, device)), name, None) or getattr(_load("reference"), name)
