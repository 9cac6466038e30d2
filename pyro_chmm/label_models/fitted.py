"""What label models with learned tensors share: checks of what they are fitted on, alignment with it, and files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.labels import LabelSet
from pyro_chmm.errors import ConfigError, DataError
from pyro_chmm.label_models import model_files
from pyro_chmm.label_models.base import LabelModel


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
        if train.num_tokens == 0 or train.num_lfs == 0:
            raise DataError(
                f"The training corpus has {train.num_tokens} tokens and {train.num_lfs} labeling functions; training needs at "
                "least one of each."
            )
        if valid is not None and (valid.lf_names != train.lf_names or valid.label_set != train.label_set):
            raise DataError("The training and validation corpora differ in labeling functions or entity types.")
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
        labels = self.labels()
        if corpus.label_set != labels:
            raise DataError(
                f"The corpus has the entity types {', '.join(corpus.label_set.entity_types)}, the model was fitted with "
                f"{', '.join(labels.entity_types)}."
            )
        missing = [name for name in self.lf_names if name not in corpus.lf_names]
        if missing:
            raise DataError(f"The corpus lacks the LF {missing[0]!r}; the model was fitted with {', '.join(self.lf_names)}.")
        return corpus if corpus.lf_names == self.lf_names else corpus.select_lfs(self.lf_names)

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
