"""What the tests of this folder need; without it they are skipped, with the reason, but never in CI."""

import importlib
import os
import shutil

import pytest

_IN_CI = os.environ.get("CI") == "true"


def _can_import(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None and not _IN_CI,
    reason="g++, to compile the CUDA sources as C++, is not installed",
)
needs_nvrtc = pytest.mark.skipif(
    not _can_import("cuda.core") and not _IN_CI,
    reason='cuda.core is not installed: pip install "pyro-chmm[cuda]"',
)
