"""Draws as a tree that ArviZ reads, and as a netCDF file that xarray alone reads.

Groups: ``posterior`` (``emission``, ``reliability``, both means over documents, and ``label``), ``posterior_predictive`` and
``observed_data`` (``weak_label``), ``constant_data`` (each token's text, document and place in it, its label's probabilities, gold
labels if there are any). Labels are ids, -1 where an LF gave none; ``true_label`` lists their names in order. Draws from a prior
are in ``prior`` and ``prior_predictive``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pyro_chmm._version import __version__
from pyro_chmm.atomic import replacing
from pyro_chmm.errors import ConfigError
from pyro_chmm.label_models.posterior import CorpusDraws, type_reliabilities

if TYPE_CHECKING:
    from xarray import DataTree

    from pyro_chmm.data.corpus import Corpus

_DIMENSIONS = {
    "emission": ["lf", "true_label", "observed_label"],
    "reliability": ["lf", "entity_type"],
    "label": ["token"],
    "weak_label": ["token", "lf"],
    "text": ["token"],
    "token_document": ["token"],
    "token_place": ["token"],
    "gold_label": ["token"],
    "label_probability": ["token", "true_label"],
    "document_tokens": ["document"],
}


def to_inference_data(draws: CorpusDraws) -> DataTree:
    """All draws, with the coordinates ``chain`` (one), ``draw``, ``lf``, ``true_label``, ``observed_label``, ``entity_type``,
    ``document`` (ids) and ``token`` (0 to N - 1, through all documents).

    :raises ConfigError: where arviz-base is not installed.
    """
    try:
        from arviz_base import from_dict
    except ImportError:
        raise ConfigError(
            "Draws become a tree for ArviZ by arviz-base, which is not installed: pip install 'pyro-chmm[inspect]'."
        ) from None
    corpus = draws.corpus
    parameters, predictive = draws.groups
    kind = np.int8 if len(corpus.label_set) <= np.iinfo(np.int8).max else np.int16
    label = np.zeros((1, draws.draws, corpus.num_tokens), kind)
    weak_label = np.zeros((1, draws.draws, corpus.num_tokens, corpus.num_lfs), kind)
    probability = np.zeros((corpus.num_tokens, len(corpus.label_set)), np.float32)
    emission = np.zeros((draws.draws, corpus.num_lfs, *2 * (len(corpus.label_set),)))
    for document in draws:
        place = corpus.document_slice(document.document)
        label[0, :, place], weak_label[0, :, place] = document.labels, document.weak_labels
        probability[place] = document.marginals
        emission += document.emission / len(draws)
    groups: dict[str, dict[str, Any]] = {
        parameters: {"emission": emission[None], "reliability": type_reliabilities(emission)[None], "label": label},
        predictive: {"weak_label": weak_label},
        "observed_data": {"weak_label": corpus.weak_labels.astype(kind)},
        "constant_data": {**_constant_data(corpus), "label_probability": probability},
    }
    names = list(corpus.label_set.names)
    coordinates: dict[str, Any] = {
        "lf": list(corpus.lf_names),
        "true_label": names,
        "observed_label": names,
        "entity_type": ["O", *corpus.label_set.entity_types],
        "document": _texts(corpus.document_ids),
        "token": np.arange(corpus.num_tokens),
    }
    made = {"inference_library": "pyro-chmm", "inference_library_version": __version__, "seed": draws.seed}
    tree: DataTree = from_dict(groups, coords=coordinates, dims=_DIMENSIONS, attrs={"/": made})
    return tree


def write_inference_data(draws: CorpusDraws, out: Path) -> None:
    """Write the tree to a netCDF file in one step; an older file stays until the new one is complete.

    :raises ConfigError: where arviz-base or h5netcdf is not installed, or the file cannot be written.
    """
    if not out.parent.is_dir() or out.is_dir():
        raise ConfigError(f"{out} cannot be written: expected a file's name in a folder that exists.")
    tree = to_inference_data(draws)
    try:
        with replacing(out) as temporary:
            tree.to_netcdf(temporary, engine="h5netcdf", encoding=_compressed(tree))
    except OSError as error:
        raise ConfigError(f"{out} cannot be written ({error.strerror or error}).") from None


def _constant_data(corpus: Corpus) -> dict[str, Any]:
    numbers = corpus.document_index
    constant: dict[str, Any] = {
        "text": _texts([word for words in corpus.tokens for word in words]),
        "token_document": _texts(corpus.document_ids)[numbers],
        "token_place": np.arange(corpus.num_tokens) - corpus.offsets[numbers],
        "document_tokens": np.diff(corpus.offsets),
    }
    return constant if corpus.gold is None else {**constant, "gold_label": corpus.gold}


def _texts(texts: Any) -> NDArray[np.object_]:
    """Texts that HDF5 can hold: no NUL, no half of a surrogate pair."""
    clean = [text.encode("utf-8", "replace").decode().replace("\0", "\ufffd") for text in texts]
    return np.array(clean, dtype=object)


def _compressed(tree: DataTree) -> dict[str, dict[str, Any]]:
    packed = {"zlib": True, "complevel": 1}
    return {
        group.path: {str(name): packed for name, value in group.data_vars.items() if value.dtype != object}
        for group in tree.subtree
        if group.data_vars
    }
