"""Coarse labels: what an LF says when it knows less than a type.

``ENT`` is an entity of any type; ``NOT_X`` is anything but type X, O included. A corpus declares the ones that its LFs use. An
ordinary label says "I saw exactly this"; a coarse one says "I saw one of these", so the emission's probabilities of all that it
allows are summed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pyro_chmm.data.labels import LabelSet
from pyro_chmm.errors import DataError

ANY = "ENT"
"""An entity, of whatever type."""
NOT = "NOT_"
"""Prefix to a type: anything but an entity of that type."""


def coarse_allows(label_set: LabelSet, coarse_types: Sequence[str]) -> NDArray[np.bool_]:
    """(2 C, L) bool: the ordinary labels that ``B-`` (rows 0, 2, ...) and ``I-`` of each of the C coarse types allow.

    :raises DataError: for a name that is neither ``ENT`` nor ``NOT_`` and a type of the set, is a type itself, or occurs twice.
    """
    ids = np.arange(len(label_set))
    allows = np.zeros((2 * len(coarse_types), len(label_set)), bool)
    for place, name in enumerate(coarse_types):
        if name in label_set.types:
            raise DataError(f"{name!r} is declared both as an entity type and as a coarse label; rename one of them.")
        if list(coarse_types).count(name) > 1:
            raise DataError(f"The coarse label {name!r} is declared twice; each may occur once.")
        if name == ANY:
            allows[2 * place], allows[2 * place + 1] = ids % 2 == 1, (ids > 0) & (ids % 2 == 0)
        elif isinstance(name, str) and name.startswith(NOT) and name.removeprefix(NOT) in label_set.types:
            allows[2 * place : 2 * place + 2] = (ids + 1) // 2 != label_set.types[name.removeprefix(NOT)] + 1
        else:
            raise DataError(
                f"{name!r} is no coarse label; expected {ANY}, or {NOT} before one of {', '.join(label_set.entity_types)}."
            )
    return allows
