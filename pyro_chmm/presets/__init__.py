"""Presets: hyper-parameters as TOML, over the defaults of :class:`SparseCHMMConfig`."""

from __future__ import annotations

import json
import os
import tempfile
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from pyro_chmm.errors import ConfigError


def preset_names() -> list[str]:
    """Names of all presets: ``default`` first, then the paper's."""
    files = resources.files(__package__).iterdir()
    names = [file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")]
    return sorted(names, key=lambda name: (name != "default", name))


def load_preset(name: str) -> dict[str, Any]:
    """The hyper-parameters a preset sets.

    :param name: of a preset, or a path to a file of one, which ends in ``.toml``.
    :raises ConfigError: on an unknown name (the known ones are listed), or a file that is missing or no TOML.
    """
    if name.endswith(".toml"):
        try:
            return tomllib.loads(Path(name).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"The preset file {name} cannot be read: {error.strerror}.") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"The preset file {name} is no TOML: {error}.") from None
    if name not in preset_names():
        raise ConfigError(
            f"Unknown preset {name!r}; known ones are {', '.join(preset_names())}, or give the path of a file that ends in .toml."
        )
    return tomllib.loads(resources.files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def write_preset(path: Path, base: str, values: Mapping[str, Any]) -> None:
    """Write a preset file, in one step: those of another preset, and ``values`` over them.

    :param values: texts, numbers, truth values and lists of these; JSON's notation of them is TOML's too.
    """
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in {**load_preset(base), **values}.items()]
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.writelines(lines)
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)
