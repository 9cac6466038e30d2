"""The search for hyper-parameters: it goes on where it was, writes a preset, and tells of failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyro_chmm import SparseCHMM, load_dataset
from pyro_chmm.errors import ConfigError, TrainingError
from pyro_chmm.label_models import tuning
from pyro_chmm.label_models.runs import RunSettings
from pyro_chmm.presets import load_preset

FEW: dict[str, Any] = {"encoder": "none", "epochs_stage1": 1, "epochs_stage2": 0, "epochs_stage3": 0, "verify": False}


def settings(out: Path, **more: Any) -> RunSettings:
    return RunSettings(data="demo", out=out, hyperparameters={**FEW, **more})


def test_a_search_goes_on_and_its_best_can_be_fitted_again(tmp_path: Path) -> None:
    first = tuning.tune(settings(tmp_path / "one", dropout=0.25), trials=2)
    second = tuning.tune(settings(tmp_path / "one", dropout=0.25), trials=3)
    assert (first.trials, second.trials, second.failed) == (2, 3, 0)
    assert second.value >= first.value
    assert tuning.tune(settings(tmp_path / "one", dropout=0.25), trials=3) == second
    values = load_preset(str(second.preset))
    assert values == second.hyperparameters
    assert values["dropout"] == 0.25  # given, not searched
    assert set(values) == {*FEW, *tuning.RANGES, "o_weight_contested", "o_weight_beside", "o_weight_prediction"}
    data = load_dataset("demo")
    model = SparseCHMM(preset=str(second.preset)).fit(data.train, data.valid)
    expected = SparseCHMM(**{**second.hyperparameters}).fit(data.train, data.valid)
    assert model.selection_ == expected.selection_


def test_by_evidence_what_is_observed_stays(tmp_path: Path) -> None:
    found = tuning.tune(settings(tmp_path, select="evidence"), trials=1)
    assert found.value < 0  # nats a token
    assert not {"o_weight_contested", "o_weight_beside"} & set(found.hyperparameters)
    assert found.hyperparameters["o_weight_prediction"] == 0.5


def test_some_trials_may_fail_but_not_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = SparseCHMM.fit, [0]

    def fails_first(self: SparseCHMM, *arguments: Any, **more: Any) -> SparseCHMM:
        calls[0] += 1
        if calls[0] == 1:
            raise TrainingError("The first one broke.")
        return real(self, *arguments, **more)

    monkeypatch.setattr(SparseCHMM, "fit", fails_first)
    with pytest.raises(ConfigError, match=r"Every trial of the search failed; the first: The first one broke\."):
        tuning.tune(settings(tmp_path), trials=1)
    found = tuning.tune(settings(tmp_path), trials=2)
    assert (found.trials, found.failed) == (2, 1)


def test_a_folder_of_another_search(tmp_path: Path) -> None:
    tuning.tune(settings(tmp_path), trials=1)
    with pytest.raises(ConfigError, match="has a search with data 'demo', not 'other'"):
        tuning._study(tuning._optuna(), RunSettings(data="other", out=tmp_path, hyperparameters=FEW))
    with pytest.raises(ConfigError, match="has a search with hyperparameters"):
        tuning.tune(settings(tmp_path, dropout=0.3), trials=2)


def test_validation_data_without_gold_are_refused_before_any_trial() -> None:
    data = load_dataset("demo")
    with pytest.raises(ConfigError, match="--select evidence"):
        SparseCHMM(**FEW).check_input(data.train, data.valid.without_gold())
