"""CHMM: transitions and full emission matrices for every token, from its vector (Li et al., ACL 2021)."""

from __future__ import annotations

import pyro
import torch
from torch import Tensor, nn

from pyro_chmm.data.batching import PackedBatch, TokenVectors
from pyro_chmm.errors import ConfigError
from pyro_chmm.model.hidden_chain import enumerate_chain, marginalize_chain
from pyro_chmm.model.networks import StandardizedLinear, Transition


class CHMMNetworks(nn.Module):
    """Two linear layers, from a token's vector to its transition matrix and to the emission matrix of each LF.

    :param width: length of a token vector.
    :param fixed_emission: the emissions are those of the buffer ``emission`` for all tokens, and not learned (CHMM-FE).
    """

    emission: Tensor

    def __init__(self, width: int, num_lfs: int, num_labels: int, fixed_emission: bool = False) -> None:
        super().__init__()
        self.shape = (num_lfs, num_labels, num_labels)
        self.transition = Transition(width, num_labels)
        self.emission_layer = None if fixed_emission else StandardizedLinear(width, num_lfs * num_labels * num_labels)
        self.register_buffer("emission", torch.full(self.shape, 1.0 / num_labels))

    def log_emission(self, token_vectors: Tensor | TokenVectors) -> Tensor:
        """``(N, width) -> (N, K, L, L)``, or ``(1, K, L, L)`` where it is fixed; rows are log probabilities."""
        if self.emission_layer is None:
            return self.emission.log().unsqueeze(0)
        return torch.log_softmax(self.emission_layer(token_vectors).unflatten(-1, self.shape), dim=-1)

    def initialize(self, mean: Tensor, deviation: Tensor, transition: Tensor, emission: Tensor) -> None:
        """Set every token's matrices to ``transition`` (L, L) and ``emission`` (K, L, L): biases in closed form, weights 0.

        :param mean, deviation: of the token vectors, ``(width,)``, by which the layers standardise them.
        """
        with torch.no_grad():
            self.transition.outer.mean.copy_(mean)
            self.transition.outer.deviation.copy_(deviation)
            self.transition.bias.copy_(transition.log())
            self.emission.copy_(emission)
            if self.emission_layer is not None:
                self.emission_layer.mean.copy_(mean)
                self.emission_layer.deviation.copy_(deviation)
                self.emission_layer.bias.copy_(emission.log().flatten())

    def penalized(self) -> list[nn.Parameter]:
        """The weights that an L2 penalty is for."""
        layers = [self.transition.outer, *([] if self.emission_layer is None else [self.emission_layer])]
        return [layer.weight for layer in layers]


class CHMMModel(nn.Module):
    """The model; it has no latent variable but z, so that its guide is empty.

    ::

        for each document, with token vectors e1..eT:
            z[0] is O
            for t in 1..T:
                z[t]     ~ Categorical(transition(e_t)[z[t-1], :])         site "z_t", enumerated
                x[t, k]  ~ Categorical(emission(e_t)[k, z[t], :])          site "x_t", observed, LFs that did not abstain

    :param marginalize: ``"enum"`` for the loop under :class:`TraceEnum_ELBO`, ``"fast"`` for one factor in its place.
    """

    def __init__(self, networks: CHMMNetworks, marginalize: str = "fast", backend: str = "auto") -> None:
        super().__init__()
        if marginalize not in ("fast", "enum"):
            raise ConfigError(f"marginalize is {marginalize!r}, expected fast or enum.")
        self.networks, self.marginalize, self.backend = networks, marginalize, backend

    def forward(self, batch: PackedBatch) -> None:
        """Run the story on a packed batch."""
        logits = self.networks.transition(batch.token_vectors)
        log_emission = self.networks.log_emission(batch.token_vectors)
        with pyro.plate("documents", batch.num_documents, dim=-1):
            if self.marginalize == "enum":
                enumerate_chain(torch.softmax(logits, dim=-1), log_emission.exp(), batch)
            else:
                marginalize_chain(logits, log_emission, batch, logits=True, backend=self.backend)


def no_guide(batch: PackedBatch) -> None:
    """Of a model without latent variables."""
