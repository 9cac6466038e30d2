"""Training: initialisation, pre-training, three stages, early stopping (section 3.3)."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from statistics import fmean

import numpy as np
import pyro
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pyro_chmm import progress, ranks
from pyro_chmm.data.batching import PackedBatch, PackedCorpus
from pyro_chmm.errors import ChainError, ModelFileError, TrainingError
from pyro_chmm.model import initialization
from pyro_chmm.model.averaging import WeightAverage
from pyro_chmm.model.checkpoint import Checkpoint, Checkpoints, random_states, read_checkpoint, set_random_states
from pyro_chmm.model.conditionals import Conditionals
from pyro_chmm.model.gradient_steps import GradientSteps
from pyro_chmm.model.networks import StandardizedLinear
from pyro_chmm.model.prior_densities import check_priors
from pyro_chmm.model.priors import AnyPrior
from pyro_chmm.model.verification import refuse_mismatch
from pyro_chmm.model.wxor import wxor_rates, wxor_scores

log = logging.getLogger(__name__)

#: Bias of the addon scale before stage 2's pre-training: the addon prior starts near 0.
_ADDON_BIAS = -4.0


@dataclass(frozen=True)
class Selection:
    """How good the present weights are. Higher ``value`` is better; ``scores`` go into the history."""

    value: float
    scores: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class EpochRecord:
    """One row of the history. ``loss`` is minus the objective a token; the other terms are nats a token too."""

    stage: int
    epoch: int
    loss: float
    elbo: float
    evidence: float
    kl: float
    selection: float
    valid_f1: float | None
    valid_precision: float | None
    valid_recall: float | None
    seconds: float


class Trainer:
    """Trains the conditionals' networks on a packed corpus.

    :param conditionals: what is trained, in place.
    :param prior: on the emission.
    :param train: the training documents.
    :param extra: more documents, for the WXOR scores only (the validation split).
    :param vote: ``(N,)`` a vote on the training documents, for observed statistics.
    :param select: scores the present weights; the best weights of each stage are kept by it.
    :param checkpoints: where to write them, and whether to go on from one; None: nowhere.
    """

    def __init__(
        self,
        conditionals: Conditionals,
        prior: AnyPrior,
        train: PackedCorpus,
        extra: PackedCorpus | None,
        vote: NDArray[np.int16],
        select: Callable[[], Selection],
        checkpoints: Checkpoints | None = None,
    ) -> None:
        config = conditionals.config
        self.conditionals, self.config, self.select = conditionals.eval(), config, select
        self.train, self.extra, self.vote = train, extra, vote
        self.steps = GradientSteps(conditionals, prior, train)
        self.shuffle, self.device = self.steps.shuffle, self.steps.device
        self.average = WeightAverage(conditionals, config.weight_averaging)
        self.recent: deque[float] = deque(maxlen=config.selection_window)
        self.history: list[EpochRecord] = []
        self.stage_weights: dict[int, dict[str, Tensor]] = {}
        self.stage_selection: dict[int, float] = {}
        self.checkpoints = checkpoints
        self.resumed: Checkpoint | None = None

    def run(self) -> int:
        """Train all stages; returns the best one, whose weights are then in place.

        :raises TrainingError: where the fast path differs from enumeration, or a loss or gradient is not finite.
        """
        try:
            self.run_stages()
        except TrainingError:
            if self.stage_weights:
                self.restore_best()
            raise
        return self.restore_best()

    def run_stages(self) -> None:
        """Initialise, pre-train, verify, then train the stages that the configuration asks for."""
        if self.checkpoints is not None and self.checkpoints.resume:
            self.resume(read_checkpoint(self.checkpoints.path))
        first = 1 if self.resumed is None else int(self.resumed.state["stage"])
        if self.resumed is None:
            self.prepare()
            if ranks.rank():  # what is drawn differs between ranks
                torch.manual_seed(self.config.seed + ranks.rank())
            check_priors(self.steps.model.prior, self.conditionals, next(iter(self.train.in_order())).to(self.device))
        if self.resumed is None and self.config.verify and self.config.marginalize == "fast":
            self.verify()
        networks, config = self.conditionals.networks, self.config
        base: list[nn.Module] = [networks.transition, networks.reliability]
        with pyro.validation_enabled(False):  # every loss, gradient and weight is checked in step()
            if first == 1:
                self.run_stage(1, base, config.learning_rate_stage1, config.epochs_stage1)
                if config.stage2 != "none":
                    self.prepare_addon()
            if config.stage2 == "separate" and config.epochs_stage2 and first <= 2:
                self.run_stage(2, [networks.addon], config.learning_rate_stage2, config.epochs_stage2)
            if config.epochs_stage3:
                third: list[nn.Module] = [networks.transition] + ([networks.addon] if config.stage2 == "merged" else [])
                self.run_stage(3, third, config.learning_rate_stage3, config.epochs_stage3)

    def verify(self) -> None:
        """Check the fast path on the first batch; training then goes as it would have without.

        :raises TrainingError: where it differs from enumeration.
        """
        order = self.shuffle.get_state()
        batch = next(iter(self.steps.shares())).batch
        self.shuffle.set_state(order)
        with torch.random.fork_rng(devices=[]):
            refuse_mismatch(self.conditionals, self.steps.model.prior, batch)

    def restore_best(self) -> int:
        """Put the weights of the best stage in place, of the earlier one among equals; returns that stage."""
        best = max(self.stage_selection, key=lambda stage: (self.stage_selection[stage], -stage))
        self.restore(best)
        return best

    def restore(self, stage: int) -> None:
        """Put the weights kept for a stage in place."""
        self.conditionals.restore(stage, self.stage_weights[stage])

    def prepare(self) -> None:
        """Initialise from observed statistics, then pre-train the reliabilities by eq. (7)."""
        statistics = initialization.observed_statistics(self.train, self.vote)
        initialization.initialize(self.conditionals, self.train, statistics)
        self.pretrain(self.conditionals.networks.reliability, statistics.emission.to(self.device))
        initialization.initialize_corpus_emission(self.conditionals)

    def pretrain(self, layer: StandardizedLinear, target: Tensor) -> None:
        """Move a layer's biases until the mean document's emission is nearest to a target.

        The target is the same for every document, so the mean document stands for them all and the weights stay 0.
        """
        document = layer.mean.unsqueeze(0)
        initialization.pretrain(
            [layer.bias],
            lambda: initialization.emission_distance(self.conditionals.predicted_emission(document), target),
            self.config.pretrain_learning_rate,
            self.config.pretrain_steps,
        )

    @torch.no_grad()
    def prepare_addon(self) -> None:
        """WXOR scores from the training and extra documents, once; then stage 2's pre-training of the addon scale."""
        conditionals, config = self.conditionals, self.config
        sources = [self.train] + ([self.extra] if self.extra is not None else [])
        triples = (
            (conditionals.reliability(batch.document_vectors), batch.weak_labels, batch.document_index)
            for source in sources
            for batch in self.share_of(source)
        )
        rates = wxor_rates(triples, conditionals.networks.num_lfs, conditionals.networks.num_labels)
        conditionals.wxor.copy_(wxor_scores(rates, config.wxor_normalization))
        mean = torch.zeros_like(conditionals.observed_emission)
        for batch in self.share_of(self.train):
            mean += conditionals.predicted_emission(batch.document_vectors).sum(dim=0)
        ranks.add(mean)
        mean /= max(self.train.corpus.num_documents, 1)
        target = config.addon_weight * conditionals.observed_emission + (1 - config.addon_weight) * mean
        conditionals.networks.addon.bias.fill_(_ADDON_BIAS)
        conditionals.stage = 2
        with torch.enable_grad():
            self.pretrain(conditionals.networks.addon, target)

    def share_of(self, packed: PackedCorpus) -> Iterator[PackedBatch]:
        """This rank's share of some documents, in order."""
        for number, documents in enumerate(packed.consecutive()):
            if number % ranks.size() == ranks.rank():
                yield packed.batch(documents).to(self.device)

    def run_stage(self, stage: int, layers: list[nn.Module], learning_rate: float, epochs: int) -> None:
        """Train some layers, keep the best weights and stop when patience runs out."""
        config, optimizer = self.config, self.begin_stage(stage, layers, learning_rate)
        done, waited = self.resume_stage(optimizer) or self.first_selection(stage)
        with progress.task(f"stage {stage}", total=epochs, unit="epochs") as advance:
            for epoch in range(done + 1, epochs + 1):
                if waited >= config.patience:
                    break
                record = self.run_epoch(stage, epoch, optimizer)
                self.history.append(record)
                f1 = "" if record.valid_f1 is None else f", validation F1 {record.valid_f1:.2f}"
                log.debug(
                    "stage %d, epoch %d: loss %.5f%s (%.2f s)", stage, epoch, record.loss, f1, record.seconds
                )
                advance(1, note=f"loss {record.loss:.4f}{f1}")
                self.recent.append(record.selection)
                waited = 0 if self.keep_if_better(stage, fmean(self.recent)) else waited + 1
                if self.checkpoints is not None and ranks.agreed(self.checkpoints.due()):
                    self.checkpoint(self.checkpoints, stage, epoch, waited, optimizer)
        self.restore(stage)

    def checkpoint(
        self, checkpoints: Checkpoints, stage: int, epoch: int, waited: int, optimizer: torch.optim.Optimizer
    ) -> None:
        """Write all that the epochs to come depend on."""
        tensors = random_states(self.shuffle)
        tensors |= {f"weights/{name}": value for name, value in self.conditionals.state_dict().items()}
        tensors |= {f"average/{name}": value for name, value in self.average.state().items()}
        for kept, weights in self.stage_weights.items():
            tensors |= {f"stage/{kept}/{name}": value for name, value in weights.items()}
        for number, moments in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{number}/{name}": torch.as_tensor(value) for name, value in moments.items()}
        state = {"stage": stage, "epoch": epoch, "waited": waited, "recent": list(self.recent), "config": self.config.to_dict()}
        state["selection"] = {str(kept): value for kept, value in self.stage_selection.items()}
        state["history"] = [asdict(record) for record in self.history]
        if ranks.rank() == 0:
            checkpoints.write(state, tensors)

    def resume(self, found: Checkpoint) -> None:
        """Take up where a checkpoint was written.

        :raises ModelFileError: for one of another model or another configuration.
        """
        try:
            if found.state["config"] != self.config.to_dict():
                raise ValueError("its hyper-parameters are others")
            self.conditionals.load_state_dict(found.part("weights/"))
            for kept, value in found.state["selection"].items():
                self.stage_selection[int(kept)] = float(value)
                self.stage_weights[int(kept)] = {n: v.to(self.device) for n, v in found.part(f"stage/{kept}/").items()}
            self.history.extend(EpochRecord(**record) for record in found.state["history"])
            self.average.restore(found.part("average/"))
            self.recent.extend(map(float, found.state["recent"]))
            int(found.state["stage"]), int(found.state["epoch"]), int(found.state["waited"])
            if (written := len(found.tensors["rng/torch"])) != ranks.size():
                raise ValueError(f"{written} processes wrote it, and these are {ranks.size()}")
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ModelFileError(f"The checkpoint does not fit this run: {' '.join(str(error).split())}.") from None
        self.resumed = found

    def resume_stage(self, optimizer: torch.optim.Optimizer) -> tuple[int, int] | None:
        """Give the optimiser and the random numbers their state back, once; returns the epochs done and waited."""
        found, self.resumed = self.resumed, None
        if found is None:
            return None
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in found.part("optimizer/").items():
            number, _, key = name.partition("/")
            moments.setdefault(int(number), {})[key] = value
        self.average.restore(found.part("average/"))  # begin_stage() has started a new one
        optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
        set_random_states(found.tensors, self.shuffle)
        return int(found.state["epoch"]), int(found.state["waited"])

    def begin_stage(self, stage: int, layers: list[nn.Module], learning_rate: float) -> torch.optim.Optimizer:
        """Freeze all but some layers; returns an optimiser of theirs."""
        self.conditionals.stage = stage
        self.average = WeightAverage(self.conditionals, self.config.weight_averaging)
        return self.steps.begin(layers, learning_rate)

    def averaged_selection(self) -> Selection:
        """How good the averaged weights are."""
        with self.average.in_place():
            return self.select()

    def first_selection(self, stage: int) -> tuple[int, int]:
        """Score a stage's first weights; returns the epochs done and waited, none."""
        self.recent.clear()
        self.recent.append(self.averaged_selection().value)
        self.keep_if_better(stage, self.recent[0])
        return 0, 0

    def keep_if_better(self, stage: int, value: float) -> bool:
        """Keep the averaged weights for a stage if none are kept or these are better; returns whether they are."""
        better = stage not in self.stage_weights or value > self.stage_selection[stage]
        if better:
            self.stage_selection[stage] = value
            with self.average.in_place():
                state = self.conditionals.state_dict()
                self.stage_weights[stage] = {name: tensor.detach().clone() for name, tensor in state.items()}
        return better

    def run_epoch(self, stage: int, epoch: int, optimizer: torch.optim.Optimizer) -> EpochRecord:
        """One pass over the training documents, then the selection score."""
        started = time.perf_counter()
        self.conditionals.train()
        names = ("loss", "kl", "entropy", "prior")
        sums = torch.zeros(len(names), dtype=torch.float64, device=self.device)
        for number, share in enumerate(self.steps.shares(), start=1):
            loss = self.steps.step(share, optimizer, f"stage {stage}, epoch {epoch}, step {number}")
            self.average.update()
            if share.counts:
                terms = {"loss": loss, **self.steps.model.terms}
                sums += torch.stack([torch.as_tensor(terms.get(name, 0.0), dtype=torch.float64) for name in names]).to(sums)
        ranks.add(sums)
        self.conditionals.eval()
        seconds = time.perf_counter() - started
        try:
            selection = self.averaged_selection()
        except ChainError as error:
            raise self.steps.not_finite(f"stage {stage}, after epoch {epoch}") from error
        tokens = max(self.train.corpus.num_tokens, 1)
        loss, kl, entropy, prior = (sums / tokens).tolist()
        evidence = -loss + self.config.kl_weight * kl + self.config.posterior_sharpening * entropy + prior
        f1, precision, recall = (selection.scores.get(name) for name in ("f1", "precision", "recall"))
        return EpochRecord(
            *(stage, epoch, loss, evidence - kl, evidence, kl, selection.value), f1, precision, recall, seconds
        )
