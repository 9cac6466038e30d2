"""Snorkel's LabelModel, by the package of that name (extra ``snorkel``)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyro_chmm.data.labels import Ids
from pyro_chmm.errors import ConfigError, DataError, MissingPackageError
from pyro_chmm.label_models.dawid_skene import expect, one_hot
from pyro_chmm.label_models.token_wise import TokenWiseModel

#: Snorkel's method of moments needs so many LFs.
_LEAST_LFS = 3


class Snorkel(TokenWiseModel):
    """Data programming (Ratner et al., 2017; 2019) on every token by itself, in the IO space, as the benchmark has it.

    The O of an LF where another fires is an abstention (see :mod:`~pyro_chmm.label_models.io_space`). The class balance is that
    of the votes: the package's own default, all classes alike, would have half of the silent tokens be entities.

    :param epochs: of the package's training.
    :param seed: of the package's training; the random states of the process stay as they are.
    :raises ConfigError: for a value that makes no sense.

    After :meth:`fit`: ``conditionals_`` (K, E + 1, E + 1) p(vote | class) (vote, class), and ``balance_`` (E + 1,), the package's
    ``mu`` and ``p``. A saved model needs no package.
    """

    def __init__(self, epochs: int = 500, seed: int = 0) -> None:
        if epochs < 1:
            raise ConfigError(f"epochs is {epochs!r}; it must be 1 or more.")
        self.epochs, self.seed = epochs, seed
        self.conditionals_: NDArray[np.float64] = np.zeros((0, 0, 0))
        self.balance_: NDArray[np.float64] = np.zeros(0)

    def fit_votes(self, votes: Ids, classes: int) -> None:
        """Train the package's model.

        :raises MissingPackageError: without the package.
        :raises DataError: with fewer than 3 LFs, which the package cannot work with.
        """
        if votes.shape[1] < _LEAST_LFS:
            raise DataError(f"Snorkel needs at least {_LEAST_LFS} labeling functions; the corpus has {votes.shape[1]}.")
        model = _label_model(classes)
        counts = np.array([(votes == c).sum() for c in range(classes)], float) + 1
        with _random_states_kept():
            model.fit(
                votes.astype(np.int64),
                class_balance=(counts / counts.sum()).tolist(),
                n_epochs=self.epochs,
                seed=self.seed,
                progress_bar=False,
            )
        self.conditionals_ = model.mu.detach().numpy().astype(np.float64).reshape(-1, classes, classes)
        self.balance_ = np.asarray(model.p, np.float64)

    def class_posterior(self, votes: Ids) -> NDArray[np.float64]:
        """(M, E + 1) as the package's ``predict_proba``: by Bayes' rule, LFs that abstained left out."""
        said = one_hot(votes, len(self.balance_))[..., :-1]
        return expect(said, self.balance_, self.conditionals_.transpose(0, 2, 1))[0]

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"epochs": self.epochs, "seed": self.seed}

    def weights(self) -> dict[str, Tensor]:
        """``conditionals`` and ``balance``, in double precision."""
        return {"conditionals": torch.from_numpy(self.conditionals_), "balance": torch.from_numpy(self.balance_)}

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        """From :meth:`weights`."""
        classes, lfs = len(self.labels().entity_types) + 1, len(self.lf_names)
        self.conditionals_ = weights["conditionals"].reshape(lfs, classes, classes).numpy()
        self.balance_ = weights["balance"].reshape(classes).numpy()


def _label_model(classes: int) -> Any:
    try:
        from snorkel.labeling.model import LabelModel
    except ImportError:
        raise MissingPackageError(
            "Snorkel's label model needs the package snorkel: pip install 'pyro-chmm[snorkel]'."
        ) from None
    return LabelModel(cardinality=classes, verbose=False)


@contextmanager
def _random_states_kept() -> Iterator[None]:
    """The package seeds the generators of the whole process."""
    states = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
