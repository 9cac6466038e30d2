"""The systems of the benchmark, by name: how each is made, and what it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.scoring import Score
from pyro_chmm.errors import ConfigError
from pyro_chmm.label_models.base import LabelModel
from pyro_chmm.label_models.best_consensus import best_consensus
from pyro_chmm.label_models.chmm import CHMM, CHMMFixedEmission
from pyro_chmm.label_models.dawid_skene import DawidSkene
from pyro_chmm.label_models.fitted import FittedModel
from pyro_chmm.label_models.hmm import HMM
from pyro_chmm.label_models.majority_vote import MajorityVote
from pyro_chmm.label_models.snorkel import Snorkel
from pyro_chmm.label_models.sparse_chmm import SparseCHMM
from pyro_chmm.model.config import SparseCHMMConfig


@dataclass(frozen=True)
class Setup:
    """What a system is made from, beside its name."""

    seed: int
    encoder: str
    device: str = "cpu"


@dataclass(frozen=True)
class System:
    """One system.

    :param title: in tables.
    :param make: an unfitted model; None for an oracle, which ``oracle`` scores.
    :param seeded: whether results depend on the seed; if not, it runs once.
    :param encodes: whether it looks at vectors of tokens.
    :param needs_gold: splits whose gold labels it cannot do without, but to be scored.
    :param ablation: whether it belongs to Table 4 only.
    """

    title: str
    make: Callable[[Setup], LabelModel] | None = None
    oracle: Callable[[Corpus], Score] | None = None
    seeded: bool = False
    encodes: bool = False
    needs_gold: tuple[str, ...] = ()
    ablation: bool = False


def _sparse_chmm(title: str, **changes: Any) -> System:
    def make(setup: Setup) -> LabelModel:
        return SparseCHMM(encoder=setup.encoder, seed=setup.seed, device=setup.device, **changes)

    return System(title, make, seeded=True, encodes=True, ablation=bool(changes))


def _chmm(title: str, kind: type[CHMM], **needs: Any) -> System:
    def make(setup: Setup) -> LabelModel:
        return kind(encoder=setup.encoder, layers=SparseCHMMConfig().layers, seed=setup.seed, device=setup.device)

    return System(title, make, seeded=True, encodes=True, **needs)


SYSTEMS: dict[str, System] = {
    "best-consensus": System("best consensus (oracle)", oracle=best_consensus),
    "chmm-fe": _chmm("CHMM-FE (gold emissions)", CHMMFixedEmission, needs_gold=("train",)),
    "majority-vote": System("majority vote, IO", lambda setup: MajorityVote()),
    "majority-vote-bio": System(
        "majority vote, BIO, random ties", lambda setup: MajorityVote("bio", "random", setup.seed), seeded=True
    ),
    "dawid-skene": System("Dawid-Skene", lambda setup: DawidSkene()),
    "snorkel": System("Snorkel", lambda setup: Snorkel(seed=setup.seed), seeded=True),
    "hmm": System("HMM", lambda setup: HMM()),
    "chmm": _chmm("CHMM", CHMM),
    "sparse-chmm": _sparse_chmm("Sparse-CHMM"),
    "naive-emission": _sparse_chmm("naive emission", naive_emission=True),
    "no-scaling": _sparse_chmm("without h", scale_reliability=False),
    "no-softmax": _sparse_chmm("without SoftMax", softmax_reliability=False),
    "no-dirichlet": _sparse_chmm("without Dirichlet", sample_emission=False),
    "no-stage2": _sparse_chmm("without stage 2", stage2="none"),
    "merged-stages": _sparse_chmm("stages 2 and 3 merged", stage2="merged"),
}

#: Names for several systems at once.
GROUPS = {
    "all": tuple(SYSTEMS),
    "systems": tuple(name for name, system in SYSTEMS.items() if not system.ablation),
    "ablations": ("sparse-chmm", *(name for name, system in SYSTEMS.items() if system.ablation)),
}


def choose_systems(names: Iterable[str]) -> tuple[str, ...]:
    """The systems that some names of systems or groups stand for, each once, in the registry's order.

    :raises ConfigError: for an unknown name; the known ones are listed.
    """
    wanted: set[str] = set()
    for name in names:
        if name not in SYSTEMS and name not in GROUPS:
            raise ConfigError(f"There is no system {name!r}; known are {', '.join((*GROUPS, *SYSTEMS))}.")
        wanted.update(GROUPS.get(name, (name,)))
    return tuple(name for name in SYSTEMS if name in wanted)


def settings_of(model: LabelModel | None) -> dict[str, Any]:
    """All that a model's results depend on beside the data, as JSON types."""
    if isinstance(model, SparseCHMM):
        return model.config.to_dict()
    if isinstance(model, FittedModel):
        return model.settings()
    return {} if model is None else dict(vars(model))
