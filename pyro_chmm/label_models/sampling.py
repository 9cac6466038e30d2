"""From a saved model to a file of draws."""

from __future__ import annotations

from pathlib import Path

from pyro_chmm.data.datasets import load_dataset
from pyro_chmm.label_models.inference_data import write_inference_data
from pyro_chmm.label_models.runs import checked_device
from pyro_chmm.label_models.sparse_chmm import SparseCHMM


def sample(
    model_directory: Path,
    data: str,
    out: Path,
    *,
    data_root: Path | None = None,
    split: str | None = None,
    draws: int = 200,
    seed: int = 0,
    device: str = "cpu",
) -> int:
    """Write draws of a saved model's posterior for a split to a netCDF file, in one step.

    :param split: by default ``test``, or the only one there is.
    :returns: the number of documents.
    :raises PyroCHMMError: for a model, data or file that cannot be used.
    """
    model = SparseCHMM.load(model_directory, device=checked_device(device))
    splits = load_dataset(data, data_root=data_root, lfs="all")
    corpus = model.matching(splits[splits.chosen(split)])
    write_inference_data(model.posterior(corpus, draws=draws, seed=seed), out)
    return corpus.num_documents
