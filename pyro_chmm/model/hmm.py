"""A hidden Markov model of the LFs: one transition matrix, one emission matrix an LF, for all tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyro
import torch
from pyro import poutine
from pyro.distributions import Dirichlet
from torch import Tensor, nn

from pyro_chmm.data.batching import PackedBatch
from pyro_chmm.errors import ConfigError
from pyro_chmm.model.hidden_chain import enumerate_chain, marginalize_chain


class HMMModel(nn.Module):
    """The model.

    ::

        transition[i, :]   ~ Dirichlet(transition_prior[i, :])                site "transition"
        emission[k, i, :]  ~ Dirichlet(emission_prior[k, i, :])               site "emission"
        for each document:
            z[0] is O
            for t in 1..T:
                z[t]     ~ Categorical(transition[z[t-1], :])                 site "z_t", enumerated
                x[t, k]  ~ Categorical(emission[k, z[t], :])                  site "x_t", observed, LFs that did not abstain

    :param transition_prior: concentrations ``(L, L)`` (from, to).
    :param emission_prior: concentrations ``(K, L, L)``.
    :param num_documents: in the corpus; a batch carries its documents' share of the priors.
    :param marginalize: ``"enum"`` for the loop under :class:`TraceEnum_ELBO`, ``"fast"`` for one factor in its place.
    """

    transition_prior: Tensor
    emission_prior: Tensor

    def __init__(
        self,
        transition_prior: Tensor,
        emission_prior: Tensor,
        num_documents: int,
        marginalize: str = "fast",
        backend: str = "auto",
    ) -> None:
        super().__init__()
        if marginalize not in ("fast", "enum"):
            raise ConfigError(f"marginalize is {marginalize!r}, expected fast or enum.")
        self.register_buffer("transition_prior", transition_prior)
        self.register_buffer("emission_prior", emission_prior)
        self.num_documents, self.marginalize, self.backend = num_documents, marginalize, backend

    def forward(self, batch: PackedBatch) -> None:
        """Run the story on a packed batch."""
        with poutine.scale(scale=batch.num_documents / self.num_documents):
            transition = pyro.sample("transition", Dirichlet(self.transition_prior).to_event(1))
            emission = pyro.sample("emission", Dirichlet(self.emission_prior).to_event(2))
        transitions = transition.expand(len(batch.weak_labels), *transition.shape)
        with pyro.plate("documents", batch.num_documents, dim=-1):
            if self.marginalize == "enum":
                enumerate_chain(transitions, emission.unsqueeze(0), batch)
            else:
                marginalize_chain(transitions, emission.log().unsqueeze(0), batch, logits=False, backend=self.backend)


class HMMParameters(NamedTuple):
    """A point of the model's parameters, and how good it was before the step that led to it."""

    transition: Tensor
    """(L, L) (from, to), rows that sum to 1"""
    emission: Tensor
    """(K, L, L) (true, observed), rows that sum to 1"""
    log_density: float
    """log p(x, transition, emission), in nats, of the parameters before the step"""


def em_step(model: HMMModel, batches: Iterable[PackedBatch], transition: Tensor, emission: Tensor) -> HMMParameters:
    """One step of EM towards the maximum of the posterior density (Baum-Welch with Dirichlet priors).

    Expected counts need no code of their own: by Fisher's identity a probability times the gradient of the model's log density
    at it is its expected count plus its concentration less 1. Batches may be of any size; the step is over all of them.

    :raises ConfigError: where a concentration is below 1, which has no such maximum.
    """
    if bool((model.transition_prior < 1).any()) or bool((model.emission_prior < 1).any()):
        raise ConfigError("A Dirichlet concentration is below 1; EM needs 1 or more.")
    point = {"transition": transition.detach().requires_grad_(), "emission": emission.detach().requires_grad_()}
    log_density = 0.0
    for batch in batches:
        trace = poutine.trace(poutine.condition(model, data=point)).get_trace(batch)
        value = torch.as_tensor(trace.log_prob_sum())
        value.backward()
        log_density += float(value.detach())
    transition, emission = (_normalized(value.detach() * _gradient(value)) for value in point.values())
    return HMMParameters(transition, emission, log_density)


def _gradient(value: Tensor) -> Tensor:
    return torch.zeros_like(value) if value.grad is None else value.grad


def _normalized(counts: Tensor) -> Tensor:
    """Rows that sum to 1; a row without counts is uniform."""
    counts = counts.clamp(min=0)
    total = counts.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, counts / total.clamp(min=1e-300), 1.0 / counts.shape[-1])
