"""How fast and exact the log evidence and its gradients are, against the other ways to compute them.

Every method runs in this process, on the same tensors, by turns; ratios are between medians. On one thread the clock is the
thread's processor time, which other processes disturb least; two threads are measured in wall time. The exit status is 1 if a
minimum is missed.
"""

import argparse
import ctypes
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from tests.benchmarks import chain_methods as methods
from tests.benchmarks.chain_methods import Batch, make_batch

GRID = (
    (32, 64, 9, False),
    (32, 500, 9, False),
    (32, 64, 37, False),
    (256, 80, 3, True),
    (32, 80, 37, True),
    (256, 40, 9, False),
    (128, 250, 3, False),
    (8, 10_000, 9, False),
)
QUICK = ((32, 64, 9, False), (256, 80, 3, True), (32, 80, 37, True))
"""Documents, tokens, labels, and whether the number of tokens is the longest document's or everyone's."""

# enumeration builds a graph of every step; beyond this it takes minutes
MOST_ENUMERATED_STEPS = 600


@dataclass(frozen=True)
class Row:
    """One measurement. ``required`` is the least ratio, or (for ``at_most``) the largest value."""

    what: str
    batch: str
    milliseconds: float | None
    value: float
    required: float | None = None
    at_most: bool = False

    @property
    def ok(self) -> bool | None:
        if self.required is None:
            return None
        return self.value <= self.required if self.at_most else self.value >= self.required


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.chain", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three batches and fewer repetitions, under a minute")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    options = parser.parse_args(arguments)
    threads = torch.get_num_threads()
    started = time.perf_counter()
    rows: list[Row] = []
    try:
        torch.set_num_threads(1)
        compiling = _first_call()
        for shape in QUICK if options.quick else GRID:
            rows += _compare(shape, budget=1.5 if options.quick else 6.0)
            _say(options, f"{_name(shape)} done after {time.perf_counter() - started:.0f} s")
        rows.append(_gradient_error())
        rows += _peak_memory(options.quick)
        rows += _two_threads(options.quick)
    finally:
        torch.set_num_threads(threads)
    if options.json:
        listed = [asdict(row) | {"ok": row.ok} for row in rows]
        print(json.dumps({"first_call_seconds": compiling, "torch": torch.__version__, "rows": listed}))
    else:
        print(f"first call (compiling, or loading what was compiled before): {compiling:.1f} s")
        _print(rows)
    return 1 if any(row.ok is False for row in rows) else 0


def _first_call() -> float:
    start = time.perf_counter()
    methods.ours(make_batch(16, 2, 3, ragged=False))
    return time.perf_counter() - start


def _compare(shape: tuple[int, int, int, bool], budget: float) -> list[Row]:
    """Ours against each other method on one batch, by turns."""
    documents, steps, labels, ragged = shape
    batch = make_batch(documents, steps, labels, ragged=ragged)
    expected = methods.ours(batch)
    rows = []
    for what, method, required in (
        ("enumeration (TraceEnum_ELBO)", methods.enumeration, 200.0),
        ("dist.DiscreteHMM", methods.discrete_hmm, 10.0),
        ("analytic eager loop", methods.analytic_loop, {3: 15.0, 37: 10.0}.get(labels)),
        ("log-space loop, autograd", methods.log_space_loop, 20.0),
    ):
        if method is methods.enumeration and steps > MOST_ENUMERATED_STEPS:
            continue
        loss = method(batch)[0]
        if abs(float(loss) - float(expected[0])) > 1e-4 * abs(float(expected[0])):
            raise RuntimeError(f"{what} computes {float(loss)} where ours is {float(expected[0])}: not the same problem")
        mine, theirs = _by_turns(methods.ours, method, batch, budget)
        rows.append(Row(what, _name(shape), theirs, theirs / mine, required))
    mine, copying = _by_turns(methods.ours, methods.copy_twice, batch, budget)
    limit = 4.0 if labels in (9, 37) else None
    return [
        Row("ours", _name(shape), mine, 1.0),
        *rows,
        Row("ours / copying twice", _name(shape), copying, mine / copying, limit, True),
    ]


def _by_turns(
    first: Callable[[Batch], object], second: Callable[[Batch], object], batch: Batch, budget: float
) -> tuple[float, float]:
    """Median milliseconds of two methods that take turns; the quicker one runs more often."""
    quick, slow = [], []
    begin = time.perf_counter()
    while len(slow) < 3 or (time.perf_counter() - begin < budget and len(slow) < 100):
        for _ in range(3):
            quick.append(_clocked(first, batch))
        slow.append(_clocked(second, batch))
    return statistics.median(quick), statistics.median(slow)


def _clocked(method: Callable[[Batch], object], batch: Batch) -> float:
    clock = time.thread_time_ns if torch.get_num_threads() == 1 else time.perf_counter_ns
    start = clock()
    method(batch)
    return (clock() - start) / 1e6


def _gradient_error() -> Row:
    """Largest error of the float32 gradients of one document's log evidence, 500 tokens."""
    batch = make_batch(1, 500, 9, ragged=False)
    single, double = methods.ours(batch), methods.ours(batch.double())
    error = max(float((a - b).abs().max()) for a, b in zip(single[1:], double[1:], strict=True))
    return Row("float32 gradient error", "T=500 L=9", None, error, 5e-6, True)


def _two_threads(quick: bool) -> list[Row]:
    rows = []
    for shape in ((256, 40, 9, False), (128, 250, 3, False), (8, 10_000, 9, False))[: 1 if quick else 3]:
        batch = make_batch(*shape[:3], ragged=shape[3])
        times: dict[int, list[float]] = {1: [], 2: []}
        for turn in range(60 if shape[1] < 1000 else 12):
            threads = 1 + turn % 2
            torch.set_num_threads(threads)
            start = time.perf_counter_ns()
            methods.ours(batch)
            times[threads].append((time.perf_counter_ns() - start) / 1e6)
        torch.set_num_threads(1)
        one, two = statistics.median(times[1]), statistics.median(times[2])
        rows.append(Row("two threads against one", _name(shape), two, one / two, 1.7))
    return rows


def _peak_memory(quick: bool) -> list[Row]:
    """Resident memory at its peak beside inputs and gradients, as a part of the (N, L, L) tensor. Linux only."""
    if not Path("/proc/self/clear_refs").exists():
        return []
    rows = []
    for shape in ((32, 500, 37, False), (32, 5_000, 9, False), (256, 1_000, 9, False))[: 1 if quick else 3]:
        batch = make_batch(*shape[:3], ragged=shape[3])
        methods.ours(make_batch(*shape[:2], 2, ragged=False))
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before = _status("VmRSS")
        result = methods.ours(batch)
        extra = _status("VmHWM") - before - sum(part.nbytes for part in result)
        del result
        rows.append(Row("peak memory / (N, L, L)", _name(shape), None, extra / batch.transition.nbytes, 0.25, True))
    return rows


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


def _name(shape: tuple[int, int, int, bool]) -> str:
    documents, steps, labels, ragged = shape
    return f"B={documents} T{'<' if ragged else ''}={steps} L={labels}"


def _say(options: argparse.Namespace, message: str) -> None:
    if not options.json:
        print(message, file=sys.stderr)


def _print(rows: list[Row]) -> None:
    print(f"{'batch':<22} {'what':<30} {'ms':>10} {'ratio':>10} {'required':>10}")
    for row in rows:
        milliseconds = "" if row.milliseconds is None else f"{row.milliseconds:.2f}"
        required = "" if row.required is None else f"{'<=' if row.at_most else '>='} {row.required:g}"
        verdict = {True: "ok", False: "MISSED", None: ""}[row.ok]
        print(f"{row.batch:<22} {row.what:<30} {milliseconds:>10} {row.value:>10.3g} {required:>10} {verdict}")


if __name__ == "__main__":
    sys.exit(main())
