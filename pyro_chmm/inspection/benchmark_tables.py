"""The paper's tables 2 to 5 from the results of a benchmark, with the published figures beside; as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from pyro_chmm.data.corpus import CorpusSplits
from pyro_chmm.inspection import published
from pyro_chmm.inspection.benchmark import BenchmarkSettings, Result, load_corpora, write_atomically
from pyro_chmm.inspection.benchmark_systems import SYSTEMS

DASH = "-"
_CSV_COLUMNS = ("data", "system", "seed", "status", "encoder", "split", "f1", "precision", "recall", "seconds_total", "message")


@dataclass(frozen=True)
class Table:
    """A table of texts; ``notes`` are sentences that its cells refer to by number."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        """As GitHub shows it."""
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        body = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        return "\n\n".join([f"**{self.title}**", body, *self.notes]) + "\n"


class _Notes:
    """Numbers for the reasons why runs are not done; the same reason has the same number."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def cell(self, results: Iterable[Result]) -> str:
        """E.g. ``failed (1)``."""
        cells = []
        for result in results:
            text = f"{result.data}, {SYSTEMS[result.system].title}: {result.message}"
            if text not in self.texts:
                self.texts.append(text)
            cells.append(f"{result.status} ({self.texts.index(text) + 1})")
        return ", ".join(dict.fromkeys(cells))

    def lines(self) -> tuple[str, ...]:
        return tuple(f"({number}) {text}" for number, text in enumerate(self.texts, start=1))


def benchmark_of(settings: BenchmarkSettings, results: Sequence[Result]) -> list[Table]:
    """The tables of a benchmark that has run."""
    return benchmark_tables(results, {name: load_corpora(name, settings.data_root) for name in dict.fromkeys(settings.data)})


def benchmark_tables(results: Sequence[Result], corpora: Mapping[str, CorpusSplits]) -> list[Table]:
    """Tables 2 to 5, of those the ones that have a row.

    :param corpora: the data sets by name, in the order of the columns.
    """
    tables = [statistics_table(corpora), score_table(results, tuple(corpora))]
    tables += [ablation_table(results, tuple(corpora)), seconds_table(results, tuple(corpora))]
    return [table for table in tables if table.rows]


def statistics_table(corpora: Mapping[str, CorpusSplits]) -> Table:
    """Table 2."""
    rows = []
    for name, splits in corpora.items():
        first = next(iter(splits.splits.values()))
        counts = [f"{splits.splits[part].num_documents}" if part in splits.splits else DASH for part in ("train", "valid", "test")]
        tokens = sum(corpus.num_tokens for corpus in splits.splits.values())
        sizes = (f"{tokens}", f"{len(first.label_set.entity_types)}", f"{first.num_lfs}")
        rows.append((name, *counts, *sizes, published.STATISTICS.get(name, DASH)))
    columns = ("data", "train", "valid", "test", "tokens", "entity types", "LFs", "paper: documents, types, LFs")
    return Table("Table 2: documents in each split, and sizes", columns, tuple(rows))


def score_table(results: Sequence[Result], data: Sequence[str]) -> Table:
    """Table 3."""
    names = [name for name in _present(results) if not SYSTEMS[name].ablation]
    rows: dict[str, tuple[str, str, _Pick]] = {name: (SYSTEMS[name].title, name, _test) for name in names}
    return _score_rows(
        "Table 3: strict test F1 (precision / recall) in percent, mean ± standard deviation over seeds",
        rows,
        results,
        data,
        published.SCORES,
        _triple,
    )


def ablation_table(results: Sequence[Result], data: Sequence[str]) -> Table:
    """Table 4; its stages are those of Sparse-CHMM's runs."""
    names = [name for name in _present(results) if SYSTEMS[name].ablation]
    rows: dict[str, tuple[str, str, _Pick]] = {}
    if any(result.stages for result in results if result.system == "sparse-chmm"):
        rows["sparse-chmm"] = ("Sparse-CHMM", "sparse-chmm", _test)
        rows["stage 1"] = ("stage 1", "sparse-chmm", lambda result: result.stages.get("1", {}).get("test"))
        rows["stage 2"] = ("stage 2", "sparse-chmm", lambda result: result.stages.get("2", {}).get("test"))
    for name in names:
        rows[name] = (SYSTEMS[name].title, name, _test)
    return _score_rows(
        "Table 4: stages and ablations of Sparse-CHMM, strict test F1 in percent", rows, results, data, published.ABLATIONS, _f1
    )


def seconds_table(results: Sequence[Result], data: Sequence[str]) -> Table:
    """Table 5."""
    rows = []
    timed = {(result.system, stage) for result in results for stage in result.seconds_per_epoch}
    names = [name for name in _present(results) if not SYSTEMS[name].ablation]
    keys = [(name, stage) for name in names for stage in sorted({stage for system, stage in timed if system == name})]
    for name, stage in keys:
        row = [SYSTEMS[name].title + (f", stage {stage}" if name == "sparse-chmm" else "")]
        for place in data:
            chosen = [r for r in results if (r.data, r.system) == (place, name) and stage in r.seconds_per_epoch]
            row.append(
                f"{fmean(r.seconds_per_epoch[stage] for r in chosen):.2f} ({fmean(r.epochs.get(stage, 0) for r in chosen):.0f})"
                if chosen
                else DASH
            )
            if place in published.ENCODERS:
                row.append(published.SECONDS.get((name, stage), {}).get(place, DASH))
        rows.append(tuple(row))
    columns = _columns(data, lambda place: "paper, RTX 2080 Ti")
    return Table("Table 5: seconds an epoch (epochs; an HMM's are steps of EM)", columns, tuple(rows))


_Pick = Callable[[Result], "dict[str, float] | None"]


def _test(result: Result) -> dict[str, float] | None:
    return result.scores.get("test")


def _score_rows(
    title: str,
    rows: Mapping[str, tuple[str, str, _Pick]],
    results: Sequence[Result],
    data: Sequence[str],
    paper: Mapping[str, Mapping[str, str]],
    shown: Callable[[Sequence[dict[str, float]]], str],
) -> Table:
    """One row for each entry (title, system, what to show), one column a data set, with the paper's beside those it has."""
    notes, lines = _Notes(), []
    for key, (label, system, pick) in rows.items():
        line = [label]
        for place in data:
            cell = [result for result in results if (result.data, result.system) == (place, system)]
            done = [score for score in (pick(result) for result in cell if result.status == "done") if score is not None]
            lost = [result for result in cell if result.status != "done"]
            line.append("; ".join(filter(None, [shown(done) if done else "", notes.cell(lost)])) or DASH)
            if place in published.ENCODERS:
                line.append(paper.get(key, {}).get(place, DASH))
        lines.append(tuple(line))
    used = sorted({result.encoder for result in results if result.encoder})
    with_encoder = title + (f" (encoder: {', '.join(used)})" if used else "")
    columns = _columns(data, lambda place: f"paper, {published.ENCODERS[place]}")
    return Table(with_encoder, columns, tuple(lines), notes.lines())


def _columns(data: Sequence[str], beside: Callable[[str], str]) -> tuple[str, ...]:
    return ("", *(column for place in data for column in ([place, beside(place)] if place in published.ENCODERS else [place])))


def _present(results: Sequence[Result]) -> list[str]:
    there = {result.system for result in results}
    return [name for name in SYSTEMS if name in there]


def _spread(values: Sequence[float]) -> str:
    return f" ± {stdev(values):.2f}" if len(values) > 1 else ""


def _triple(scores: Sequence[dict[str, float]]) -> str:
    f1, precision, recall = ([score[name] for score in scores] for name in ("f1", "precision", "recall"))
    return f"{fmean(f1):.2f}{_spread(f1)} ({fmean(precision):.2f} / {fmean(recall):.2f})"


def _f1(scores: Sequence[dict[str, float]]) -> str:
    values = [score["f1"] for score in scores]
    return f"{fmean(values):.2f}{_spread(values)}"


def to_json(tables: Sequence[Table], results: Sequence[Result]) -> dict[str, Any]:
    """``{"tables": [...], "runs": [...]}``, plain values."""
    return {"tables": [asdict(table) for table in tables], "runs": [asdict(result) for result in results]}


def to_csv(results: Sequence[Result]) -> str:
    """A row for each run and split; one without scores has one row."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _CSV_COLUMNS, restval="", lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for result in results:
        for split, score in (result.scores or {"": None}).items():
            writer.writerow({**asdict(result), "split": split, **(score or {})})
    return text.getvalue()


def write_tables(out: Path, tables: Sequence[Table], results: Sequence[Result]) -> None:
    """``benchmark.md``, ``benchmark.csv`` and ``benchmark.json``, each in one step."""
    write_atomically(out / "benchmark.md", "\n".join(table.markdown() for table in tables))
    write_atomically(out / "benchmark.csv", to_csv(results))
    write_atomically(out / "benchmark.json", json.dumps(to_json(tables, results), indent=2, ensure_ascii=False) + "\n")
