"""Where a training stands: one file, replaced in one step, from which it goes on to the same weights as without a break."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from pyro_chmm import ranks
from pyro_chmm.atomic import replacing
from pyro_chmm.errors import ModelFileError

FORMAT = 2


@dataclass
class Checkpoints:
    """When and where checkpoints are written, and whether training goes on from the one there is.

    :param path: of the file.
    :param about: kept in the file, for whoever goes on: JSON's types.
    :param every: seconds from one to the next; 0: after every epoch.
    :param resume: go on from the file.
    """

    path: Path
    about: Mapping[str, Any] = field(default_factory=dict)
    every: float = 10.0
    resume: bool = False
    _written: float = field(default=-math.inf, repr=False)  # the first one is due at once

    def due(self) -> bool:
        """Whether it is time to write one."""
        return time.monotonic() - self._written >= self.every

    def write(self, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Write a checkpoint; whatever happens meanwhile, the file is the old one or the new one, and whole.

        :raises ModelFileError: where it cannot be written, as on a full disk; the old one stays.
        """
        text = json.dumps({"format": FORMAT, "state": state, "about": self.about})
        content = safetensors.torch.save({n: t.detach().cpu().clone() for n, t in tensors.items()}, {"checkpoint": text})
        try:
            with replacing(self.path) as temporary, temporary.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise ModelFileError(f"The checkpoint {self.path} cannot be written ({error.strerror}); the last is kept.") from None
        self._written = time.monotonic()


@dataclass(frozen=True)
class Checkpoint:
    """What :func:`read_checkpoint` found."""

    state: dict[str, Any]
    about: dict[str, Any]
    tensors: dict[str, Tensor]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors under a prefix, without it."""
        return {name.removeprefix(prefix): value for name, value in self.tensors.items() if name.startswith(prefix)}


def read_checkpoint(path: Path) -> Checkpoint:
    """:raises ModelFileError: for a file that is missing, truncated, foreign, or of another version."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            content = json.loads((file.metadata() or {}).get("checkpoint", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no mapping)
    except FileNotFoundError:
        raise ModelFileError(f"There is no checkpoint {path}: the run is complete, or ended before the first one.") from None
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(f"The checkpoint {path} cannot be read ({error}); train again with --overwrite.") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT or not isinstance(content.get("state"), dict):
        raise ModelFileError(f"{path} is no checkpoint of this version; train again with --overwrite.")
    return Checkpoint(content["state"], content.get("about") or {}, tensors)


def random_states(generator: torch.Generator) -> dict[str, Tensor]:
    """The states of all random numbers that training draws; a row for each rank, but for the shuffling, which they share."""
    states = {"rng/torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["rng/cuda"] = torch.cuda.get_rng_state()
    return {name: ranks.stacked(state) for name, state in states.items()} | {"rng/shuffle": generator.get_state()}


def set_random_states(tensors: Mapping[str, Tensor], generator: torch.Generator) -> None:
    """Go on with this rank's random numbers of :func:`random_states`."""
    torch.set_rng_state(tensors["rng/torch"][ranks.rank()].clone())
    generator.set_state(tensors["rng/shuffle"])
    if "rng/cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["rng/cuda"][ranks.rank()].clone())
