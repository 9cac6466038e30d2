"""Initialisation from observed statistics, and MSE pre-training (section 3.3.1)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pyro_chmm import ranks
from pyro_chmm.data.batching import PackedCorpus
from pyro_chmm.data.ngrams import WithNGrams
from pyro_chmm.errors import TrainingError
from pyro_chmm.model.conditionals import Conditionals
from pyro_chmm.model.networks import StandardizedProjection
from pyro_chmm.model.statistics import ObservedStatistics

log = logging.getLogger(__name__)

#: Reliability that an LF without any observation of a label starts with.
_UNSEEN_RELIABILITY = 0.1
#: The guide's Dirichlet of the corpus's emission starts as sure as so many observations a row would make it.
_CORPUS_OBSERVATIONS = 100.0
#: Pre-training has converged when so many steps lower its loss by less than this fraction.
_WINDOW, _CONVERGED = 20, 1e-3


def observed_statistics(packed: PackedCorpus, vote: NDArray[np.int16]) -> ObservedStatistics:
    """Count transitions of the vote, from O at the start of a document, and what each LF says beside it.

    Every count starts at a small pseudo-count, so that nothing is impossible; rows never seen are uniform.

    :param vote: ``(N,)`` label ids, e.g. of majority voting.
    """
    corpus = packed.corpus
    labels, lfs = len(corpus.label_set), corpus.num_lfs
    transition = np.full((labels, labels), 0.5)
    previous = np.concatenate([[0], vote[:-1]]).astype(np.int64)
    previous[corpus.offsets[:-1][np.diff(corpus.offsets) > 0]] = 0
    np.add.at(transition, (previous, vote.astype(np.int64)), 1.0)
    emission = np.full((lfs, labels, labels), 0.5 / labels)
    for lf in range(lfs):
        seen = corpus.weak_labels[:, lf] >= 0
        np.add.at(emission[lf], (vote[seen], corpus.weak_labels[seen, lf]), packed.weight[seen, lf])
    share = np.bincount(vote, minlength=labels).astype(np.float64) + 0.5
    return ObservedStatistics(_rows(transition), _rows(emission), _rows(share))


def _rows(counts: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy((counts / counts.sum(axis=-1, keepdims=True)).astype(np.float32))


def initialize(conditionals: Conditionals, packed: PackedCorpus, statistics: ObservedStatistics) -> None:
    """Set biases in closed form, weights to 0 (those of a hidden layer at random), and the layers' standardisation.

    Transition biases are log Psi*; an LF's reliability starts at its share of the LFs' agreement with the vote, its
    reliability on O at its agreement there.
    """
    networks = conditionals.networks
    first = networks.transition.inner or networks.transition.outer
    standardize(first, packed.vectors.tokens)
    if networks.transition.inner is not None:
        nn.init.kaiming_uniform_(networks.transition.inner.weight)
    standardize(networks.reliability, packed.vectors.documents)
    standardize(networks.addon, packed.vectors.documents)
    diagonal = statistics.emission.diagonal(dim1=-2, dim2=-1)  # (K, L)
    uniform = statistics.emission[..., 0] == statistics.emission[..., 1]  # a row without counts
    agreement = torch.where(uniform, torch.full_like(diagonal, _UNSEEN_RELIABILITY), diagonal)
    logits = agreement.clamp(1e-3, 1 - 1e-3).log()
    logits[:, 0] = torch.logit(agreement[:, 0].clamp(0.9, 0.999))
    if networks.entity_level:
        logits = torch.cat([logits[:, :1], (logits[:, 1::2] + logits[:, 2::2]) / 2], dim=1)
    with torch.no_grad():
        conditionals.observed_emission.copy_(statistics.emission)
        conditionals.observed_transition.copy_(statistics.transition)
        conditionals.label_share.copy_(statistics.share)
        conditionals.training_size.copy_(torch.tensor([packed.corpus.num_documents, packed.corpus.num_tokens]))
        networks.transition.bias.copy_(statistics.transition.log())
        networks.reliability.bias.copy_(logits.flatten())


def initialize_corpus_emission(conditionals: Conditionals) -> None:
    """Start the guide's corpus emission, if there is one, at what the networks give the mean document."""
    networks = conditionals.networks
    if networks.corpus_emission is not None:
        with torch.no_grad():
            mean = conditionals.emission_mean(networks.reliability.mean.unsqueeze(0))[0]
            networks.corpus_emission.log_concentration.copy_((_CORPUS_OBSERVATIONS * mean).clamp(min=0.1).log())


def standardize(layer: StandardizedProjection, vectors: NDArray[np.float16] | WithNGrams) -> None:
    """Set a layer's mean and deviation, in float64 over slices: vectors may be larger than memory. Each rank reads its share."""
    total, squares = np.zeros(vectors.shape[1]), np.zeros(vectors.shape[1])
    for start in range(16_384 * ranks.rank(), len(vectors), 16_384 * ranks.size()):
        part = np.asarray(vectors[start : start + 16_384], dtype=np.float64)
        total += part.sum(axis=0)
        squares += (part * part).sum(axis=0)
    ranks.add(torch.from_numpy(total), torch.from_numpy(squares))
    count = max(len(vectors), 1)
    mean = total / count
    deviation = np.sqrt(np.maximum(squares / count - mean**2, 0))
    constant = deviation < 1e-6  # a constant vector (encoder "none") is left alone: the bias has it all
    layer.mean.copy_(torch.from_numpy(mean))
    layer.deviation.copy_(torch.from_numpy(np.where(constant, 1.0, deviation)))


def emission_distance(emission: Tensor, target: Tensor) -> Tensor:
    """First term of eq. (7), mean over documents: ``(B, K, L, L), (K, L, L) -> ()``.

    The second, on the transitions, is 0 from the start: their biases are the logarithms of its target.
    """
    return ((emission - target) ** 2).sum(dim=(-1, -2)).mean()


def pretrain(
    parameters: Iterable[nn.Parameter],
    distance: Callable[[], Tensor],
    learning_rate: float,
    steps: int,
) -> None:
    """Lower a distance until :data:`_WINDOW` steps gain less than a thousandth of it, or ``steps`` are over.

    :raises TrainingError: where the distance or a weight is not finite; the weights are then as they were before.
    """
    trained = list(parameters)
    before = [parameter.detach().clone() for parameter in trained]
    optimizer = torch.optim.Adam(trained, lr=learning_rate)
    previous = float("inf")
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss = distance()
        loss.backward()
        optimizer.step()
        if step % _WINDOW and step < steps:
            continue
        value = float(loss.detach())
        if not all(bool(torch.isfinite(part).all()) for part in (torch.tensor(value), *trained)):
            with torch.no_grad():
                for parameter, saved in zip(trained, before, strict=True):
                    parameter.copy_(saved)
            raise TrainingError(
                f"Pre-training stopped within {step} steps: the distance to the observed statistics is not finite. The weights are "
                "as they were before it; try a smaller pretrain_learning_rate."
            )
        log.debug("pre-training, step %d: distance %.6f", step, value)
        if previous - value < _CONVERGED * previous and previous < float("inf"):
            break
        previous = value
