"""Gradient steps of the ELBO: one loss of a batch, shared among ranks by DistributedDataParallel, and what is not finite in it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pyro_chmm import ranks
from pyro_chmm.data.batching import PackedBatch, PackedCorpus
from pyro_chmm.errors import ChainError, TrainingError
from pyro_chmm.model.conditionals import Conditionals
from pyro_chmm.model.networks import StandardizedProjection
from pyro_chmm.model.priors import AnyPrior
from pyro_chmm.model.sparse_chmm import SparseCHMMGuide, SparseCHMMModel


@dataclass(frozen=True)
class Share:
    """This rank's part of a batch.

    :ivar batch: its documents; where there are fewer documents than ranks, one that another rank has too.
    :ivar tokens: of the whole batch, on all ranks.
    :ivar counts: whether the documents count here.
    """

    batch: PackedBatch
    tokens: int
    counts: bool = True


class Objective(nn.Module):
    """Minus the ELBO of a batch, summed over its documents, as a module that DistributedDataParallel can wrap."""

    def __init__(self, model: SparseCHMMModel, guide: SparseCHMMGuide) -> None:
        super().__init__()
        self.model, self.guide, self.elbo = model, guide, model.elbo()

    def forward(self, batch: PackedBatch) -> Tensor:
        """``()``"""
        loss: Tensor = self.elbo.differentiable_loss(self.model, self.guide, batch)  # type: ignore[no-untyped-call]
        return loss


class GradientSteps:
    """Takes gradient steps on the weights of some layers.

    Every rank goes through the same batches, takes its share of the documents, and makes the same step: the mean over the tokens of
    all ranks. Without chance in it (``dropout`` 0, ``sample_emission`` off) the step does not depend on the number of ranks.

    :param conditionals: what is trained, in place.
    :param prior: on the emission.
    :param train: the training documents.
    """

    def __init__(self, conditionals: Conditionals, prior: AnyPrior, train: PackedCorpus) -> None:
        config = conditionals.config
        self.conditionals, self.config, self.train = conditionals, config, train
        self.model = SparseCHMMModel(conditionals, prior, config.kl_weight, config.marginalize)
        self.objective: nn.Module = Objective(self.model, SparseCHMMGuide(conditionals, prior, config.kl_weight))
        self._shared: nn.Module = self.objective
        self.shuffle = torch.Generator().manual_seed(config.seed)
        self.device = conditionals.initial.device
        self.penalized: list[Tensor] = []

    def begin(self, layers: list[nn.Module], learning_rate: float) -> torch.optim.Optimizer:
        """Freeze all but some layers; returns an optimiser of theirs."""
        self.conditionals.requires_grad_(False)
        corpus_emission = self.conditionals.networks.corpus_emission
        layers = layers if corpus_emission is None else [*layers, corpus_emission]
        for layer in layers:
            layer.requires_grad_(True)
        parts = [part for layer in layers for part in layer.modules() if isinstance(part, StandardizedProjection)]
        self.penalized = [part.weight for part in parts if not part.dropout]  # dropout is penalty enough
        if ranks.size() > 1:
            self._shared = DistributedDataParallel(self.objective, broadcast_buffers=False)
        return torch.optim.Adam([p for layer in layers for p in layer.parameters()], lr=learning_rate, fused=True)

    def shares(self) -> Iterator[Share]:
        """An epoch of the training documents in random order: this rank's part of every batch."""
        lengths = np.diff(self.train.corpus.offsets)
        for documents in self.train.shuffled_documents(self.config.batch_size, self.config.batch_tokens, self.shuffle):
            mine = ranks.share(documents, lengths[documents])
            batch = self.train.batch(mine if len(mine) else documents[:1]).to(self.device)
            yield Share(batch, int(lengths[documents].sum()), len(mine) > 0)

    def step(self, share: Share, optimizer: torch.optim.Optimizer, where: str) -> float:
        """One gradient step; returns the loss summed over this rank's share.

        :raises TrainingError: where the loss, a gradient or, after the step, a weight is not finite, or memory runs out.
        """
        batch = share.batch
        try:
            return self._step(share, optimizer, where)
        except (MemoryError, RuntimeError) as error:
            if not _out_of_memory(error):
                raise
            raise TrainingError(
                f"Training ran out of memory at {where}, documents {self.ids_of(batch)}: lower batch_tokens (--batch-tokens), "
                f"which is {self.config.batch_tokens}, or split documents that are longer than that. The best weights so far "
                "are kept."
            ) from error

    def _step(self, share: Share, optimizer: torch.optim.Optimizer, where: str) -> float:
        batch = share.batch
        optimizer.zero_grad(set_to_none=True)
        loss = self._loss(batch, where) * float(share.counts)
        penalty = self.config.weight_penalty * sum((weight**2).sum() for weight in self.penalized)
        # gradients are averaged over ranks, so the sum over tokens is taken times their number
        (loss * (ranks.size() / share.tokens) + penalty).backward()
        trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        norm = nn.utils.clip_grad_norm_(trained, self.config.gradient_clip)
        value = float(loss.detach())
        if not np.isfinite(value) or not bool(torch.isfinite(norm)):
            raise self.not_finite(f"{where}, documents {self.ids_of(batch)}")
        optimizer.step()
        if not all(bool(torch.isfinite(parameter).all()) for parameter in trained):
            raise self.not_finite(f"{where}, documents {self.ids_of(batch)}")
        return value

    def _loss(self, batch: PackedBatch, where: str) -> Tensor:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Encountered")  # not_finite() says it better
                return cast(Tensor, self._shared(batch))
        except ValueError as error:  # the chain and Pyro refuse NaN before it becomes a loss
            concentration = self.conditionals.concentration(batch.document_vectors)
            if isinstance(error, ChainError) or not bool(torch.isfinite(concentration).all()):
                raise self.not_finite(f"{where}, documents {self.ids_of(batch)}") from error
            raise

    def ids_of(self, batch: PackedBatch) -> str:
        """The documents of a batch, for messages."""
        ids = [self.train.corpus.document_ids[m] for m in batch.documents.tolist()]
        return ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")

    def not_finite(self, where: str) -> TrainingError:
        """The error that names the step and what is not finite: a parameter, else a gradient, else what the weights give."""
        named = list(self.conditionals.named_parameters())
        weights = [f"the parameter {name}" for name, value in named if not bool(torch.isfinite(value).all())]
        gradients = [
            f"the gradient of {name}"
            for name, value in named
            if value.grad is not None and not bool(torch.isfinite(value.grad).all())
        ]
        largest = max(named, key=lambda pair: float(pair[1].detach().abs().max()))[0]
        guilty = [*weights, *gradients, f"the objective (the largest weight is in the parameter {largest})"][0]
        return TrainingError(
            f"Training stopped at {where}: {guilty} is not finite. The best weights so far are kept; try a smaller learning rate."
        )


def _out_of_memory(error: Exception) -> bool:
    """PyTorch's allocator for the CPU has no error of its own."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "you tried to allocate" in str(error)
