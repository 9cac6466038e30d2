"""Data sets by name or path: where their files are looked for, and how they become corpora."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyro_chmm.data.corpus import Corpus, CorpusSplits
from pyro_chmm.data.fetching import PUBLISHED, SOURCE, fetch_files
from pyro_chmm.data.formats import Documents, expect_list, expect_mapping, naming, parse_json, read_text
from pyro_chmm.data.formats.registry import SPLIT_SUFFIXES, detect, find_format, has_content
from pyro_chmm.data.labels import LabelSet
from pyro_chmm.errors import DataError

_log = logging.getLogger(__name__)

SPLITS = ("train", "valid", "test")
_SPLIT_FOLDERS = {"train": ("train",), "valid": ("valid", "validation"), "test": ("test",)}
_DEMO = Path(__file__).parent / "demo"
_META = "meta.json"
_KNOWN = ("demo", *PUBLISHED)


@dataclass(frozen=True)
class DatasetPlace:
    """A known data set and where it was found."""

    name: str
    path: Path | None
    """The folder, or None if it would have to be fetched."""
    splits: tuple[str, ...]
    """The splits in that folder."""


def load_dataset(
    name_or_path: str | os.PathLike[str],
    *,
    data_root: str | os.PathLike[str] | None = None,
    lfs: str | Sequence[str] | None = None,
    download: bool = True,
) -> CorpusSplits:
    """Load the splits of a data set.

    :param name_or_path: ``demo``, ``wrench/laptop`` or another name of :func:`list_datasets`; a folder with
        ``train``, ``valid`` or ``test`` in any format (see :mod:`pyro_chmm.data.formats`) and, if you like, a ``meta.json``; or
        one such file, which is a single split named after the file (``train`` unless the file is called ``valid`` or ``test``).
    :param data_root: a folder in which names are looked for before ``$PYRO_CHMM_DATA`` and the user's cache.
    :param lfs: names of the LFs to keep; "all"; or None for those that ``meta.json`` recommends, or all if
        it does not.
    :param download: fetch a data set that is not found, from its public source.
    :raises DataError: for an unknown name, an unreadable or malformed file, an unknown LF, a failed download.
    """
    name = os.fspath(name_or_path)
    if name in _KNOWN:
        path = find_dataset(name, data_root)
        if path is None:
            if not download:
                raise DataError(f"{name} is not on this machine; fetch it with: pyro-chmm data get {name}")
            path = fetch_dataset(name)
        return load_path(path, name, lfs)
    path = Path(name)
    if not _exists(path):
        raise DataError(
            f"{name!r} is neither a file or folder nor a known data set; those are {', '.join(_KNOWN)}."
        )
    return load_path(path, name, lfs)


def is_path(name_or_path: str) -> bool:
    """Whether :func:`load_dataset` takes this for a path, not for the name of a data set."""
    return name_or_path not in _KNOWN


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name too long for the file system, for one
        return False


def load_path(
    path: Path,
    name: str,
    lfs: str | Sequence[str] | None = None,
    reader: Callable[[Path], Documents] | None = None,
) -> CorpusSplits:
    """The splits in a folder or a single file. See :func:`load_dataset`.

    :param name: for messages.
    :param reader: of a format, where the files are not to be asked which they are in.
    """
    single = not path.is_dir() or has_content(path)
    folder = path.parent if single else path
    files = {path.stem if path.stem in SPLITS else "train": path} if single else _split_files(path)
    if not files or (path / "dataset_dict.json").is_file():
        files = _split_folders(path)
    if not files:
        raise DataError(f"{path} holds no split; expected {', '.join(SPLITS)} as one of {', '.join(SPLIT_SUFFIXES)}.")
    with _no_garbage_collection():
        return CorpusSplits(name, _read_splits(path, folder, files, lfs, reader))


def reader_of(format_name: str) -> Callable[[Path], Documents]:
    """The reader of a format; :class:`DataError` for an unknown one."""
    return find_format(format_name).read


def _read_splits(
    path: Path,
    folder: Path,
    files: Mapping[str, Path],
    lfs: str | Sequence[str] | None,
    reader: Callable[[Path], Documents] | None,
) -> dict[str, Corpus]:
    documents = {split: (reader or detect(file).read)(file) for split, file in files.items()}
    meta = _read_meta(folder / _META)
    declared = (name for read in documents.values() for name in read.coarse_types)
    coarse_types = tuple(dict.fromkeys((*(meta.coarse_types or ()), *declared)))
    with naming(path):
        label_set = LabelSet(meta.entity_types or _declared_or_observed_types(documents, path, coarse_types))
    lf_names = meta.lf_names if meta.lf_names is not None else _observed_lfs(documents)
    corpora = {}
    for split, read in documents.items():
        corpus = _choose_lfs(_with_names(read, label_set, lf_names, coarse_types), lfs, meta.recommended)
        corpus.report.log(str(read.source))
        corpora[split] = corpus
    return corpora


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Without it, half the time of reading goes into looking for garbage among millions of fresh lists."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _split_files(folder: Path) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for split in SPLITS:
        there = [folder / (split + suffix) for suffix in SPLIT_SUFFIXES if (folder / (split + suffix)).is_file()]
        if len(there) > 1:
            raise DataError(f"{folder} holds {there[0].name} and {there[1].name}; keep one of them.")
        if there:
            files[split] = there[0]
    return files


def _split_folders(folder: Path) -> dict[str, Path]:
    """Splits that are folders themselves, as those of a Hugging Face DatasetDict."""
    places = {split: [folder / name for name in names] for split, names in _SPLIT_FOLDERS.items()}
    there = {split: next((place for place in paths if has_content(place)), None) for split, paths in places.items()}
    return {split: path for split, path in there.items() if path is not None}


@dataclass(frozen=True)
class _Meta:
    lf_names: tuple[str, ...] | None = None
    recommended: tuple[str, ...] | None = None
    entity_types: tuple[str, ...] | None = None
    coarse_types: tuple[str, ...] | None = None


def _read_meta(file: Path) -> _Meta:
    """Names of LFs and types; every other key is ignored, as sizes and counts are not always true."""
    if not file.is_file():
        return _Meta()
    content = expect_mapping(parse_json(read_text(file), file), str(file))
    lists: list[tuple[str, ...] | None] = []
    for key in ("lf", "lf_rec", "entity_types", "coarse_types"):
        if key not in content:
            lists.append(None)
            continue
        names = expect_list(content[key], f"{file}, {key!r}")
        for name in names:
            if not isinstance(name, str) or not name:
                raise DataError(f"{file}, {key!r}: {name!r} is not a name.")
            if names.count(name) > 1:
                raise DataError(f"{file}, {key!r}: {name!r} is listed twice; each may occur once.")
        lists.append(tuple(names))
    meta = _Meta(*lists)
    for name in meta.recommended or ():
        if meta.lf_names is not None and name not in meta.lf_names:
            raise DataError(f"{file}: the LF {name!r} of 'lf_rec' is not in 'lf'.")
    return meta


def _declared_or_observed_types(
    documents: Mapping[str, Documents], path: Path, coarse_types: tuple[str, ...]
) -> tuple[str, ...]:
    declared = tuple(dict.fromkeys(name for read in documents.values() for name in read.declared_types))
    if declared:
        return declared
    types = tuple(sorted(set().union(*(read.entity_types() for read in documents.values())) - {*coarse_types}))
    if not types:
        for read in documents.values():
            read.corpus(LabelSet(("?",)), read.lf_names or tuple(f"LF{number}" for number in range(read.num_lfs)), coarse_types)
        if not any(read.names for read in documents.values()):
            raise DataError(f"{path}: there is no document in it.")
        raise DataError(
            f"{path}: no label names an entity type; list them in a {_META} as 'entity_types', or name the right format."
        )
    _log.info("%s: no list of entity types; those that occur are %s", path, ", ".join(types))
    return types


def _observed_lfs(documents: Mapping[str, Documents]) -> tuple[str, ...]:
    """The LFs' names of the first file that has some, else LF0, LF1, ..."""
    for read in documents.values():
        if read.lf_names:
            return read.lf_names
    return tuple(f"LF{number}" for number in range(max(read.num_lfs for read in documents.values())))


def _with_names(
    read: Documents, label_set: LabelSet, lf_names: tuple[str, ...], coarse_types: tuple[str, ...]
) -> Corpus:
    """The corpus of a file, its LFs in the data set's order if the file names them."""
    if read.lf_names is None:
        if read.weak and read.num_lfs != len(lf_names):
            raise DataError(
                f"{read.source}: document {read.names[0]!r} has weak labels of {read.num_lfs} LFs, "
                f"but the data set has {len(lf_names)}: {', '.join(lf_names)}."
            )
        return read.corpus(label_set, lf_names, coarse_types)
    if not read.lf_names:  # predictions: labels without weak labels
        return read.corpus(label_set, (), coarse_types)
    if set(read.lf_names) != set(lf_names):
        raise DataError(
            f"{read.source}: its LFs are {', '.join(read.lf_names)}, "
            f"but the data set's are {', '.join(lf_names)}."
        )
    return read.corpus(label_set, read.lf_names, coarse_types).select_lfs(lf_names)


def _choose_lfs(
    corpus: Corpus, lfs: str | Sequence[str] | None, recommended: tuple[str, ...] | None
) -> Corpus:
    if isinstance(lfs, str) and lfs != "all":
        raise DataError(f'lfs is {lfs!r}; give "all", or a list of LF names.')
    if lfs == "all" or (lfs is None and (recommended is None or not corpus.lf_names)):
        return corpus
    return corpus.select_lfs(recommended or () if lfs is None else lfs)


def find_dataset(name: str, data_root: str | os.PathLike[str] | None = None) -> Path | None:
    """The first folder that holds a known data set: in ``data_root``, ``$PYRO_CHMM_DATA``, then the user's
    cache; or None.

    :raises DataError: for an unknown name, or a ``data_root`` that is no folder.
    """
    _check_name(name)
    if name == "demo":
        return _DEMO
    if data_root is not None and not Path(data_root).is_dir():
        raise DataError(f"The data root {os.fspath(data_root)!r} is not a folder.")
    roots = [Path(root) for root in (data_root, os.environ.get("PYRO_CHMM_DATA")) if root]
    for folder in (root / name for root in roots):
        if (folder / _META).is_file() and _split_files(folder):
            return folder
    cached = _cache() / name
    # cached means that every file is there: a download may have been cut short between two
    return cached if all((cached / file).is_file() for file in PUBLISHED[name].hashes) else None


def dataset_path(name: str, data_root: str | os.PathLike[str] | None = None) -> Path:
    """The folder of a known data set; :class:`DataError` if it is unknown, or not on this machine."""
    path = find_dataset(name, data_root)
    if path is None:
        raise DataError(f"{name} is not on this machine; fetch it with: pyro-chmm data get {name}")
    return path


def fetch_dataset(name: str, base_url: str = SOURCE) -> Path:
    """Fetch a published data set into the user's cache, and return its folder; files that are right stay.

    :raises DataError: for an unknown name, an unreachable source, or a file with another hash than expected.
    """
    _check_name(name)
    if name == "demo":
        return _DEMO
    folder = _cache() / name
    fetch_files(name, folder, base_url)
    return folder


def list_datasets(data_root: str | os.PathLike[str] | None = None) -> list[DatasetPlace]:
    """Every known data set, and where it is."""
    places = []
    for name in _KNOWN:
        path = find_dataset(name, data_root)
        places.append(DatasetPlace(name, path, tuple(_split_files(path)) if path else ()))
    return places


def _check_name(name: str) -> None:
    if name not in _KNOWN:
        raise DataError(f"There is no data set {name!r}; the known ones are {', '.join(_KNOWN)}.")


def _cache() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("pyro-chmm") / "data"
