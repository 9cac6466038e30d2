"""How good the labels and posteriors are: F1, calibration, what the model expects of LFs, and what tells of F1 without gold labels.

Fits each data set with each seed in each way of ``WAYS``, adds a line a fit to a file of JSON lines (fits that it has are not made
again), and prints tables from it: test F1 with its standard deviation over seeds, expected calibration error of the token marginals
beside that of the vote's shares, correlation of expected and true F1 of the LFs (figure 8), and, over all fits of a data set, the
rank correlation of validation F1 with criteria that see no gold label.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr

from pyro_chmm import SparseCHMM, load_dataset
from pyro_chmm.data.corpus import Corpus
from pyro_chmm.inspection.believed import expected_and_true_f1
from pyro_chmm.inspection.calibration import calibration
from pyro_chmm.label_models.majority_vote import MajorityVote

DATA = ("wrench/laptop", "wrench/ncbi", "wrench/bc5cdr", "wrench/conll")
#: The default, without a language model, without gold labels, and without what is ours; `pyro-chmm benchmark` has Table 4's.
WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "no encoder": {"encoder": "none"},
    "select by evidence": {"select": "evidence"},
    "paper's transitions": {"transition_normalization": "row", "transition_hidden": 0},
    "O as plain evidence": {"o_weight_contested": 1.0, "o_weight_beside": 1.0, "o_weight_prediction": 1.0},
}
CRITERIA = ("evidence", "certainty", "expected_f1")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.quality", description=__doc__)
    parser.add_argument("--data", action="append", help=f"data set, more than once (default: {', '.join(DATA)})")
    parser.add_argument("--way", action="append", choices=list(WAYS), help="more than once (default: default)")
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0, 1, ...")
    parser.add_argument("--out", type=Path, default=Path("quality.jsonl"), help="file of JSON lines that fits are added to")
    options = parser.parse_args(arguments)
    fits = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done = {(fit["data"], fit["way"], fit["seed"]) for fit in fits}
    grid = itertools.product(options.way or ["default"], range(options.seeds), options.data or DATA)
    for way, seed, data in grid:
        if (data, way, seed) not in done:
            fits.append(_fit(data, way, seed))
            with options.out.open("a") as file:
                file.write(json.dumps(fits[-1]) + "\n")
            f1, seconds = fits[-1]["valid"]["f1"], fits[-1]["seconds"]
            print(f"{data}, {way}, seed {seed}: validation F1 {f1:.2f}, {seconds:.0f} s", file=sys.stderr)
    print("\n".join(_tables(fits)))
    return 0


def _fit(data: str, way: str, seed: int) -> dict[str, Any]:
    splits = load_dataset(data)
    train = splits.get("train") or splits.valid  # CoNLL comes without a training split
    model = SparseCHMM(seed=seed, verify=False, **WAYS[way])
    start = time.perf_counter()
    model.fit(train, splits.valid)
    found = {"data": data, "way": way, "seed": seed, "seconds": time.perf_counter() - start, "epochs": len(model.history_)}
    return found | {name: _scores(model, splits[name]) for name in ("valid", "test")}


def _scores(model: SparseCHMM, corpus: Corpus) -> dict[str, Any]:
    assert corpus.gold is not None
    result, marginals = model.score(corpus), np.concatenate(model.predict_proba(corpus))
    vote = np.concatenate(MajorityVote().predict_proba(corpus))
    expected, true = expected_and_true_f1(corpus, marginals)
    known = ~np.isnan(expected) & ~np.isnan(true)
    entity = model.predict_ids(corpus) > 0
    mass = 1 - marginals[:, 0].astype(np.float64)
    return {
        "f1": result.f1,
        "precision": result.precision,
        "recall": result.recall,
        "vote_f1": MajorityVote().score(corpus).f1,
        "ece": calibration(marginals, corpus.gold).error,
        "vote_ece": calibration(vote, corpus.gold).error,
        "pearson": float(pearsonr(expected[known], true[known]).statistic),
        "spearman": float(spearmanr(expected[known], true[known]).statistic),
        "evidence": model.evidence(corpus) / corpus.num_tokens,
        "certainty": float(np.log(marginals.max(axis=1)).mean()),
        "expected_f1": 2 * float(mass[entity].sum()) / max(float(entity.sum() + mass.sum()), 1e-9),
    }


def _tables(fits: list[dict[str, Any]]) -> Iterable[str]:
    yield "| data | way | seeds | valid F1 | test F1 (P / R) | sd | vote | ECE | vote's | Pearson | Spearman | seconds |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for (data, way), group in _grouped(fits, lambda fit: (fit["data"], fit["way"])):
        test = {name: np.array([fit["test"][name] for fit in group]) for name in group[0]["test"]}
        mean = {name: values.mean() for name, values in test.items()}
        sd = f"{test['f1'].std(ddof=1):.2f}" if len(group) > 1 else "-"
        valid = np.mean([fit["valid"]["f1"] for fit in group])
        seconds = np.median([fit["seconds"] for fit in group])
        scores = "{f1:.2f} ({precision:.2f} / {recall:.2f})".format(**mean)
        others = "{vote_f1:.2f} | {ece:.4f} | {vote_ece:.4f} | {pearson:.3f} | {spearman:.3f}".format(**mean)
        yield f"| {data} | {way} | {len(group)} | {valid:.2f} | {scores} | {sd} | {others} | {seconds:.0f} |"
    yield ""
    yield "| data | fits | rank correlation of validation F1 with " + " | with ".join(CRITERIA) + " |"
    yield "|---|---|" + "---|" * len(CRITERIA)
    # the evidence of what is observed: ways that observe other things are left out
    alike = [fit for fit in fits if fit["way"] != "O as plain evidence"]
    for data, group in _grouped(alike, lambda fit: fit["data"]):
        f1 = [fit["valid"]["f1"] for fit in group]
        found = (_rank_correlation(np.array(f1), np.array([fit["valid"][name] for fit in group])) for name in CRITERIA)
        yield f"| {data} | {len(group)} | " + " | ".join(found) + " |"


def _grouped(fits: list[dict[str, Any]], key: Callable[[dict[str, Any]], Any]) -> Iterable[tuple[Any, list[dict[str, Any]]]]:
    groups: dict[Any, list[dict[str, Any]]] = {}
    for fit in fits:
        groups.setdefault(key(fit), []).append(fit)
    return groups.items()


def _rank_correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> str:
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return "-"
    return f"{spearmanr(first, second).statistic:.2f}"


if __name__ == "__main__":
    sys.exit(main())
