"""``pyro-chmm fit --prior`` and ``--prior-file``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import SHORT, invoke, succeeded


def test_priors_of_a_run(own_data: Path, tmp_path: Path) -> None:
    priors = tmp_path / "priors.toml"
    priors.write_text('transition = "sticky:5"\n[emission]\nname = "accuracies"\n[emission.accuracies.a]\nprecision = 0.9\n')
    out = tmp_path / "run"
    options = ["--prior-file", priors, "--prior", "reliability=beta:20", "--prior", "transition=bio"]
    succeeded("fit", "--data", own_data, "--out", out, *options, *SHORT)
    found = json.loads((out / "config.json").read_text())["model"]["hyperparameters"]
    accuracies = {"a": {"precision": 0.9}}
    assert found["emission_prior"] == {"name": "accuracies", "accuracies": accuracies, "strength": 50.0}
    assert found["transition_prior"] == "bio"
    assert found["reliability_prior"] == {"name": "beta", "strength": 20.0, "mean": 0.8}
    succeeded("evaluate", "--model", out, "--data", own_data)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prior", "diagonal:50"], "expected emission=, transition= or reliability="),
        (["--prior", "emission=diagonal:-5"], "the strength of diagonal is -5.0; expected a positive number"),
        (["--prior-file", "nowhere.toml"], "nowhere.toml cannot be read"),
        (["--transition-prior", "diagonal:5"], "transition_prior is 'diagonal:5'; expected one of symmetric, sticky"),
    ],
)
def test_bad_input(options: list[str], message: str, own_data: Path, tmp_path: Path) -> None:
    result = invoke("fit", "--data", own_data, "--out", tmp_path / "run", *options, *SHORT)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
