"""What is counted before training, with a vote in the place of the true labels."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class ObservedStatistics:
    """Psi* ``(L, L)`` and Phi* ``(K, L, L)`` of section 3.3.1, rows that sum to 1, and each label's share of tokens ``(L,)``."""

    transition: Tensor
    emission: Tensor
    share: Tensor
