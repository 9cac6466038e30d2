"""ThreadSanitizer over the CUDA sources, and the proof that it would notice a missing synchronisation."""

import os
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
import torch

from pyro_chmm.chain import kernel_cache
from tests.chain.cuda.emulation import HERE, compile_cpp, macros
from tests.chain.cuda.requirements import needs_compiler

pytestmark = needs_compiler

RACE = 66
SANITIZED = ("-O1", "-fsanitize=thread")


class Races:
    """The chain's kernels as programs under ThreadSanitizer, for a number of labels."""

    def __init__(self, folder: Path, sources: Path, shim: Path) -> None:
        self._folder = folder
        self._sources = sources
        self._shim = shim
        self._program = cache(self._compile)

    def run(self, labels: int, removed: int = -1) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"TSAN_OPTIONS": f"halt_on_error=1:exitcode={RACE}"}
        command = [str(self._program(labels)), str(removed)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def _compile(self, labels: int) -> Path:
        program = self._folder / f"races-{labels}"
        flags = (*SANITIZED, "-DRACES", "-I", self._sources)
        compile_cpp(program, *flags, *macros(labels, torch.float32), HERE / "kernels.cpp", self._shim)
        return program


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("races") / "shim.o"
    compile_cpp(output, *SANITIZED, "-c", HERE / "shim.cpp")
    return output


@pytest.mark.parametrize("labels", [3, 9, 17])
def test_no_races(tmp_path: Path, shim: Path, labels: int) -> None:
    result = Races(tmp_path, kernel_cache.SOURCES, shim).run(labels)
    assert result.returncode == 0, result.stderr
    evidence = [float(line.split()[0]) for line in result.stdout.splitlines()]
    assert evidence[1] == 0
    assert evidence[3] == -float("inf")
    assert evidence[4] < -90


def test_each_missing_sync_is_reported(tmp_path: Path, shim: Path) -> None:
    """Within a warp, or else between the warps of a block: so each is needed, and the test above can fail."""
    sources = tmp_path / "sources"
    sources.mkdir()
    syncs = 0
    for path in kernel_cache.SOURCES.glob("*.cu"):
        parts = re.split(r"\bsync\(\);", path.read_text())
        text = parts[0]
        for part in parts[1:]:
            text += f"if (removed_sync != {syncs}) sync();{part}"
            syncs += 1
        (sources / path.name).write_text(text)
    assert syncs >= 10
    races = Races(tmp_path, sources, shim)
    assert races.run(3).returncode == 0
    missed = [removed for removed in range(syncs) if races.run(3, removed).returncode != RACE]
    assert len(missed) <= 2
    assert [removed for removed in missed if races.run(17, removed).returncode != RACE] == []
