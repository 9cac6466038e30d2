"""What a run writes of itself: its epochs, its data, and where it was made."""

from __future__ import annotations

import csv
import hashlib
import json
import platform
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pyro_chmm._version import __version__
from pyro_chmm.data.corpus import Corpus, CorpusSplits

_PACKAGES = ("torch", "pyro-ppl", "numba", "numpy", "transformers", "safetensors")
HISTORY_COLUMNS = (
    "stage",
    "epoch",
    "loss",
    "elbo",
    "evidence",
    "kl",
    "valid_f1",
    "valid_precision",
    "valid_recall",
    "seconds",
)


def versions() -> dict[str, str | None]:
    """Versions of everything that shapes a result; None for what is not installed."""
    found: dict[str, str | None] = {"pyro_chmm": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found["pyro" if package == "pyro-ppl" else package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def peak_rss_mb() -> float | None:
    """The process's largest resident memory so far, in MB; None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def write_history(records: Iterable[Any], path: Path) -> None:
    """``history.csv``: one row an epoch, an empty field where there is no value."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HISTORY_COLUMNS)
        for record in records:
            values = [getattr(record, column) for column in HISTORY_COLUMNS]
            writer.writerow(["" if value is None else value for value in values])


def corpus_hash(corpus: Corpus) -> str:
    """sha256 of all that a model sees of a corpus: its tokens, LFs, weak labels and gold labels."""
    digest = hashlib.sha256(corpus.fingerprint().encode())
    digest.update(json.dumps([corpus.label_set.entity_types, corpus.lf_names]).encode())
    for ids in (corpus.weak_labels, corpus.gold):
        digest.update(b"-" if ids is None else ids.astype("<i2").tobytes())
    return digest.hexdigest()


def add_run(path: Path, options: Mapping[str, Any], splits: CorpusSplits, record: Mapping[str, Any]) -> None:
    """Add to the model's ``config.json`` how it came about, under the key ``run``."""
    config = json.loads(path.read_text(encoding="utf-8"))
    first = next(iter(splits.splits.values()))
    config["run"] = {
        "options": dict(options),
        "data": {
            "name": splits.name,
            "entity_types": first.label_set.entity_types,
            "lf_names": first.lf_names,
            "splits": {
                name: {
                    "documents": corpus.num_documents,
                    "tokens": corpus.num_tokens,
                    "sha256": corpus_hash(corpus),
                }
                for name, corpus in splits.splits.items()
            },
        },
        "versions": versions(),
        "platform": platform.platform(),
        **record,
    }
    write_json(path, config)


def write_json(path: Path, value: Any) -> None:
    """``value`` as JSON for people."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
