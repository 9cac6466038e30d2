"""Training of a module by gradient steps, with averaged weights and early stopping: for CHMM."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields
from statistics import fmean

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from pyro_chmm import progress
from pyro_chmm.data.batching import PackedBatch, PackedCorpus
from pyro_chmm.errors import ConfigError, TrainingError
from pyro_chmm.model.training import EpochRecord, Selection

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GradientSettings:
    """How a module is trained.

    :param weight_penalty: L2 penalty on ``penalized`` weights, in nats a token.
    :param weight_averaging: decay, a step, of the moving average of weights that is scored and kept.
    :param selection_window: epochs whose mean score stands for the last of them.
    :raises ConfigError: for a value that makes no sense.
    """

    learning_rate: float = 1e-3
    epochs: int = 30
    patience: int = 6
    selection_window: int = 3
    batch_size: int = 128
    batch_tokens: int = 2048
    weight_penalty: float = 0.1
    weight_averaging: float = 0.99
    gradient_clip: float = 5.0
    seed: int = 0

    def __post_init__(self) -> None:
        for item in fields(self):
            value, least = getattr(self, item.name), 1 if item.type == "int" and item.name != "seed" else 0
            if not least <= value < float("inf") or (value == 0 and item.name in ("learning_rate", "gradient_clip")):
                raise ConfigError(f"{item.name} is {value!r}; it must be {'1 or more' if least else 'a positive number'}.")
        if self.weight_averaging >= 1:
            raise ConfigError(f"weight_averaging is {self.weight_averaging!r}; it must be below 1.")


def train(
    module: nn.Module,
    loss: Callable[[PackedBatch], Tensor],
    penalized: list[nn.Parameter],
    packed: PackedCorpus,
    select: Callable[[nn.Module], Selection],
    settings: GradientSettings,
    device: str = "cpu",
) -> list[EpochRecord]:
    """Train ``module`` in place, to the averaged weights of the best epoch, those before the first included.

    :param loss: minus the objective of a batch, summed over its documents.
    :param select: scores a module of the same class.
    :returns: a record an epoch; stage 1.
    :raises TrainingError: where a loss or gradient is not finite.
    """
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=settings.learning_rate)
    average = _average(module, settings.weight_averaging)
    shuffle = torch.Generator().manual_seed(settings.seed)
    recent: deque[float] = deque([select(average.module).value], maxlen=settings.selection_window)
    best, kept, waited = recent[0], _copy(average.module), 0
    history: list[EpochRecord] = []
    with progress.task("training", total=settings.epochs, unit="epochs") as advance:
        for epoch in range(1, settings.epochs + 1):
            if waited >= settings.patience:
                break
            started, total = time.perf_counter(), 0.0
            module.train()
            for batch in packed.shuffled(settings.batch_size, settings.batch_tokens, shuffle):
                value = loss(batch.to(device))
                penalty = settings.weight_penalty * sum((weight**2).sum() for weight in penalized)
                optimizer.zero_grad(set_to_none=True)
                (value / len(batch.weak_labels) + penalty).backward()
                norm = nn.utils.clip_grad_norm_(trained, settings.gradient_clip)
                if not bool(torch.isfinite(norm)) or not bool(torch.isfinite(value)):
                    raise TrainingError(
                        f"Epoch {epoch}: the loss or its gradient is not finite. Try a smaller learning_rate "
                        f"(it is {settings.learning_rate:g})."
                    )
                optimizer.step()
                average.update_parameters(module)
                total += float(value.detach())
            module.eval()
            seconds = time.perf_counter() - started
            record = _record(epoch, total / max(packed.corpus.num_tokens, 1), select(average.module), seconds)
            history.append(record)
            recent.append(record.selection)
            log.debug("epoch %d: loss %.5f, selection %.4f (%.2f s)", epoch, record.loss, record.selection, seconds)
            advance(1, note=f"loss {record.loss:.4f}")
            waited += 1
            if fmean(recent) > best:
                best, kept, waited = fmean(recent), _copy(average.module), 0
    module.load_state_dict(kept)
    return history


def _average(module: nn.Module, decay: float) -> AveragedModel:
    """An average that lengthens to its decay, from the present weights on."""

    def mix(average: Tensor, weight: Tensor, steps: Tensor | int) -> Tensor:
        return average.lerp(weight, 1 - min(decay, (1 + int(steps)) / (10 + int(steps))))

    average = AveragedModel(module, avg_fn=mix)
    average.eval()
    average.update_parameters(module)
    return average


def _copy(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def _record(epoch: int, loss: float, selection: Selection, seconds: float) -> EpochRecord:
    f1, precision, recall = (selection.scores.get(name) for name in ("f1", "precision", "recall"))
    return EpochRecord(1, epoch, loss, -loss, -loss, 0.0, selection.value, f1, precision, recall, seconds)
