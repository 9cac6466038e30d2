"""Whether corpora fit each other, and a corpus brought into the order of a model's LFs and labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.labels import ABSTAIN, Ids, LabelSet
from pyro_chmm.errors import DataError


def check_training_data(train: Corpus, valid: Corpus | None) -> None:
    """:raises DataError: where the training corpus has no token or LF, or the validation corpus does not fit it."""
    if train.num_tokens == 0 or train.num_lfs == 0:
        raise DataError(
            f"The training corpus has {train.num_tokens} tokens and {train.num_lfs} labeling functions; training needs at "
            "least one of each."
        )
    if valid is not None and (valid.lf_names != train.lf_names or valid.label_set != train.label_set):
        raise DataError("The training and validation corpora differ in labeling functions or entity types.")


def matching(corpus: Corpus, lf_names: tuple[str, ...], label_set: LabelSet) -> Corpus:
    """The corpus with a model's LFs and labels, in their order; it may lack some of the entity types.

    :raises DataError: where an LF is missing or an entity type is new to the model.
    """
    missing = [name for name in lf_names if name not in corpus.lf_names]
    if missing:
        raise DataError(f"The corpus lacks the LF {missing[0]!r}; the model was fitted with {', '.join(lf_names)}.")
    new = [name for name in corpus.label_set.entity_types if name not in label_set.entity_types]
    if new:
        raise DataError(
            f"The data has the entity type {new[0]!r}; the model was fitted with {', '.join(label_set.entity_types)}."
        )
    return (corpus if corpus.lf_names == lf_names else corpus.select_lfs(lf_names)).relabeled(label_set)


def aligned(corpus: Corpus, lf_names: tuple[str, ...], label_set: LabelSet) -> Corpus:
    """The corpus with a model's LFs; its label ids must be the model's, since the result is read by them.

    :raises DataError: where an LF is missing or the entity types are others.
    """
    if corpus.label_set != label_set:
        raise DataError(
            f"The corpus has the entity types {', '.join(corpus.label_set.entity_types)}, the model was fitted with "
            f"{', '.join(label_set.entity_types)}; model.matching(corpus) brings them into the model's order."
        )
    return matching(corpus, lf_names, label_set)


def with_lf(corpus: Corpus, name: str, labels: Ids) -> Corpus:
    """The corpus with one more LF, the last: its name and what it says, ``(N,)`` label ids."""
    weak_labels = np.column_stack([corpus.weak_labels, labels]).astype(np.int16)
    coarse = corpus.coarse_labels
    coarse = None if coarse is None else np.column_stack([coarse, np.full(corpus.num_tokens, ABSTAIN, np.int16)])
    return replace(corpus, lf_names=(*corpus.lf_names, name), weak_labels=weak_labels, coarse_labels=coarse)
