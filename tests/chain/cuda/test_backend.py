"""What of the CUDA backend needs no GPU: its errors where something is missing, the cache, and launching."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pyro_chmm.chain import cuda, kernel_cache
from pyro_chmm.errors import ChainError
from tests.chain.cuda.cases import random_case
from tests.chain.cuda.requirements import needs_nvrtc

pytestmark = needs_nvrtc

PROGRAM = cuda.chain_program("viterbi", 3, torch.float32)


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch as it looks where there is one."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))


@pytest.mark.usefixtures("a_gpu")
class TestAvailability:
    def test_all_there(self) -> None:
        cuda.check_available()

    def test_extra_not_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "cuda.core", None)
        with pytest.raises(ChainError, match=r'pip install "pyro-chmm\[cuda\]"'):
            cuda.check_available()

    def test_nvrtc_not_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def version() -> None:
            raise RuntimeError("libnvrtc.so.13 was not found")

        monkeypatch.setattr("cuda.bindings.nvrtc.nvrtcVersion", version)
        with pytest.raises(ChainError, match=r"libnvrtc.*pip install"):
            cuda.check_available()

    def test_torch_without_cuda(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.version, "cuda", None)
        with pytest.raises(ChainError, match="built for CUDA"):
            cuda.check_available()

    def test_no_device(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        with pytest.raises(ChainError, match="no CUDA device"):
            cuda.check_available()


class TestCache:
    @pytest.fixture(autouse=True)
    def compilations(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """An empty cache, and the architectures that were compiled for since."""
        found: list[str] = []

        def compile_source(source: str, macros: kernel_cache.Macros, architecture: str) -> bytes:
            found.append(architecture)
            return f"{source} for {architecture}".encode()

        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setattr(kernel_cache, "compile_source", compile_source)
        return found

    @staticmethod
    def load(architecture: str = "sm_90") -> bytes:
        return kernel_cache.load(PROGRAM.source, PROGRAM.macros, architecture)

    @staticmethod
    def only_file() -> Path:
        (path,) = kernel_cache.directory().iterdir()
        return path

    def test_compiles_once(self, compilations: list[str]) -> None:
        assert self.load() == self.load() == b"viterbi for sm_90"
        assert compilations == ["sm_90"]
        assert self.only_file().suffix == ".cubin"

    def test_architectures_and_macros_are_kept_apart(self, compilations: list[str]) -> None:
        assert self.load("sm_80") != self.load("sm_90")
        kernel_cache.load(PROGRAM.source, (), "sm_90")
        assert compilations == ["sm_80", "sm_90", "sm_90"]

    def test_a_changed_source_is_compiled(
        self, compilations: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.load()
        (tmp_path / "layout.cu").write_text("// changed")
        monkeypatch.setattr(kernel_cache, "SOURCES", tmp_path)
        self.load()
        assert len(compilations) == 2

    @pytest.mark.parametrize("damage", [lambda old: b"", lambda old: old[:-1], lambda old: old[:-1] + b"!"])
    def test_a_damaged_file_is_compiled_anew(
        self, compilations: list[str], damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
    ) -> None:
        self.load()
        sound = self.only_file().read_bytes()
        self.only_file().write_bytes(damage(sound))
        assert self.load() == b"viterbi for sm_90"
        assert "damaged" in caplog.text
        assert self.only_file().read_bytes() == sound
        assert len(compilations) == 2

    def test_without_a_place_to_write(
        self, compilations: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "pyro-chmm").write_text("a file where the directory should be")
        assert self.load() == self.load() == b"viterbi for sm_90"
        assert len(compilations) == 2
        assert "cannot keep the compiled kernel" in caplog.text


class TestLaunch:
    @pytest.fixture
    def launched(self, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        """What reached ``cuda.core.launch``."""
        calls: list[Any] = []
        monkeypatch.setattr("cuda.core.launch", lambda *call: calls.append(call))
        monkeypatch.setattr("cuda.core.Device", lambda index: SimpleNamespace(set_current=lambda: None))
        monkeypatch.setattr(torch.cuda, "device", nullcontext)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=77))
        monkeypatch.setattr(cuda, "_kernel", lambda name, program, device: name)
        return calls

    def test_arguments_have_the_types_of_the_kernel(self, launched: list[Any]) -> None:
        case = random_case(9, [2, 1])
        found = cuda.forward_backward(*case, logits=True, gradients=True, transitions=False)
        ((stream, config, kernel, *arguments),) = launched
        assert kernel == "forward_backward"
        assert stream.__cuda_stream__() == (0, 77)
        assert (config.grid[0], config.block[0]) == (2, 32)
        outputs = [found.log_evidence, found.initial, None, found.log_emission]
        expected = [*case, np.int32(1), *outputs]
        assert arguments == [part.data_ptr() if torch.is_tensor(part) else part or 0 for part in expected]
        assert type(arguments[4]) is np.int32

    def test_nothing_is_launched_for_no_documents(self, launched: list[Any]) -> None:
        cuda.viterbi(*random_case(3, []), logits=True)
        assert launched == []

    @pytest.mark.parametrize(("labels", "threads"), [(1, 32), (16, 32), (17, 128), (33, 256), (128, 512)])
    def test_threads(self, launched: list[Any], labels: int, threads: int) -> None:
        cuda.viterbi(*random_case(labels, [1]), logits=True)
        assert launched[0][1].block[0] == threads


@pytest.mark.usefixtures("a_gpu")
def test_a_driver_that_cannot_load_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def from_cubin(cubin: bytes, *, name: str) -> None:
        raise RuntimeError(f"no binary for {cubin!r}")

    monkeypatch.setattr("cuda.core.ObjectCode", SimpleNamespace(from_cubin=from_cubin))
    monkeypatch.setattr(kernel_cache, "load", lambda source, macros, architecture: architecture.encode())
    cuda._kernel.cache_clear()
    with pytest.raises(ChainError, match=r"'viterbi' .*sm_90.*install the nvidia-cuda-nvrtc"):
        cuda._kernel("viterbi", PROGRAM, 0)


def test_importing_the_chain_imports_no_cuda() -> None:
    # torch may import cuda.bindings
    code = "import sys, pyro_chmm.chain.cuda; sys.exit('cuda.core' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
