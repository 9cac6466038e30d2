"""The benchmark: a grid of systems, data sets and seeds, run once each, whatever becomes of the others."""

from __future__ import annotations

import hashlib
import json
import logging
import multiprocessing
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Self

import torch

from pyro_chmm import progress
from pyro_chmm._version import __version__
from pyro_chmm.atomic import replacing
from pyro_chmm.data.corpus import Corpus, CorpusSplits
from pyro_chmm.data.datasets import load_dataset
from pyro_chmm.data.encoder import encode
from pyro_chmm.data.scoring import Score
from pyro_chmm.errors import ConfigError, EncoderError, MissingPackageError
from pyro_chmm.inspection.benchmark_systems import SYSTEMS, Setup, choose_systems, settings_of
from pyro_chmm.label_models.base import LabelModel
from pyro_chmm.label_models.run_record import corpus_hash
from pyro_chmm.label_models.runs import SCORED_SPLITS, checked_device, score_record, stage_scores, train_corpus
from pyro_chmm.label_models.sparse_chmm import SparseCHMM
from pyro_chmm.model.conditionals import encoder_settings
from pyro_chmm.model.config import SparseCHMMConfig

log = logging.getLogger(__name__)

RUNS = "runs"
Status = Literal["done", "failed", "missing", "skipped"]
Scores = dict[str, dict[str, float] | None]


@dataclass(frozen=True)
class BenchmarkSettings:
    """The grid.

    :param data: names of data sets, or paths.
    :param models: names of systems, or of groups of them.
    :param seeds: each system that depends on a seed runs with the seeds 0 to ``seeds - 1``, any other once.
    :param out: the folder of results; a run that is there is not run again.
    :param jobs: so many runs side by side, each in a process of its own; 1: one after another, in this one.
    """

    data: Sequence[str]
    models: Sequence[str] = ("all",)
    seeds: int = 5
    out: Path = Path("results")
    jobs: int = 1
    encoder: str = "minilm"
    device: str = "cpu"
    train_split: str = "train"
    data_root: Path | None = None


@dataclass(frozen=True)
class Job:
    """One run: what a process needs to know of it."""

    data: str
    system: str
    seed: int
    encoder: str
    device: str
    train_split: str
    data_root: Path | None
    out: Path


@dataclass(frozen=True)
class Result:
    """What became of one run; ``runs/*.json`` holds those that are done.

    :ivar scores: strict scores by split, in percent; None where a split is missing or has no gold labels.
    :ivar stages: the same after each stage of Sparse-CHMM.
    :ivar seconds_per_epoch, epochs: by stage.
    :ivar message: why it is not done.
    """

    data: str
    system: str
    seed: int
    status: Status
    encoder: str | None = None
    scores: Scores = field(default_factory=dict)
    stages: dict[str, Scores] = field(default_factory=dict)
    seconds_per_epoch: dict[str, float] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    seconds_total: float = 0.0
    message: str = ""


def run_benchmark(settings: BenchmarkSettings) -> list[Result]:
    """Run what the folder of results lacks.

    :returns: a result for every cell of the grid, in its order; one that failed says why.
    :raises PyroCHMMError: for an unknown system, a data set that cannot be read, a device that is not there.
    """
    if settings.seeds < 1 or settings.jobs < 1:
        raise ConfigError(f"There must be at least 1 seed and 1 job; these are {settings.seeds} and {settings.jobs}.")
    checked_device(settings.device)
    names = choose_systems(settings.models)
    for data in settings.data:
        train_corpus(load_corpora(data, settings.data_root), settings.train_split)
    jobs = list(_grid(settings, names))
    results: dict[Job, Result] = {}
    with progress.task("benchmark", total=len(jobs), unit="runs") as advance:
        found = {job: read_result(job) for job in jobs}
        pending = [job for job in jobs if found[job] is None]
        log.info("%d of %d runs are in %s already.", len(jobs) - len(pending), len(jobs), settings.out)
        results.update({job: result for job, result in found.items() if result is not None})
        advance(len(results))
        if settings.jobs > 1 and pending:
            _encode_first(pending)
        for job, result in _results(pending, settings.jobs):
            results[job] = result
            log.info("%s, %s, seed %d: %s", job.data, job.system, job.seed, result.message or _shown(result))
            advance(1, note=f"{job.data} {job.system}")
    return [results[job] for job in jobs]


def _grid(settings: BenchmarkSettings, names: Sequence[str]) -> Iterator[Job]:
    common = (settings.encoder, settings.device, settings.train_split, settings.data_root, settings.out)
    for data in dict.fromkeys(settings.data):
        for name in names:
            for seed in range(settings.seeds if SYSTEMS[name].seeded else 1):
                yield Job(data, name, seed, *common)


def _shown(result: Result) -> str:
    score = result.scores.get("test")
    return f"{result.status} in {result.seconds_total:.1f} s" + (f", test F1 {score['f1']:.2f}" if score else "")


@lru_cache(maxsize=4)
def load_corpora(data: str, data_root: Path | None) -> CorpusSplits:
    """The splits of a data set, kept: every run of a process asks for them."""
    return load_dataset(data, data_root=data_root)


def _encode_first(jobs: Sequence[Job]) -> None:
    """Vectors of every corpus, once, before several processes ask for them."""
    config = SparseCHMMConfig()
    for job in {(job.data, job.encoder): job for job in jobs if SYSTEMS[job.system].encodes}.values():
        settings = encoder_settings(config, job.encoder)
        for corpus in load_corpora(job.data, job.data_root).splits.values():
            try:
                encode(corpus, settings, device=job.device)
            except EncoderError as error:  # the runs that need them will say so too
                log.warning("%s: %s", job.data, error)


def _results(jobs: Sequence[Job], side_by_side: int) -> Iterator[tuple[Job, Result]]:
    """Every job's result as it comes."""
    if side_by_side == 1:
        for job in jobs:
            yield job, execute(job)
        return
    with IsolatedCalls(side_by_side) as calls:
        waiting = {calls.submit(execute, job): job for job in jobs}
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                job = waiting.pop(future)
                error = future.exception()
                yield job, future.result() if error is None else _failed(job, error)


class IsolatedCalls:
    """Calls in worker processes, so many at once, in which one that dies takes no other with it."""

    def __init__(self, workers: int) -> None:
        self._threads, self._local = ThreadPoolExecutor(workers), threading.local()
        self._pools: list[ProcessPoolExecutor] = []
        self._torch_threads = max(1, torch.get_num_threads() // workers)

    def __enter__(self) -> Self:
        return self

    def submit(self, function: Callable[[Any], Any], argument: Any) -> Future[Any]:
        """Call ``function(argument)``; :class:`BrokenProcessPool` where the process dies."""
        return self._threads.submit(self._call, function, argument)

    def _call(self, function: Callable[[Any], Any], argument: Any) -> Any:
        """In this thread's own process, a new one if the last has died."""
        if getattr(self._local, "pool", None) is None:
            context = multiprocessing.get_context("spawn")
            pool = ProcessPoolExecutor(1, context, initializer=torch.set_num_threads, initargs=(self._torch_threads,))
            self._local.pool = pool
            self._pools.append(pool)
        try:
            return self._local.pool.submit(function, argument).result()
        except BrokenProcessPool:
            self._local.pool = None
            raise

    def __exit__(self, *error: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for pool in self._pools:
            pool.shutdown(wait=False, cancel_futures=True)
        self._threads.shutdown()


def execute(job: Job) -> Result:
    """Run one job and write its result, if it is done; no exception but an interrupt leaves it."""
    splits, system = load_corpora(job.data, job.data_root), SYSTEMS[job.system]
    where = {"train": job.train_split}
    for split in system.needs_gold:
        if splits[where.get(split, split)].gold is None:
            return Result(job.data, job.system, job.seed, "skipped", message=f"it needs gold labels, and {split} has none")
    try:
        result = _run(job, splits)
    except MissingPackageError as error:
        return Result(job.data, job.system, job.seed, "missing", message=str(error))
    except Exception as error:
        log.debug("%s failed.", job, exc_info=True)
        return _failed(job, error)
    write_result(job, result)
    return result


def _failed(job: Job, error: BaseException) -> Result:
    what = "its process died" if isinstance(error, BrokenProcessPool) else f"{type(error).__name__}: {error}"
    return Result(job.data, job.system, job.seed, "failed", message=" ".join(what.split()))


def _run(job: Job, splits: CorpusSplits) -> Result:
    system, clock = SYSTEMS[job.system], time.perf_counter()
    encoder = job.encoder if system.encodes else None
    if system.make is None:
        assert system.oracle is not None
        scores, seconds = _scores(splits, system.oracle), time.perf_counter() - clock
        return Result(job.data, job.system, job.seed, "done", scores=scores, seconds_total=seconds)
    model = system.make(_setup(job))
    train = splits[job.train_split]
    model.fit(train if system.needs_gold else train.without_gold(), valid=splits.get("valid"))
    return Result(
        job.data,
        job.system,
        job.seed,
        "done",
        encoder,
        _scores(splits, model.score),
        stage_scores(model, splits) if isinstance(model, SparseCHMM) else {},
        dict(getattr(model, "seconds_per_epoch_", {})),
        _epochs(model),
        time.perf_counter() - clock,
    )


def _setup(job: Job) -> Setup:
    return Setup(job.seed, job.encoder, job.device)


def _scores(splits: CorpusSplits, scored: Callable[[Corpus], Score]) -> Scores:
    corpora = {name: splits.get(name) for name in SCORED_SPLITS}
    return {
        name: None if corpus is None or corpus.gold is None else score_record(scored(corpus)) for name, corpus in corpora.items()
    }


def _epochs(model: LabelModel) -> dict[str, int]:
    """Epochs, or steps of EM, by stage."""
    if hasattr(model, "history_"):
        return dict(Counter(str(record.stage) for record in model.history_))
    return {"1": len(model.log_density_)} if hasattr(model, "log_density_") else {}


def result_path(job: Job) -> Path:
    """Where a job's result is: the name has a hash of all that it depends on."""
    splits, make = load_corpora(job.data, job.data_root), SYSTEMS[job.system].make
    depends = {
        "settings": settings_of(None if make is None else make(_setup(job))),
        "seed": job.seed,
        "train": job.train_split,
        "data": {name: corpus_hash(corpus) for name, corpus in splits.splits.items()},
        "version": __version__,
    }
    digest = hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()
    data = re.sub(r"[^A-Za-z0-9]+", "-", job.data).strip("-")
    return job.out / RUNS / f"{data}-{job.system}-{job.seed}-{digest[:16]}.json"


def read_result(job: Job) -> Result | None:
    """The result of an earlier run of the same configuration; None where there is none that can be read."""
    try:
        return Result(**json.loads(result_path(job).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def write_result(job: Job, result: Result) -> None:
    """Put the result in place in one step."""
    write_atomically(result_path(job), json.dumps(asdict(result), indent=2, ensure_ascii=False) + "\n")


def write_atomically(path: Path, text: str) -> None:
    """Write a file under another name first.

    :raises ConfigError: where that cannot be done.
    """
    try:
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}): choose another folder.") from None
