"""A moving average of the networks' weights: steadier than the weights of the last step, which a few batches have moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from pyro_chmm.model.conditionals import Conditionals
from pyro_chmm.model.networks import Networks


class WeightAverage:
    """The average of some conditionals' networks, from their present weights on.

    :param conditionals: whose networks are averaged, and replaced for a while by :meth:`in_place`.
    :param decay: of the average, a step, once it has lengthened to that; 0: the average is the weights themselves.
    """

    def __init__(self, conditionals: Conditionals, decay: float) -> None:
        def mix(average: Tensor, weight: Tensor, steps: Tensor | int) -> Tensor:
            return average.lerp(weight, 1 - min(decay, (1 + int(steps)) / (10 + int(steps))))

        self.conditionals, self.decay = conditionals, decay
        self.model = AveragedModel(conditionals.networks, avg_fn=mix).eval()
        self.model.update_parameters(conditionals.networks)

    def update(self) -> None:
        """After a step."""
        if self.decay:
            self.model.update_parameters(self.conditionals.networks)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The averaged networks in the place of those that are trained."""
        trained = self.conditionals.networks
        if self.decay:
            self.conditionals.networks = cast(Networks, self.model.module)
        try:
            yield
        finally:
            self.conditionals.networks = trained

    def state(self) -> dict[str, Tensor]:
        """All that the averages to come depend on."""
        return dict(self.model.state_dict())

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a :meth:`state`."""
        cast(nn.Module, self.model).load_state_dict(state)
