"""A saved model and the split of a data set that it is to be looked at on."""

from __future__ import annotations

from pathlib import Path

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.datasets import load_dataset
from pyro_chmm.label_models.runs import checked_device
from pyro_chmm.label_models.sparse_chmm import SparseCHMM


def open_model(
    directory: Path, data: str, *, split: str | None = None, data_root: Path | None = None, device: str = "cpu"
) -> tuple[SparseCHMM, str, Corpus]:
    """The model, the name of the split, and the split with the model's LFs and labels in their order.

    :param split: by default ``test``, or the only one there is.
    :raises PyroCHMMError: for a model or data that cannot be used.
    """
    model = SparseCHMM.load(directory, device=checked_device(device))
    splits = load_dataset(data, data_root=data_root, lfs="all")
    split = splits.chosen(split)
    return model, split, model.matching(splits[split])
