"""What a run says of where it was made."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from pyro_chmm._version import __version__

_PACKAGES = ("torch", "pyro-ppl", "numba", "numpy", "transformers", "safetensors")


def versions() -> dict[str, str | None]:
    """Versions of everything that shapes a result; None for what is not installed."""
    found: dict[str, str | None] = {"pyro_chmm": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found["pyro" if package == "pyro-ppl" else package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def peak_rss_mb() -> float | None:
    """The process's largest resident memory so far, in MB; None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
