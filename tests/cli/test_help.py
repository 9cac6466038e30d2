"""Help answers at once, and says everything."""

from __future__ import annotations

import resource
import subprocess
import sys
from dataclasses import fields

import pytest
from click.testing import CliRunner
from pyro_chmm.cli.main import main

import pyro_chmm
from pyro_chmm.model.config import SparseCHMMConfig

HEAVY = ("torch", "pyro", "numpy", "numba", "transformers", "rich", "httpx")
COMMANDS = (
    *("fit", "predict", "evaluate", "explain", "report", "sample", "lfs", "data", "convert", "export", "verify", "tune"),
    *("benchmark", "simulate"),
)


@pytest.mark.parametrize("arguments", [["--help"], ["fit", "--help"], ["--version"], ["data", "get", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from pyro_chmm.cli.main import main\n"
        f"main({arguments!r}, standalone_mode=False)\n"
        f"print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("HEAVY []\n")
    assert done.stderr == ""


@pytest.mark.parametrize("arguments", [["--help"], ["fit", "--help"]])
def test_help_takes_less_than_half_a_second(arguments: list[str]) -> None:
    """Processor time, which other work on the machine does not lengthen as it does wall time."""
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "pyro_chmm.cli.main", *arguments], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.5


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    assert f"  {command} " in CliRunner().invoke(main, ["--help"]).output
    result = CliRunner().invoke(main, [command, "-h"])
    assert result.exit_code == 0
    assert "Options:" in result.output


def test_every_hyperparameter_is_an_option_with_its_default() -> None:
    text = " ".join(CliRunner().invoke(main, ["fit", "--help"]).output.split())
    docs = SparseCHMMConfig.describe()
    for item in fields(SparseCHMMConfig):
        assert f"--{item.name.replace('_', '-')} " in text
        assert docs[item.name].replace(" ", "") in text.replace(" ", "")  # a line may end at a hyphen
    assert "[cls|mean]" in text
    assert "--verify / --no-verify" in text
    assert "[2.0]" in text
    assert "[on]" in text


def test_the_package_loads_its_names_on_first_use() -> None:
    program = (
        "import sys, pyro_chmm\n"
        "assert 'torch' not in sys.modules\n"
        "assert issubclass(pyro_chmm.SparseCHMM, object) and 'torch' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert pyro_chmm.__version__
    assert {name for name in pyro_chmm.__all__ if getattr(pyro_chmm, name) is None} == set()
    assert set(pyro_chmm.__all__) <= set(dir(pyro_chmm))
    assert issubclass(pyro_chmm.errors.DataError, Exception)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        pyro_chmm.nothing  # noqa: B018
