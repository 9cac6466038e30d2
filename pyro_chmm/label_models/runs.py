"""Runs: train into a folder that holds all there is to know; predict and score from such a folder."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pyro_chmm import ranks
from pyro_chmm.data.corpus import Corpus, CorpusSplits
from pyro_chmm.data.datasets import is_path, load_dataset
from pyro_chmm.data.formats.jsonl import write_predictions
from pyro_chmm.data.formats.registry import format_to_write, write_labels
from pyro_chmm.data.scoring import Score, score, score_by_type
from pyro_chmm.errors import ConfigError, DataError, ModelFileError
from pyro_chmm.label_models import exporting
from pyro_chmm.label_models.best_consensus import best_consensus
from pyro_chmm.label_models.majority_vote import MajorityVote
from pyro_chmm.label_models.run_folder import CONFIG, HISTORY, METRICS, PREDICTIONS, RunFolder
from pyro_chmm.label_models.run_record import add_run, corpus_hash, peak_rss_mb, write_history, write_json
from pyro_chmm.label_models.sparse_chmm import SparseCHMM
from pyro_chmm.model.checkpoint import Checkpoint, Checkpoints, read_checkpoint

logger = logging.getLogger(__name__)

CHECKPOINT = "checkpoint.safetensors"
SCORED_SPLITS = ("valid", "test")
@dataclass(frozen=True)
class RunSettings:
    """What a run is made of.

    :param data: name of a data set, or path to one.
    :param out: the run folder; by default ``runs/`` and the last part of the data set's name.
    :param lfs: None for the recommended LFs, ``"all"``, or names.
    :param train_split: the split to learn from.
    :param hyperparameters: fields of ``SparseCHMMConfig`` that differ from the preset.
    :param command: the command as given, for the record.
    """

    data: str
    out: Path | None = None
    overwrite: bool = False
    data_root: Path | None = None
    lfs: Sequence[str] | str | None = None
    train_split: str = "train"
    preset: str = "default"
    device: str = "cpu"
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""

    @property
    def directory(self) -> Path:
        """Where the run folder goes."""
        return Path("runs", Path(self.data).resolve().stem) if self.out is None else self.out


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, what its ``metrics.json`` holds, and the stage whose weights were kept."""

    directory: Path
    metrics: dict[str, Any]
    best_stage: int


def fit(settings: RunSettings) -> Run:
    """Train on a data set and write the run folder, complete or not at all (see :class:`RunFolder`).

    Meanwhile the folder has a checkpoint, from which :func:`resume` goes on where the run ends early.

    :raises PyroCHMMError: for whatever of the settings or the data cannot be used.
    """
    if (settings.directory / CHECKPOINT).exists() and not settings.overwrite:
        raise ConfigError(
            f"The output folder {settings.directory} has the checkpoint of a run that ended early: go on with "
            f"`pyro-chmm fit --resume {settings.directory}`, or start again with --overwrite."
        )
    return _fit(settings, None)


def resume(directory: Path) -> Run:
    """Go on with a run that ended early, from its last checkpoint, to the result of a run without a break.

    :raises PyroCHMMError: where there is no checkpoint, or the data are others now.
    """
    found = read_checkpoint(directory / CHECKPOINT)
    options = found.about.get("options")
    try:
        settings = RunSettings(**{**options, "out": directory})  # type: ignore[dict-item]
    except TypeError:
        raise ModelFileError(f"{directory / CHECKPOINT} does not say what run it is of; train again with --overwrite.") from None
    root = None if settings.data_root is None else Path(settings.data_root)
    return _fit(replace(settings, data_root=root), found)


def _fit(settings: RunSettings, found: Checkpoint | None) -> Run:
    """All ranks train and label together; one writes."""
    started, clock = datetime.now(UTC), time.perf_counter()
    directory = settings.directory
    with (
        ranks.joined(checked_device(settings.device)) as device,
        _folder(settings) as folder,
        _telling_of(directory / CHECKPOINT),
    ):
        logger.debug("Command: %s", settings.command)
        splits, model = _trained(settings, found, device)
        metrics: dict[str, Any] = {"stages": stage_scores(model, splits)}
        metrics |= _write_predictions(model, splits, None if folder is None else folder.path / PREDICTIONS)
        if folder is None:
            return Run(directory, metrics, model.best_stage_)
        model.save(folder.path)
        write_history(model.history_, folder.path / HISTORY)
        metrics["majority_vote"] = _scores(splits, lambda corpus: MajorityVote().fit(corpus).score(corpus))
        metrics["best_consensus"] = _scores(splits, best_consensus)
        metrics["seconds_per_epoch"] = dict(model.seconds_per_epoch_)
        metrics["seconds_total"] = time.perf_counter() - clock
        metrics["peak_rss_mb"] = peak_rss_mb()
        write_json(folder.path / METRICS, metrics)
        record = {
            "command": settings.command,
            "started": started.isoformat(timespec="seconds"),
            "best_stage": model.best_stage_,
            "ranks": ranks.size(),
        }
        add_run(folder.path / CONFIG, _options(settings), splits, record)
        logger.debug("Finished in %.1f s.", metrics["seconds_total"])
        folder.commit()
        (directory / CHECKPOINT).unlink(missing_ok=True)
    return Run(directory, metrics, model.best_stage_)


@contextmanager
def _folder(settings: RunSettings) -> Iterator[RunFolder | None]:
    """The run folder, on the rank that writes."""
    if ranks.rank():
        yield None
        return
    with RunFolder(settings.directory, overwrite=settings.overwrite) as folder:
        yield folder


def _trained(settings: RunSettings, found: Checkpoint | None, device: str) -> tuple[CorpusSplits, SparseCHMM]:
    """The data and the model trained on them, from a checkpoint if one was found."""
    splits = load_dataset(settings.data, data_root=settings.data_root, lfs=settings.lfs)
    train = train_corpus(splits, settings.train_split)
    model = SparseCHMM(preset=settings.preset, device=device, **settings.hyperparameters)
    data = {name: corpus_hash(corpus) for name, corpus in splits.splits.items() if name in (settings.train_split, "valid")}
    if found is not None and found.about.get("data") != data:
        raise DataError(
            f"{settings.data} is not what the run in {settings.directory} was trained on; train again with --overwrite."
        )
    options = {**_from_anywhere(_options(settings)), "overwrite": settings.overwrite, "command": settings.command}
    about = {"options": options, "data": data}
    checkpoints = Checkpoints(settings.directory / CHECKPOINT, about, resume=found is not None)
    return splits, model.fit(train, valid=splits.get("valid"), checkpoints=checkpoints)


@contextmanager
def _telling_of(checkpoint: Path) -> Iterator[None]:
    """Tell with an error where the last checkpoint is."""
    try:
        yield
    except BaseException as error:
        if checkpoint.exists():
            error.add_note(f"The checkpoint is {checkpoint}: go on with `pyro-chmm fit --resume {checkpoint.parent}`.")
        raise


def train_corpus(splits: CorpusSplits, name: str) -> Corpus:
    """The split to learn from.

    :raises DataError: when there is no such split, naming those there are.
    """
    corpus = splits.get(name)
    if corpus is None:
        there = ", ".join(splits.splits)
        raise DataError(
            f"{splits.name} has no split {name!r} here, only {there}: learn from another one, as with "
            f"--train-split {next(iter(splits.splits), 'train')}."
        )
    return corpus


def predict(
    model_directory: Path,
    data: str,
    out: Path,
    *,
    data_root: Path | None = None,
    split: str | None = None,
    device: str = "cpu",
    form: str = "jsonl",
) -> int:
    """Label a split with a saved model and write tokens, labels and posterior to ``out``, in one step.

    :param split: may be left out where the data has one split.
    :param form: the format to write.
    :returns: the number of documents.
    :raises PyroCHMMError: for a model or data that cannot be used.
    """
    writer = format_to_write(out, form)
    with ranks.joined(checked_device(device)) as device:
        corpus, ids, posteriors = _labelled(model_directory, data, data_root, split, device)
        if ranks.rank():
            _worked_off(posteriors)
        else:
            write_labels(out, corpus, ids, posteriors, writer)
    return corpus.num_documents


def export(
    model_directory: Path,
    data: str,
    out: Path,
    *,
    to: str,
    soft: bool = False,
    min_confidence: float = 0.0,
    data_root: Path | None = None,
    split: str | None = None,
    device: str = "cpu",
) -> tuple[int, int, int]:
    """Label a split with a saved model and write what a tagger is trained on; see :func:`exporting.export`.

    :returns: the numbers of documents, of tokens, and of tokens left out.
    :raises PyroCHMMError: for a model, data or settings that cannot be used.
    """
    corpus, ids, posteriors = _labelled(model_directory, data, data_root, split, checked_device(device))
    left_out = exporting.export(out, corpus, ids, list(posteriors), to, soft=soft, min_confidence=min_confidence)
    return corpus.num_documents, corpus.num_tokens, left_out


def _labelled(
    model_directory: Path, data: str, data_root: Path | None, split: str | None, device: str
) -> tuple[Corpus, NDArray[np.int16], Iterator[NDArray[np.float32]]]:
    """A split, its labels and its posterior, a document after the other."""
    model = SparseCHMM.load(model_directory, device=device)
    splits = load_dataset(data, data_root=data_root, lfs="all")
    if split is None and len(splits.splits) != 1:
        raise DataError(f"{splits.name} has the splits {', '.join(splits.splits)}; choose one with --split.")
    corpus = model.matching(splits[next(iter(splits.splits)) if split is None else split])
    return corpus, *model.label(corpus)


def _worked_off(posteriors: Iterator[NDArray[np.float32]]) -> None:
    """This rank's share of the work on what another one writes."""
    deque(posteriors, maxlen=0)


def evaluate(
    model_directory: Path,
    data: str,
    *,
    data_root: Path | None = None,
    split: str | None = None,
    device: str = "cpu",
) -> dict[str, Any]:
    """Strict scores of a saved model on a split with gold labels, in all and by type, and of its rivals.

    :param split: by default ``test``, or the only one there is.
    :returns: ``{"split", "f1", "precision", "recall", "by_type": {type: {...}}, "majority_vote": {...},
        "best_consensus": {...}}``, in percent.
    :raises PyroCHMMError: for a model or data that cannot be used.
    """
    model = SparseCHMM.load(model_directory, device=checked_device(device))
    splits = load_dataset(data, data_root=data_root, lfs="all")
    split = splits.chosen(split)
    corpus = model.matching(splits[split])
    if corpus.gold is None:
        raise DataError(f"{splits.name}, split {split}, has no gold labels to compare with; label it with predict.")
    ids = model.predict_ids(corpus)
    by_type = score_by_type(corpus.label_set, corpus.gold, ids, corpus.offsets)
    return {
        "split": split,
        **score_record(score(corpus.label_set, corpus.gold, ids, corpus.offsets)),
        "by_type": {name: score_record(value) for name, value in by_type.items()},
        "majority_vote": score_record(MajorityVote().fit(corpus).score(corpus)),
        "best_consensus": score_record(best_consensus(corpus)),
    }


def checked_device(device: str) -> str:
    """``device``, if it can be computed on here.

    :raises ConfigError: where it is neither ``cpu`` nor a GPU that PyTorch can use.
    """
    try:
        found = torch.device(device)
    except RuntimeError:
        raise ConfigError(f"The device is {device!r}; expected cpu or cuda.") from None
    if found.type not in ("cpu", "cuda"):
        raise ConfigError(f"The device is {device!r}; expected cpu or cuda.")
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"The device is {device!r}, but PyTorch {torch.__version__} finds {torch.cuda.device_count()} GPUs here: "
            "use --device cpu, or a PyTorch built for CUDA on a machine with a GPU."
        )
    return device


def score_record(result: Score) -> dict[str, float]:
    """A score as ``metrics.json`` holds it, in percent."""
    return {"f1": result.f1, "precision": result.precision, "recall": result.recall}


def stage_scores(model: SparseCHMM, splits: CorpusSplits) -> dict[str, dict[str, dict[str, float] | None]]:
    """Strict scores after each stage; the model ends at its best stage."""
    found = {
        name: {} if corpus is None or corpus.gold is None else model.stage_scores(corpus)
        for name, corpus in ((name, splits.get(name)) for name in SCORED_SPLITS)
    }
    return {
        str(stage): {name: score_record(scores[stage]) if scores else None for name, scores in found.items()}
        for stage in model.stages_
    }


def _scores(splits: CorpusSplits, scored: Any) -> dict[str, dict[str, float] | None]:
    """``scored(corpus)`` for validation and test; None where the split is missing or has no gold labels."""
    corpora = {name: splits.get(name) for name in SCORED_SPLITS}
    return {
        name: None if corpus is None or corpus.gold is None else score_record(scored(corpus)) for name, corpus in corpora.items()
    }


def _write_predictions(
    model: SparseCHMM, splits: CorpusSplits, directory: Path | None
) -> dict[str, dict[str, float] | None]:
    """``{train,valid,test}.jsonl`` of every split there is; returns the scores of validation and test.

    :param directory: None on ranks that do not write.
    """
    if directory is not None:
        directory.mkdir()
    scores: dict[str, dict[str, float] | None] = dict.fromkeys(SCORED_SPLITS)
    for name, corpus in splits.splits.items():
        ids, posteriors = model.label(corpus)
        if directory is None:
            _worked_off(posteriors)
        else:
            write_predictions(directory / f"{name}.jsonl", corpus, ids, posteriors)
        if name in scores and corpus.gold is not None:
            scores[name] = score_record(score(corpus.label_set, corpus.gold, ids, corpus.offsets))
    return scores


def _options(settings: RunSettings) -> dict[str, Any]:
    return {
        "data": settings.data,
        "data_root": None if settings.data_root is None else str(settings.data_root),
        "lfs": settings.lfs,
        "train_split": settings.train_split,
        "preset": settings.preset,
        "device": settings.device,
        "hyperparameters": dict(settings.hyperparameters),
    }


def _from_anywhere(options: dict[str, Any]) -> dict[str, Any]:
    """Options whose paths do not depend on the working directory."""
    paths = {"data": is_path(options["data"]), "preset": options["preset"].endswith(".toml")}
    paths["data_root"] = options["data_root"] is not None
    return {**options, **{name: str(Path(options[name]).resolve()) for name, given in paths.items() if given}}
