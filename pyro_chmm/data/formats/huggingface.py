"""A Hugging Face ``datasets`` data set in a folder (``Dataset.save_to_disk``).

Columns: ``tokens``, optionally ``id``, ``ner_tags`` (gold, or the labels found) and ``lf:NAME`` for each LF, lists of a
``ClassLabel`` whose names are BIO labels; -1 is an abstention. With posteriors, ``posterior`` holds a list of probabilities for
each token, in the order of the names of ``ner_tags``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.formats import Documents, replacing_folder
from pyro_chmm.data.labels import LabelSet
from pyro_chmm.errors import DataError

_LF = "lf:"
_COARSE = "pyro-chmm coarse labels: "


def read(path: Path) -> Documents:
    """Read a folder; :class:`DataError` for one that is none, or where ``datasets`` is not installed."""
    datasets = _datasets()
    try:
        data = datasets.load_from_disk(str(path))
    except Exception as error:  # Arrow and the metadata's parser raise what they please on damaged files
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise DataError(f"{path} is not a data set that datasets can read ({reason}).") from None
    if not isinstance(data, datasets.Dataset):
        raise DataError(f"{path} holds the splits {', '.join(map(str, data))}; give the folder of one of them.")
    if "tokens" not in data.column_names:
        raise DataError(f"{path} has the columns {', '.join(data.column_names)}, and no 'tokens'.")
    lfs = [name for name in data.column_names if name.startswith(_LF)]
    labels = {name: _labels(datasets, path, data, name) for name in (*lfs, "ner_tags") if name in data.column_names}
    columns = {name: data[name][:] for name in (*labels, *(name for name in ("tokens", "id") if name in data.column_names))}
    named = {name: [_names(column, labels[name], path, name) for column in columns[name]] for name in labels}
    coarse = _coarse_types(data.info.description)
    types = (name[2:] for name in next((labels[name] for name in ("ner_tags", *lfs) if name in labels), []) if name[:2] == "B-")
    return Documents(
        path,
        [str(name) for name in columns.get("id", range(len(data)))],
        list(columns["tokens"]),
        [[named[lf][number] for lf in lfs] for number in range(len(data))],
        named.get("ner_tags"),
        tuple(name.removeprefix(_LF) for name in lfs),
        tuple(name for name in types if name not in coarse),
        coarse,
    )


def _datasets() -> Any:
    try:
        import datasets
    except ImportError:
        raise DataError('Hugging Face data sets need datasets, which is not installed: pip install "pyro-chmm[hf]".') from None
    return datasets


def _labels(datasets: Any, path: Path, data: Any, name: str) -> list[str]:
    feature = getattr(data.features[name], "feature", None)
    if not isinstance(feature, datasets.ClassLabel):
        raise DataError(f"{path}: the column {name!r} is of {data.features[name]}; expected lists of a ClassLabel.")
    return [str(label) for label in feature.names]


def _names(ids: Any, names: list[str], path: Path, who: str) -> list[str | None]:
    if not isinstance(ids, list) or any(type(id) is not int or not -1 <= id < len(names) for id in ids):
        raise DataError(f"{path}: the column {who!r} holds {str(ids)[:80]}; expected a list of label numbers, -1 for none.")
    return [None if id == -1 else names[id] for id in ids]


def _coarse_types(description: str) -> tuple[str, ...]:
    if not isinstance(description, str) or not description.startswith(_COARSE):
        return ()
    try:
        names = json.loads(description.removeprefix(_COARSE))
    except ValueError:
        return ()
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def write(path: Path, corpus: Corpus, posteriors: Sequence[NDArray[np.floating]] | None = None) -> None:
    """Write a corpus as a folder, in one step; :class:`DataError` where the folder exists, or text has no UTF-8."""
    datasets = _datasets()
    observed = datasets.List(datasets.ClassLabel(names=list(corpus.observed_set.names)))
    slices = [corpus.document_slice(number) for number in range(corpus.num_documents)]
    features = {"id": datasets.Value("string"), "tokens": datasets.List(datasets.Value("string"))}
    columns: dict[str, list[Any]] = {"id": list(corpus.document_ids), "tokens": [list(document) for document in corpus.tokens]}
    for place, lf in enumerate(corpus.lf_names):
        features[_LF + lf] = observed
        columns[_LF + lf] = [corpus.observed_labels[span, place].tolist() for span in slices]
    if corpus.gold is not None:
        features["ner_tags"] = datasets.List(datasets.ClassLabel(names=list(corpus.label_set.names)))
        columns["ner_tags"] = [corpus.gold[span].tolist() for span in slices]
    if posteriors is not None:
        features["posterior"] = datasets.List(datasets.List(datasets.Value("float32")))
        columns["posterior"] = [np.asarray(part, np.float32).tolist() for part in posteriors]
    save(path, columns, features, _COARSE + json.dumps(corpus.coarse_types) if corpus.coarse_types else "")


def save(path: Path, columns: dict[str, list[Any]], features: dict[str, Any], description: str = "") -> None:
    """Write columns as a folder, in one step."""
    datasets = _datasets()
    if not columns["id"]:
        raise DataError(f"{path}: there is no document, and datasets cannot read an empty data set again.")
    info = datasets.DatasetInfo(description=description, features=datasets.Features(features))
    try:
        data = datasets.Dataset.from_dict(columns, features=info.features, info=info)
    except UnicodeEncodeError as error:
        raise DataError(f"{path}: {error.object[error.start]!r} in a token has no UTF-8; write JSON lines.") from None
    with replacing_folder(path) as temporary, _quiet(datasets):
        data.save_to_disk(str(temporary))


def save_tagged(path: Path, columns: dict[str, list[Any]], label_set: LabelSet) -> None:
    """Write what a token classifier is trained on: ``ner_tags`` may be -100 (a ClassLabel may not), so they are plain numbers.

    The names of the labels, in the order of their numbers, are in the data set's description, as JSON.
    """
    datasets = _datasets()
    features = {
        "id": datasets.Value("string"),
        "tokens": datasets.List(datasets.Value("string")),
        "ner_tags": datasets.List(datasets.Value("int64")),
        "soft_labels": datasets.List(datasets.List(datasets.Value("float32"))),
    }
    save(path, columns, {name: features[name] for name in columns}, json.dumps({"labels": label_set.names}))


@contextmanager
def _quiet(datasets: Any) -> Iterator[None]:
    """The library's own bars stay off: progress is this package's to show."""
    enabled = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if enabled:
            datasets.enable_progress_bars()
