"""A search for hyper-parameters: Optuna draws them from ranges, a fit scores them, the best become a preset file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyro_chmm import progress
from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.datasets import load_dataset
from pyro_chmm.errors import ConfigError, PyroCHMMError
from pyro_chmm.label_models.runs import RunSettings, checked_device, train_corpus
from pyro_chmm.label_models.sparse_chmm import SparseCHMM
from pyro_chmm.presets import write_preset

if TYPE_CHECKING:
    import optuna

log = logging.getLogger(__name__)

STUDY = "study.journal"
BEST = "best.toml"

#: What is searched, by hyper-parameter: how a value is drawn.
RANGES: dict[str, Callable[[optuna.Trial, str], Any]] = {
    "learning_rate_stage1": lambda trial, name: trial.suggest_float(name, 5e-4, 1e-2, log=True),
    "transition_hidden": lambda trial, name: trial.suggest_categorical(name, [0, 32, 64, 128]),
    "dropout": lambda trial, name: trial.suggest_float(name, 0.2, 0.7),
    "weight_penalty": lambda trial, name: trial.suggest_float(name, 1e-3, 1.0, log=True),
    "concentration_range": lambda trial, name: trial.suggest_float(name, 100.0, 3000.0, log=True),
    "reliability_level": lambda trial, name: trial.suggest_categorical(name, ["label", "entity"]),
}
#: Searched by F1 only: they change what is observed, and so the evidence itself.
_OF_OBSERVATIONS: dict[str, Callable[[optuna.Trial, str], Any]] = {
    "o_weight_contested": lambda trial, name: trial.suggest_float(name, 0.0, 0.5),
    "o_weight_beside": lambda trial, name: trial.suggest_float(name, 1.0, 5.0),
}


@dataclass(frozen=True)
class Search:
    """A finished search.

    :ivar preset: the file with the best hyper-parameters; ``fit --preset FILE`` takes it.
    :ivar value: their score: F1 in percent, or evidence in nats a token.
    :ivar hyperparameters: those that were searched or given.
    :ivar trials: number of trials, those of earlier calls too.
    :ivar failed: how many of these failed.
    """

    preset: Path
    value: float
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    trials: int = 0
    failed: int = 0


def tune(settings: RunSettings, trials: int) -> Search:
    """Search until there are so many trials in all; a search that was stopped goes on where it was.

    A hyper-parameter that ``settings`` gives is not searched. The search is by validation F1, or by evidence with
    ``select="evidence"``.

    :param settings: ``out`` is the search's folder.
    :raises ConfigError: where Optuna is missing, the folder holds a search of something else, or every trial failed (with
        the first failure's message).
    """
    package = _optuna()
    splits = load_dataset(settings.data, data_root=settings.data_root, lfs=settings.lfs)
    train, valid = train_corpus(splits, settings.train_split), splits.get("valid")
    given = dict(settings.hyperparameters)
    scored = SparseCHMM(preset=settings.preset, device=checked_device(settings.device), **given)
    scored.check_input(train, valid)  # what no trial can mend is said at once
    study = _study(package, settings)
    ranges = {name: draw for name, draw in _ranges(scored).items() if name not in given}
    left = max(trials - len(_ended(study)), 0)
    with progress.task("search", total=trials, unit="trials") as advance:
        advance(trials - left)
        for _ in range(left):
            _one(study, settings, ranges, train, valid)
            advance(1, note=_best_note(study))
    return _result(study, settings)


def _optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError:
        raise ConfigError("The search needs Optuna, which is not installed: pip install 'pyro-chmm[tune]'.") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _study(package: Any, settings: RunSettings) -> optuna.Study:
    """The search in the folder, or a new one there.

    :raises ConfigError: where the folder has one of other data or other settings.
    """
    settings.directory.mkdir(parents=True, exist_ok=True)
    backend = package.storages.journal.JournalFileBackend(str(settings.directory / STUDY))
    study: optuna.Study = package.create_study(
        storage=package.storages.JournalStorage(backend),
        sampler=package.samplers.TPESampler(seed=SparseCHMM(**settings.hyperparameters).config.seed),
        study_name="pyro-chmm",
        direction="maximize",
        load_if_exists=True,
    )
    about = {
        "data": settings.data,
        "train_split": settings.train_split,
        "preset": settings.preset,
        "lfs": None if settings.lfs is None else list(settings.lfs),
        "hyperparameters": {name: list(v) if isinstance(v, tuple) else v for name, v in settings.hyperparameters.items()},
    }
    found = study.user_attrs.get("about", about)
    other = [name for name in about if found.get(name) != about[name]]
    if other:
        raise ConfigError(
            f"{settings.directory} has a search with {other[0]} {found.get(other[0])!r}, not {about[other[0]]!r}: go on with that "
            "one, or choose another --out."
        )
    study.set_user_attr("about", about)
    return study


def _ranges(model: SparseCHMM) -> Mapping[str, Callable[[optuna.Trial, str], Any]]:
    return RANGES if model.config.select == "evidence" else RANGES | _OF_OBSERVATIONS


def _one(
    study: optuna.Study,
    settings: RunSettings,
    ranges: Mapping[str, Callable[[optuna.Trial, str], Any]],
    train: Corpus,
    valid: Corpus | None,
) -> None:
    """One trial; one that fails is told so to the study, with its message."""
    import optuna

    trial = study.ask()
    drawn = {name: draw(trial, name) for name, draw in ranges.items()}
    try:
        model = SparseCHMM(preset=settings.preset, device=settings.device, **{**settings.hyperparameters, **drawn})
        model.fit(train, valid)
    except PyroCHMMError as error:
        trial.set_user_attr("failure", str(error))
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        log.info("Trial %d failed: %s", trial.number, error)
        return
    trial.set_user_attr("o_weight_prediction", model.config.o_weight_prediction)
    study.tell(trial, model.selection_)
    shown = (f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in drawn.items())
    log.info("Trial %d: %.3f with %s", trial.number, model.selection_, ", ".join(shown))


def _ended(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """Trials with a result or a failure; not those that were under way when a search was stopped."""
    return [trial for trial in study.trials if trial.state.is_finished()]


def _best_note(study: optuna.Study) -> str:
    values = [trial.value for trial in _ended(study) if trial.value is not None]
    return f"best {max(values):.3f}" if values else ""


def _result(study: optuna.Study, settings: RunSettings) -> Search:
    failures = [trial.user_attrs["failure"] for trial in study.trials if "failure" in trial.user_attrs]
    ended = _ended(study)
    if all(trial.value is None for trial in ended):
        raise ConfigError(f"Every trial of the search failed; the first: {failures[0] if failures else 'there was none'}")
    best = study.best_trial
    found = {**settings.hyperparameters, **best.params, "o_weight_prediction": best.user_attrs["o_weight_prediction"]}
    path = settings.directory / BEST
    write_preset(path, settings.preset, found)
    return Search(path, float(study.best_value), found, len(ended), len(failures))
