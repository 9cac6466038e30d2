"""What fitted conditionals say of a whole corpus, a batch at a time; ranks share the batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from pyro_chmm import ranks
from pyro_chmm.data.batching import PackedBatch, PackedCorpus
from pyro_chmm.label_models.prediction import label_marginals, most_probable
from pyro_chmm.model.conditionals import Conditionals
from pyro_chmm.model.priors import AnyPrior
from pyro_chmm.model.sparse_chmm import prior_objective

if TYPE_CHECKING:
    from torch import Tensor


def batches(conditionals: Conditionals, packed: PackedCorpus) -> Iterator[PackedBatch]:
    """All documents in order, on the device of the conditionals."""
    return (batch.to(conditionals.initial.device) for batch in packed.in_order())


def _of_batches(conditionals: Conditionals, packed: PackedCorpus, of: Callable[[PackedBatch], Tensor]) -> Iterator[Tensor]:
    """``of(batch)`` for every batch, in order, on the CPU; each rank works on its share."""

    def work(documents: NDArray[np.int64]) -> Tensor:
        with torch.no_grad():
            return of(packed.batch(documents).to(conditionals.initial.device)).cpu()

    return ranks.in_turn(list(packed.consecutive()), work)


def decoded_ids(conditionals: Conditionals, packed: PackedCorpus) -> NDArray[np.int16]:
    """Most probable labels, ``(N,)`` ids."""
    parts = [part.numpy() for part in _of_batches(conditionals, packed, partial(most_probable, conditionals))]
    return np.concatenate([np.zeros(0, np.int16), *parts])


def marginals(conditionals: Conditionals, packed: PackedCorpus) -> Iterator[NDArray[np.float32]]:
    """Posterior marginals of one document after another, ``(T, L)`` each."""
    offsets, first = packed.corpus.offsets, 0
    for part in _of_batches(conditionals, packed, partial(label_marginals, conditionals)):
        start = int(offsets[first])
        last = int(np.searchsorted(offsets, start + len(part), side="right")) - 1
        yield from np.split(part.numpy(), offsets[first + 1 : last] - start)
        first = last


def log_evidence(conditionals: Conditionals, packed: PackedCorpus, prior: AnyPrior | None = None) -> float:
    """Log evidence in nats and, given the prior on the emission, what it and the other priors add."""

    def of(batch: PackedBatch) -> Tensor:
        evidence = conditionals.log_evidence(conditionals.emission_mean(batch.document_vectors), batch).double().sum()
        return (evidence if prior is None else evidence + prior_objective(conditionals, prior, batch)).reshape(1)

    return float(sum(_of_batches(conditionals, packed, of)))


def mean_over_documents(
    conditionals: Conditionals, packed: PackedCorpus, of: Callable[[Tensor], Tensor]
) -> NDArray[np.float64]:
    """The mean over documents of ``of(document vectors)``, ``(B, width) -> (B, ...)``."""
    parts = _of_batches(conditionals, packed, lambda batch: of(batch.document_vectors).double().sum(dim=0, keepdim=True))
    total = torch.as_tensor(sum(part[0] for part in parts))
    mean: NDArray[np.float64] = (total / max(packed.corpus.num_documents, 1)).numpy()
    return mean
