"""Saved models: a directory with ``config.json`` and ``model.safetensors``. No pickle anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from pyro_chmm._version import __version__
from pyro_chmm.atomic import replacing
from pyro_chmm.errors import ConfigError, DataError, ModelFileError

#: Version of the layout; a higher one than this is refused.
FORMAT = 1
_CONFIG, _WEIGHTS = "config.json", "model.safetensors"


def write_model(directory: Path, description: dict[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Write both files, each to a temporary name first; weights before the description that names them."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    _replace(directory / _WEIGHTS, safetensors.torch.save(tensors))
    content = {"format": FORMAT, "version": __version__, "model": description}
    _replace(directory / _CONFIG, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def read_model(directory: Path, expected: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The description and the weights.

    :param expected: the class that the description must name.
    :raises ModelFileError: where a file is missing, truncated, foreign, or of a later format.
    """
    config = directory / _CONFIG
    try:
        content = json.loads(config.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelFileError(
            f"{directory} holds no saved model ({_CONFIG} is missing); give a folder that `pyro-chmm fit --out` or save() wrote."
        ) from None
    except (OSError, ValueError) as error:
        raise ModelFileError(
            f"{config} cannot be read as JSON ({error}); the saved model is damaged."
        ) from None
    description = content.get("model") if isinstance(content, dict) else None
    if not isinstance(description, dict) or description.get("class") != expected:
        raise ModelFileError(f"{config} does not describe a {expected} model.")
    if content.get("format") != FORMAT:
        raise ModelFileError(
            f"{config} has format {content.get('format')!r}, this version ({__version__}) reads format {FORMAT}; update pyro-chmm."
        )
    try:
        return description, safetensors.torch.load_file(directory / _WEIGHTS)
    except FileNotFoundError:
        raise ModelFileError(f"{directory / _WEIGHTS} is missing; the saved model is incomplete.") from None
    except (safetensors.SafetensorError, OSError) as error:
        raise ModelFileError(
            f"{directory / _WEIGHTS} cannot be read ({error}); the saved model is damaged."
        ) from None


@contextmanager
def well_formed(directory: str | Path) -> Iterator[None]:
    """Turn what a description or weights of the wrong shape raise into a ModelFileError."""
    try:
        yield
    except (KeyError, TypeError, ValueError, RuntimeError, ConfigError, DataError) as error:
        detail = " ".join(str(error).split())
        raise ModelFileError(
            f"The saved model in {directory} is damaged or of another version: {detail}"
        ) from None


def _replace(path: Path, content: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(content)
