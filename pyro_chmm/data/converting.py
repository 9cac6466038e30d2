"""From one format to another."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Sequence
from pathlib import Path

from pyro_chmm.data.corpus import Corpus, CorpusSplits
from pyro_chmm.data.datasets import load_dataset, load_path, reader_of
from pyro_chmm.data.formats import conll, write_lines
from pyro_chmm.data.formats.registry import Format, find_format, format_to_write
from pyro_chmm.errors import DataError


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    read_as: str | None = None,
    write_as: str | None = None,
    columns: Sequence[str] | None = None,
    data_root: str | os.PathLike[str] | None = None,
) -> tuple[CorpusSplits, Format]:
    """Read data in one format and write it in another, with all LFs.

    Data of one split becomes the file ``target``; data of several, a folder with a file for each, and ``meta.json``.

    :param source: a path, or a data set's name.
    :param read_as: the format of ``source``; None: it is asked which it is in.
    :param write_as: the format to write; None: that of ``target``'s suffix.
    :param columns: names of the columns of a CoNLL file, see :func:`pyro_chmm.data.formats.conll.read`.
    :returns: what was read, and the format that was written.
    :raises DataError: for whatever cannot be read, or not be said in the other format.
    """
    path, out = Path(source), Path(target)
    if columns is not None and read_as not in (None, "conll"):
        raise DataError(f"Columns are named for conll, and the format to read is {read_as}.")
    if read_as is None and columns is None:
        splits = load_dataset(source, data_root=data_root, lfs="all")
    else:
        if not path.exists():
            raise DataError(f"{path} cannot be read: No such file or directory.")
        reader = reader_of(read_as) if columns is None and read_as else functools.partial(conll.read, columns=columns)
        splits = load_path(path, str(source), "all", reader)
    if len(splits.splits) == 1 and out.suffix:
        form = format_to_write(out, write_as)
        form.write(out, next(iter(splits.splits.values())), None)
        return splits, form
    if len(splits.splits) == 1 and write_as is not None and find_format(write_as).suffix == "":
        form = find_format(write_as)
        form.write(out, next(iter(splits.splits.values())), None)
        return splits, form
    if write_as is None:
        raise DataError(f"{splits.name} has the splits {', '.join(splits.splits)}: name a format for the folder {out} with --to.")
    form = find_format(write_as)
    _write_folder(out, splits, form)
    return splits, form


def _write_folder(out: Path, splits: CorpusSplits, form: Format) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out} exists already; choose another folder.")
    for name, corpus in splits.splits.items():
        form.write(out / f"{name}{form.suffix}", corpus, None)
    write_lines(out / "meta.json", [json.dumps(_meta(next(iter(splits.splits.values()))), ensure_ascii=False, indent=2)])


def _meta(corpus: Corpus) -> dict[str, Sequence[str]]:
    names: dict[str, Sequence[str]] = {"entity_types": corpus.label_set.entity_types, "lf": corpus.lf_names}
    return names | ({"coarse_types": corpus.coarse_types} if corpus.coarse_types else {})
