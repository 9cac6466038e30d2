"""The report: one HTML file on a model and a split, to be opened in any browser, with no network."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import date
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pyro_chmm._version import __version__
from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.formats import replacing
from pyro_chmm.data.scoring import Score, score
from pyro_chmm.errors import ConfigError
from pyro_chmm.inspection.lf_table import LFTable, lf_table
from pyro_chmm.inspection.opening import open_model
from pyro_chmm.label_models.best_consensus import best_consensus
from pyro_chmm.label_models.majority_vote import MajorityVote
from pyro_chmm.label_models.run_folder import HISTORY
from pyro_chmm.label_models.sparse_chmm import SparseCHMM

if TYPE_CHECKING:
    from pyro_chmm.inspection.believed import ExpectedLabels, Intervals

_EXTRA = ("jinja2", "matplotlib", "scipy")
#: Rows of the predictive checks that are shown at once, and at most.
_CHECKS, _ALL_CHECKS = 12, 400
#: A label that is both observed and expected less often is not checked.
_LEAST_COUNT = 5


@dataclass(frozen=True, eq=False)
class Findings:
    """All that a report shows.

    :ivar marginals: ``(N, L)``; ``labels`` and ``vote``, ``(N,)``, of the model and of majority vote.
    :ivar vote_shares: ``(N, L)`` majority vote's soft labels.
    :ivar reliability: ``(K, L)``, mean over documents; ``emission``, ``(K, L, L)``, likewise.
    :ivar documents: see :mod:`pyro_chmm.inspection.documents`.
    """

    model: SparseCHMM
    corpus: Corpus
    table: LFTable
    marginals: NDArray[np.float64]
    labels: NDArray[np.int16]
    vote: NDArray[np.int16]
    vote_shares: NDArray[np.float64]
    reliability: NDArray[np.float64]
    emission: NDArray[np.float64]
    intervals: Intervals
    expected: ExpectedLabels
    documents: bytes


def write_report(
    model_directory: Path,
    data: str,
    out: Path,
    *,
    split: str | None = None,
    data_root: Path | None = None,
    device: str = "cpu",
) -> int:
    """Write the report in one step.

    :returns: the size of the file in bytes.
    :raises PyroCHMMError: for a model or data that cannot be used, or where the extra ``inspect`` is not installed.
    """
    missing = [name for name in _EXTRA if find_spec(name) is None]
    if missing:
        raise ConfigError(f'The report needs {missing[0]}, which is not installed: pip install "pyro-chmm[inspect]".')
    model, split, corpus = open_model(model_directory, data, split=split, data_root=data_root, device=device)
    html = render(find(model, corpus), data, split, model_directory / HISTORY)
    with replacing(out) as file:
        file.write(html)
    return out.stat().st_size


def find(model: SparseCHMM, corpus: Corpus) -> Findings:
    """Decode a corpus once, a batch at a time, and collect what a report shows.

    :param corpus: with the model's LFs and labels, see :meth:`SparseCHMM.matching`.
    """
    from pyro_chmm.inspection.believed import diagonal_intervals, expected_labels, label_counts
    from pyro_chmm.inspection.documents import DocumentPacker

    lfs, num_labels = corpus.num_lfs, len(corpus.label_set)
    packer, counts = DocumentPacker(model.observed(corpus)), np.zeros((3, lfs, len(corpus.observed_set)))
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in ("marginals", "labels", "reliability", "concentration")}
    for batch in model.decoded(corpus):
        packer.add(batch)
        counts += label_counts(batch, lfs)
        for name, found in parts.items():
            array = getattr(batch, name).numpy()
            found.append(array if name in ("marginals", "labels") else array[:, :lfs])
    marginals = np.concatenate([np.zeros((0, num_labels)), *parts["marginals"]])
    reliability = np.concatenate([np.zeros((0, lfs, num_labels)), *parts["reliability"]])
    concentration = np.concatenate(parts["concentration"] or [np.ones((1, lfs, num_labels, num_labels))])
    vote = MajorityVote().fit(corpus)
    vote_ids = vote.predict_ids(corpus)
    return Findings(
        model=model,
        corpus=corpus,
        table=lf_table(corpus),
        marginals=marginals,
        labels=np.concatenate([np.zeros(0), *parts["labels"]]).astype(np.int16),
        vote=vote_ids,
        vote_shares=np.concatenate([np.zeros((0, num_labels)), *vote.predict_proba(corpus)]),
        reliability=reliability.mean(axis=0) if len(reliability) else np.zeros((lfs, num_labels)),
        emission=(concentration / concentration.sum(axis=-1, keepdims=True)).mean(axis=0),
        intervals=diagonal_intervals(concentration),
        expected=expected_labels(counts),
        documents=packer.packed(vote_ids),
    )


def render(found: Findings, data: str, split: str, history: Path) -> str:
    """The page; every text of the data in it is escaped.

    :param history: a run's ``history.csv``; the page has no training curves where there is none.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    from pyro_chmm.inspection.report_plots import pictures

    environment = Environment(loader=PackageLoader("pyro_chmm.inspection"), autoescape=True, undefined=StrictUndefined)
    templates = resources.files("pyro_chmm.inspection") / "templates"
    corpus = found.corpus
    return environment.get_template("report.html").render(
        title=f"{data}, split {split}",
        style=Markup((templates / "report.css").read_text(encoding="utf-8")),  # our own files, not to be escaped
        script=Markup((templates / "report.js").read_text(encoding="utf-8")),
        version=__version__,
        today=date.today().isoformat(),
        corpus=corpus,
        config=found.model.config,
        scores=_scores(found),
        overridden=int((found.labels != found.vote).sum()),
        table=found.table,
        reliabilities=_reliabilities(found),
        checks=_checks(found),
        shown_checks=_CHECKS,
        pictures=pictures(found, history),
        meta={
            "labels": corpus.observed_set.names,
            "types": corpus.observed_set.entity_types,
            "lfs": corpus.lf_names,
            "gold": corpus.gold is not None,
        },
        documents=base64.b64encode(found.documents).decode(),
    )


def _scores(found: Findings) -> list[tuple[str, Score]]:
    """The headline table; empty without gold labels."""
    corpus = found.corpus
    if corpus.gold is None:
        return []
    ours, vote = (score(corpus.label_set, corpus.gold, ids, corpus.offsets) for ids in (found.labels, found.vote))
    return [("model", ours), ("majority vote", vote), ("best consensus (oracle)", best_consensus(corpus))]


def _reliabilities(found: Findings) -> list[dict[str, Any]]:
    """A row an LF, a cell a label: mean, interval, and whether the LF ever says it."""
    said = found.expected.observed > 0
    intervals = found.intervals
    return [
        {
            "name": name,
            "cells": [
                {"low": low, "mean": mean, "high": high, "said": bool(says)}
                for low, mean, high, says in zip(intervals.low[k], intervals.mean[k], intervals.high[k], said[k], strict=False)
            ],
        }
        for k, name in enumerate(found.corpus.lf_names)
    ]


def _checks(found: Findings) -> list[dict[str, Any]]:
    """Observed and expected rates, in percent of the tokens where the LF said anything; the largest deviations first."""
    expected, rows = found.expected, []
    for k, name in enumerate(found.corpus.lf_names):
        tokens = max(int(expected.tokens[k]), 1)
        for label, label_name in enumerate(found.corpus.observed_set.names):
            count, hoped, z = expected.observed[k, label], expected.expected[k, label], expected.z[k, label]
            if max(count, hoped) < _LEAST_COUNT:
                continue
            rates = {"observed": 100 * count / tokens, "expected": 100 * hoped / tokens}
            rows.append({"lf": name, "label": label_name, "z": float(z), **rates})
    return sorted(rows, key=lambda row: -abs(row["z"]))[:_ALL_CHECKS]
