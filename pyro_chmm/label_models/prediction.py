"""What fitted conditionals predict of a batch, and the hyper-parameters of prediction that gold labels choose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from pyro_chmm import chain
from pyro_chmm.data.batching import PackedBatch, PackedCorpus
from pyro_chmm.data.scoring import score
from pyro_chmm.model.conditionals import Conditionals, o_weights

if TYPE_CHECKING:
    from torch import Tensor

#: What is tried on gold validation labels: weights of silence in prediction, and temperatures of the posterior.
CHOICES = {
    "o_weight_prediction": (0.3, 0.7, 1.0),
    "posterior_temperature": (1.0, 1.25, 1.5, 2.0, 2.5, 3.0),
}


def chain_inputs(
    conditionals: Conditionals, batch: PackedBatch, logits: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Initial, transition, log evidence and offsets for decoding, with Dirichlet means for emissions.

    :param logits: transition logits of the batch, where they are known already.
    """
    if logits is None:
        logits = conditionals.transition_logits(batch.token_vectors)
    emission = conditionals.emission_mean(batch.document_vectors)
    evidence = conditionals.log_emission_evidence(emission, batch)
    return conditionals.initial, conditionals.decoding_potentials(logits), evidence, batch.offsets


@torch.no_grad()
def most_probable(conditionals: Conditionals, batch: PackedBatch, logits: Tensor | None = None) -> Tensor:
    """The most probable label sequences (Viterbi), ``(N,)`` int16."""
    path = chain.viterbi(*chain_inputs(conditionals, batch, logits), logits=False, backend=conditionals.config.backend)
    return path.labels.to(torch.int16)


@torch.no_grad()
def label_marginals(conditionals: Conditionals, batch: PackedBatch, logits: Tensor | None = None) -> Tensor:
    """Posterior marginals of the labels, ``(N, L)`` float32, rows that sum to 1."""
    inputs = chain_inputs(conditionals, batch, logits)
    state = chain.marginals(*inputs, logits=False, backend=conditionals.config.backend).state
    return (state / state.sum(dim=-1, keepdim=True).clamp(min=1e-30)).float()


@torch.no_grad()
def chosen(conditionals: Conditionals, packed: PackedCorpus, gold: NDArray[np.int16], name: str) -> float:
    """The value of one of :data:`CHOICES` that suits gold labels best; the nearest to the present one among equals.

    The weight of silence by F1; the temperature by the likelihood of gold labels (Guo et al., ICML 2017). The networks run once.
    """
    present, device = conditionals.config, conditionals.initial.device
    now = float(getattr(present, name))
    values = sorted({now, *CHOICES[name]}, key=lambda value: abs(value - now))
    configs = [present.updated({name: value}) for value in values]
    by_f1 = name == "o_weight_prediction"
    found: list[list[NDArray[np.int16]]] = [[] for _ in values]
    likelihood = np.zeros(len(values))
    try:
        for batch in packed.in_order():
            logits = conditionals.transition_logits(batch.to(device).token_vectors)
            start, stop = (int(packed.corpus.offsets[m]) for m in (batch.documents[0], batch.documents[-1] + 1))
            for number, config in enumerate(configs):
                conditionals.config = config
                weighed = packed.reweighed(batch, o_weights(config, training=False)).to(device)
                if by_f1:
                    found[number].append(most_probable(conditionals, weighed, logits).cpu().numpy())
                else:
                    marginals = label_marginals(conditionals, weighed, logits).cpu().numpy()
                    right = marginals[np.arange(stop - start), gold[start:stop]]
                    likelihood[number] += np.log(np.maximum(right, 1e-12), dtype=np.float64).sum()
    finally:
        conditionals.config = present
    if not by_f1:
        return values[int(likelihood.argmax())]
    labels = [np.concatenate([np.zeros(0, np.int16), *parts]) for parts in found]
    f1 = [score(packed.corpus.label_set, gold, part, packed.corpus.offsets).f1 for part in labels]
    return values[int(np.argmax(f1))]
