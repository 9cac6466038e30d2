"""What label models with learned tensors share: checks of what they are fitted on, alignment with it, and files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.labels import LabelSet
from pyro_chmm.errors import ConfigError
from pyro_chmm.label_models import model_files
from pyro_chmm.label_models.base import LabelModel
from pyro_chmm.label_models.fitting_data import aligned, check_training_data, matching


class FittedModel(LabelModel):
    """A label model that knows the labels and LFs it was fitted with."""

    label_set: LabelSet | None = None
    lf_names: tuple[str, ...] = ()

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The constructor's arguments, as JSON types."""

    @abstractmethod
    def weights(self) -> dict[str, Tensor]:
        """All that :meth:`fit` learned."""

    @abstractmethod
    def restore(self, weights: Mapping[str, Tensor]) -> None:
        """Put the tensors of :meth:`weights` in place; ``label_set`` and ``lf_names`` are there already."""

    def begin_fit(self, train: Corpus, valid: Corpus | None) -> None:
        """Remember labels and LFs.

        :raises DataError: where the training corpus has no token or LF, or the validation corpus does not fit it.
        """
        check_training_data(train, valid)
        self.label_set, self.lf_names = train.label_set, train.lf_names

    def labels(self) -> LabelSet:
        """The labels it was fitted with; :class:`ConfigError` before that."""
        if self.label_set is None:
            name = type(self).__name__
            raise ConfigError(f"This {name} has not been fitted; call fit(train) or {name}.load(directory) first.")
        return self.label_set

    def aligned(self, corpus: Corpus) -> Corpus:
        """The corpus with the LFs it was fitted with, in their order.

        :raises DataError: where one is missing, or the entity types are others.
        """
        return aligned(corpus, self.lf_names, self.labels())

    def matching(self, corpus: Corpus) -> Corpus:
        """The corpus with the LFs and labels it was fitted with, in their order; it may lack some of the entity types.

        :raises DataError: where an LF is missing or an entity type is new to the model.
        """
        return matching(corpus, self.lf_names, self.labels())

    def save(self, directory: str | Path) -> None:
        """Write ``config.json`` and ``model.safetensors``, each atomically; nothing is pickled.

        :raises ConfigError: before :meth:`fit`.
        """
        description = {
            "class": type(self).__name__,
            "settings": self.settings(),
            "entity_types": list(self.labels().entity_types),
            "lf_names": list(self.lf_names),
        }
        model_files.write_model(Path(directory), description, self.weights())

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """Read what :meth:`save` wrote.

        :raises ModelFileError: where the folder is missing, truncated, foreign, or of an unknown format.
        """
        description, weights = model_files.read_model(Path(directory), cls.__name__)
        with model_files.well_formed(directory):
            model = cls(**description["settings"])
            model.label_set = LabelSet(tuple(description["entity_types"]))
            model.lf_names = tuple(description["lf_names"])
            model.restore(weights)
        return model
