"""The CUDA sources on the CPU: compiled as C++ with ``shim.h``, run where a kernel would be launched."""

import ctypes
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyro_chmm.chain import cuda, kernel_cache

HERE = Path(__file__).parent
_FLAGS = ("-std=c++20", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-tsan", "-pthread")


def compile_cpp(output: Path, *arguments: str | Path) -> None:
    """Call g++ with warnings as errors."""
    command = ["g++", *_FLAGS, *map(str, arguments), "-o", str(output)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def macros(labels: int, dtype: torch.dtype) -> list[str]:
    """What the backend has defined when it compiles a chain kernel."""
    return [f"-D{name}={value}" for name, value in cuda.chain_program("viterbi", labels, dtype).macros]


class Emulator:
    """Stands in for ``cuda._launch``: same arguments and marshalling, but the kernel runs on CPU threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shim = folder / "shim.o"
        self._library = cache(self._compile)
        compile_cpp(self._shim, "-O1", "-fPIC", "-c", HERE / "shim.cpp")

    def __call__(
        self, kernel: str, blocks: int, threads: int, program: cuda.Program, arguments: tuple[Any, ...]
    ) -> None:
        for part in arguments:
            assert not isinstance(part, Tensor) or part.is_contiguous()
        values = [self._c_value(cuda._argument(part)) for part in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        real = dict(program.macros)["CHAIN_REAL"]
        labels = int(dict(program.macros).get("CHAIN_LABELS", 5))
        run = self._library(labels, real).run
        assert run(kernel.encode(), ctypes.c_uint(blocks), ctypes.c_uint(threads), pointers) == 0

    @staticmethod
    def _c_value(value: Any) -> Any:
        return ctypes.c_int32(int(value)) if isinstance(value, np.int32) else ctypes.c_void_p(value)

    def _compile(self, labels: int, real: str) -> ctypes.CDLL:
        output = self._folder / f"kernels-{labels}-{real}.so"
        dtype = next(dtype for dtype, name in cuda._REAL.items() if name == real)
        # without unique symbols, or the `__shared__` arrays of one library would serve for all of them
        flags = ("-O1", "-fPIC", "-shared", "-fno-gnu-unique", "-I", kernel_cache.SOURCES)
        compile_cpp(output, *flags, *macros(labels, dtype), HERE / "kernels.cpp", self._shim)
        return ctypes.CDLL(str(output))
