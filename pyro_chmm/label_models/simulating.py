"""A simulated data set in a folder, with the truth beside it and the F1 that knowing it is worth."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyro_chmm import progress
from pyro_chmm.data.formats import json_text, replacing_folder, write_lines
from pyro_chmm.data.formats.jsonl import document_lines
from pyro_chmm.data.scoring import score
from pyro_chmm.errors import ConfigError
from pyro_chmm.label_models.majority_vote import MajorityVote
from pyro_chmm.model.simulation import Size, Truth, draw_corpus, most_probable, readable

TRUTH = "truth.json"
#: Documents drawn and written at once, and those that tell how much room all of them take.
_BLOCK, _SAMPLE = 5000, 200
#: The validation and the test split have a tenth of the training split's documents, and at most so many.
_MOST_SCORED = 5000


@dataclass(frozen=True)
class Simulated:
    """What was written: documents by split, bytes, and test F1 of the truth and of the majority vote."""

    documents: dict[str, int]
    size: int
    best_f1: float
    vote_f1: float


def simulate(size: Size, documents: int, out: Path, seed: int = 0) -> Simulated:
    """Write ``train``, ``valid`` and ``test`` as JSON lines and :data:`TRUTH`, a block of documents at a time.

    :param documents: in the training split.
    :raises ConfigError: where the disk has too little room, before anything is written.
    :raises DataError: where the folder is not empty or cannot be written.
    """
    if documents < 1:
        raise ConfigError(f"documents is {documents}; it must be 1 or more.")
    truth = Truth.draw(size, seed)
    scored = min(max(documents // 10, 1), _MOST_SCORED)
    counts = {"train": documents, "valid": scored, "test": scored}
    _check_room(truth, sum(counts.values()), out)
    with replacing_folder(out) as folder, progress.task("Simulating", total=sum(counts.values()), unit="documents") as advance:
        for place, (name, count) in enumerate(counts.items()):
            lines = _lines(truth, count, np.random.default_rng([seed, 1 + place]), advance)
            write_lines(folder / f"{name}.jsonl", lines)
        test = draw_corpus(truth, scored, np.random.default_rng([seed, 3]))  # what the file has
        assert test.gold is not None
        found = {"best": most_probable(truth, test), "majority_vote": MajorityVote().predict_ids(readable(test))}
        scores = {name: score(test.label_set, test.gold, ids, test.offsets).f1 for name, ids in found.items()}
        (folder / TRUTH).write_text(json.dumps(_description(truth, size, seed, scores)), encoding="utf-8")
        written = sum(file.stat().st_size for file in folder.iterdir())
    return Simulated(counts, written, scores["best"], scores["majority_vote"])


def _lines(truth: Truth, documents: int, random: np.random.Generator, advance: Callable[..., None]) -> Iterator[str]:
    yield json_text({"lf_names": truth.lf_names, "entity_types": truth.label_set.entity_types})
    for first in range(0, documents, _BLOCK):
        corpus = draw_corpus(truth, min(_BLOCK, documents - first), random, first)
        yield from document_lines(readable(corpus))
        advance(corpus.num_documents)


def _check_room(truth: Truth, documents: int, out: Path) -> None:
    sample = draw_corpus(truth, _SAMPLE, np.random.default_rng(0))
    needed = int(sum(len(line) + 1 for line in document_lines(readable(sample))) / _SAMPLE * documents * 1.1)
    there = next(place for place in (out.resolve(), *out.resolve().parents) if place.exists())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise ConfigError(
            f"{documents:,} documents take about {needed / 1e9:.1f} GB, and {there} has {free / 1e9:.1f} GB left: simulate fewer "
            "documents, or write elsewhere."
        )


def _description(truth: Truth, size: Size, seed: int, scores: dict[str, float]) -> dict[str, Any]:
    return {
        "entity_types": truth.label_set.entity_types,
        "lf_names": truth.lf_names,
        "seed": seed,
        "size": asdict(size),
        "transition": truth.transition.tolist(),
        "emission": truth.emission.tolist(),
        "reliability": truth.reliability.tolist(),
        "test_f1": scores,
    }
