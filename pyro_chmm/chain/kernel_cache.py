"""Compiled CUDA kernels, made by NVRTC and kept on disk.

A file holds a SHA-256 checksum and then the cubin; one that is damaged is compiled anew. Its name is a hash
over everything that the cubin depends on: the sources, the macros, the GPU's architecture, and the versions
of ``cuda.core`` and NVRTC.
"""

import hashlib
import logging
import os
import tempfile
from importlib.metadata import version
from pathlib import Path

import platformdirs

from pyro_chmm.errors import ChainError

logger = logging.getLogger(__name__)

SOURCES = Path(__file__).parent
_CHECKSUM_BYTES = 32

Macros = tuple[tuple[str, str], ...]


def directory() -> Path:
    """Where compiled kernels are kept; may be deleted at any time."""
    return Path(platformdirs.user_cache_dir("pyro-chmm")) / "kernels"


def load(source: str, macros: Macros, architecture: str) -> bytes:
    """The cubin of a ``.cu`` file, from the cache or compiled.

    :param source: name of the file beside this module, without its suffix.
    :param macros: names and values.
    :param architecture: such as ``sm_90``; a GPU of that architecture need not be present.

    Raises ChainError with the compiler's log if the source does not compile.
    """
    path = directory() / f"{_key(source, macros, architecture)}.cubin"
    cubin = _read(path)
    if cubin is None:
        cubin = compile_source(source, macros, architecture)
        logger.info("compiled %s.cu for %s with %s", source, architecture, dict(macros))
        _write(path, cubin)
    return cubin


def compile_source(source: str, macros: Macros, architecture: str) -> bytes:
    """The cubin of a ``.cu`` file; see :func:`load`."""
    from cuda.core import Program, ProgramOptions

    options = ProgramOptions(
        name=f"{source}.cu",
        arch=architecture,
        std="c++17",
        include_path=str(SOURCES),
        define_macro=list(macros),
    )
    try:
        cubin: bytes = Program(_text(source), "c++", options).compile("cubin").code
    except Exception as error:  # cuda.core has no public name for its errors
        raise ChainError(
            f"NVRTC cannot compile {source}.cu for {architecture} ({error}); the GPU may be newer than the "
            "installed NVRTC: upgrade nvidia-cuda-nvrtc, or use backend='cpu'"
        ) from error
    return cubin


def _text(source: str) -> str:
    return (SOURCES / f"{source}.cu").read_text(encoding="utf-8")


def _key(source: str, macros: Macros, architecture: str) -> str:
    from cuda.bindings import nvrtc

    texts = [path.read_bytes() for path in sorted(SOURCES.glob("*.cu"))]  # all, since one may include another
    facts = (source, macros, architecture, version("cuda-core"), nvrtc.nvrtcVersion())
    return hashlib.sha256(repr((facts, texts)).encode()).hexdigest()


def _read(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        logger.warning("cannot read the kernel cache (%s); compiling instead", error)
        return None
    checksum, cubin = content[:_CHECKSUM_BYTES], content[_CHECKSUM_BYTES:]
    if hashlib.sha256(cubin).digest() != checksum:
        logger.warning("the cached kernel %s is damaged; compiling it anew", path)
        return None
    return cubin


def _write(path: Path, cubin: bytes) -> None:
    """Under a name of its own first, so that another process never reads half a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            temporary = Path(folder) / path.name
            temporary.write_bytes(hashlib.sha256(cubin).digest() + cubin)
            os.replace(temporary, path)
    except OSError as error:
        logger.warning("cannot keep the compiled kernel (%s); it will be compiled again next time", error)
