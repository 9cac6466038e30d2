"""Presets: hyper-parameters as TOML, over the defaults of :class:`SparseCHMMConfig`."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

from pyro_chmm.errors import ConfigError


def preset_names() -> list[str]:
    """Names of all presets: ``default`` first, then the paper's."""
    files = resources.files(__package__).iterdir()
    names = [file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")]
    return sorted(names, key=lambda name: (name != "default", name))


def load_preset(name: str) -> dict[str, Any]:
    """The hyper-parameters a preset sets.

    :raises ConfigError: on an unknown name; the known ones are listed.
    """
    if name not in preset_names():
        raise ConfigError(f"Unknown preset {name!r}; known ones are {', '.join(preset_names())}.")
    return tomllib.loads(resources.files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))
