"""The linear layers from embeddings to transitions, reliabilities and addon scales (sections 3.1 and 3.2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class StandardizedLinear(nn.Module):
    """A linear layer over vectors that it standardises by a corpus's mean and standard deviation.

    Learning rates then do not depend on the encoder's scale. Standardising is folded into the weights, which costs
    outputs x width, not vectors x width.

    :param width: length of a vector.
    :param outputs: number of outputs.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, width))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))

    def forward(self, vectors: Tensor) -> Tensor:
        """``(..., width) -> (..., outputs)``."""
        weight = self.weight / self.deviation
        return nn.functional.linear(vectors, weight, self.bias - weight @ self.mean)


class SharedTransition(StandardizedLinear):
    """Transition logits with one weight vector for each label that is entered, whatever label is left.

    ``logit[i, j] = bias[i, j] + weight[j] . vector``: L times fewer weights than a layer for all L x L entries, which learn less of
    the training tokens by heart.

    :param width: length of a vector.
    :param num_labels: L; the outputs are the L x L logits.
    """

    def __init__(self, width: int, num_labels: int) -> None:
        super().__init__(width, num_labels)
        self.num_labels = num_labels
        self.bias = nn.Parameter(torch.zeros(num_labels * num_labels))

    def forward(self, vectors: Tensor) -> Tensor:
        """``(..., width) -> (..., L * L)``."""
        weight = self.weight / self.deviation
        entered = nn.functional.linear(vectors, weight, -(weight @ self.mean))
        bias = self.bias.reshape(self.num_labels, self.num_labels)
        return (bias + entered.unsqueeze(-2)).flatten(-2)


class Networks(nn.Module):
    """All that Sparse-CHMM learns: three linear layers.

    :param token_width: length of a token vector.
    :param document_width: length of a document vector.
    :param num_lfs: K.
    :param num_labels: L.
    :param entity_level: one reliability an entity type, shared by its B- and I-labels, instead of one a label.
    :param shared_transition: see :class:`SharedTransition`; the paper has a layer for all L x L entries.
    """

    def __init__(
        self,
        token_width: int,
        document_width: int,
        num_lfs: int,
        num_labels: int,
        entity_level: bool = False,
        shared_transition: bool = False,
    ) -> None:
        super().__init__()
        self.num_lfs, self.num_labels, self.entity_level = num_lfs, num_labels, entity_level
        scores = (num_labels + 1) // 2 if entity_level else num_labels
        self.transition: StandardizedLinear = (
            SharedTransition(token_width, num_labels)
            if shared_transition
            else StandardizedLinear(token_width, num_labels * num_labels)
        )
        self.reliability = StandardizedLinear(document_width, num_lfs * scores)
        self.addon = StandardizedLinear(document_width, num_lfs * num_labels)

    def transition_logits(self, token_vectors: Tensor) -> Tensor:
        """``(N, token_width) -> (N, L, L)``, (from, to); SoftMax over the last axis gives the transition matrices."""
        logits: Tensor = self.transition(token_vectors).unflatten(-1, (self.num_labels, self.num_labels))
        return logits

    def reliability_logits(self, document_vectors: Tensor) -> Tensor:
        """``(B, document_width) -> (B, K, L)``."""
        logits: Tensor = self.reliability(document_vectors).unflatten(-1, (self.num_lfs, -1))
        if self.entity_level:
            entities = logits[..., 1:].repeat_interleave(2, dim=-1)
            logits = torch.cat([logits[..., :1], entities], dim=-1)
        return logits

    def addon_scale(self, document_vectors: Tensor) -> Tensor:
        """C: ``(B, document_width) -> (B, K, L)`` in (0, 1), by LF and query label."""
        scale: Tensor = torch.sigmoid(self.addon(document_vectors)).unflatten(-1, (self.num_lfs, self.num_labels))
        return scale
