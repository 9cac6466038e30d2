"""The linear layers from embeddings to transitions, reliabilities and addon scales (sections 3.1 and 3.2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pyro_chmm.data.batching import TokenVectors


class StandardizedProjection(nn.Module):
    """A linear map of vectors that it standardises by a corpus's mean and standard deviation.

    Learning rates then do not depend on the encoder's scale. Standardising is folded into the weights, which costs
    outputs x width, not vectors x width. Dropout leaves out features for a whole batch: products shrink by its share.

    :param width: length of a vector.
    :param outputs: number of outputs.
    :param dropout: share of the features left out in a training step.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, width: int, outputs: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.weight = nn.Parameter(torch.zeros(outputs, width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))

    def forward(self, vectors: Tensor | TokenVectors) -> Tensor:
        """``(..., width) -> (..., outputs)``."""
        return self.shifted(vectors, 0.0)

    def shifted(self, vectors: Tensor | TokenVectors, bias: Tensor | float) -> Tensor:
        """The projection plus a bias ``(outputs,)``."""
        weight, mean = self.weight / self.deviation, self.mean
        ngrams = None
        if isinstance(vectors, TokenVectors):
            ngrams, words, vectors = vectors.ngrams, vectors.words, vectors.encoded
        width = vectors.shape[-1]
        if self.dropout and self.training:
            kept = torch.nonzero(torch.rand_like(mean) >= self.dropout).squeeze(-1)
            weight, mean = (weight / (1 - self.dropout)).index_select(-1, kept), mean.index_select(0, kept)
            own, others = kept[kept < width], kept[kept >= width] - width
            vectors, width = vectors.index_select(-1, own), len(own)
            ngrams = None if ngrams is None else ngrams.index_select(-1, others)
        outputs = nn.functional.linear(vectors, weight[:, :width], bias - weight @ mean)
        return outputs if ngrams is None else outputs + nn.functional.linear(ngrams, weight[:, width:]).index_select(0, words)


class StandardizedLinear(StandardizedProjection):
    """A :class:`StandardizedProjection` with a bias."""

    def __init__(self, width: int, outputs: int, dropout: float = 0.0) -> None:
        super().__init__(width, outputs, dropout)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, vectors: Tensor | TokenVectors) -> Tensor:
        """``(..., width) -> (..., outputs)``."""
        return self.shifted(vectors, self.bias)


class Transition(nn.Module):
    """Transition logits of each token, from its vector.

    ``logits[i, j] = bias[i, j] + outer(h)[i, j]``, where ``h`` is the vector itself, as in the paper, or a hidden layer over it.

    :param width: length of a vector.
    :param num_labels: L.
    :param hidden: units of the hidden layer; 0 for none.
    :param shared: one output for each label that is entered, ``outer(h)[j]``, whatever label is left: L times fewer weights, which
        learn less of the training tokens by heart.
    :param dropout: share of features and hidden units left out in a training step, where there is a hidden layer; hidden
        units token by token.
    """

    def __init__(self, width: int, num_labels: int, hidden: int = 0, shared: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.width, self.num_labels = width, num_labels
        outputs = num_labels if shared else num_labels * num_labels
        self.inner = StandardizedLinear(width, hidden, dropout) if hidden else None
        self.outer = StandardizedProjection(hidden or width, outputs)
        self.bias = nn.Parameter(torch.zeros(num_labels, num_labels))

    def forward(self, vectors: Tensor | TokenVectors) -> Tensor:
        """``(..., width) -> (..., L, L)``."""
        if self.inner is not None:
            vectors = torch.relu(self.inner(vectors))
            if self.inner.dropout and self.training:
                # as nn.functional.dropout, whose draws take three times as long on a CPU
                kept = torch.rand_like(vectors) >= self.inner.dropout
                vectors = vectors * kept / (1 - self.inner.dropout)
        outputs: Tensor = self.outer(vectors)
        shared = outputs.shape[-1] == self.num_labels
        return self.bias + (outputs.unsqueeze(-2) if shared else outputs.unflatten(-1, self.bias.shape))


class CorpusEmission(nn.Module):
    """The guide's Dirichlet of the corpus's emission, for a hierarchical prior; no network, since there is one corpus.

    :param num_lfs: K.
    :param num_labels: L.
    """

    def __init__(self, num_lfs: int, num_labels: int) -> None:
        super().__init__()
        self.log_concentration = nn.Parameter(torch.zeros(num_lfs, num_labels, num_labels))

    def forward(self) -> Tensor:
        """Concentrations ``(K, L, L)``."""
        return self.log_concentration.exp()


class Networks(nn.Module):
    """All that Sparse-CHMM learns: three linear layers, and under a hierarchical prior the corpus's emission.

    :param token_width: length of a token vector.
    :param document_width: length of a document vector.
    :param num_lfs: K.
    :param num_labels: L.
    :param entity_level: one reliability an entity type, shared by its B- and I-labels, instead of one a label.
    :param transition_hidden, shared_transition, dropout: see :class:`Transition`; the default is the paper's single layer.
    :param corpus_emission: whether to have a :class:`CorpusEmission`.
    """

    def __init__(
        self,
        token_width: int,
        document_width: int,
        num_lfs: int,
        num_labels: int,
        *,
        entity_level: bool = False,
        transition_hidden: int = 0,
        shared_transition: bool = False,
        dropout: float = 0.0,
        corpus_emission: bool = False,
    ) -> None:
        super().__init__()
        self.num_lfs, self.num_labels, self.entity_level = num_lfs, num_labels, entity_level
        scores = (num_labels + 1) // 2 if entity_level else num_labels
        self.transition = Transition(token_width, num_labels, transition_hidden, shared_transition, dropout)
        self.reliability = StandardizedLinear(document_width, num_lfs * scores)
        self.addon = StandardizedLinear(document_width, num_lfs * num_labels)
        self.corpus_emission = CorpusEmission(num_lfs, num_labels) if corpus_emission else None

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
