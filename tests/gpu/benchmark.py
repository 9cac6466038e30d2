"""``python -m tests.gpu.benchmark``: the CUDA backend on the GPU at hand, in milliseconds (median of runs).

The last columns compare with copying the (N, L, L) tensor twice, and give the time of one step of the chain.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch

from pyro_chmm.chain import cuda
from tests.chain.cuda.cases import random_case

GRID = [
    (32, 64, 9),
    (32, 500, 9),
    (32, 64, 37),
    (256, 80, 3),
    (32, 80, 37),
    (256, 40, 9),
    (128, 250, 3),
    (8, 10_000, 9),
    (32, 500, 37),
    (32, 64, 128),
]
RUNS = 20


def milliseconds(work: Callable[[], object]) -> float:
    """On the device, launch included: back to back with a synchronisation after each."""
    work()
    times = []
    for _ in range(RUNS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def main() -> None:
    if not torch.cuda.is_available():
        print("no CUDA device is visible to torch: nothing to time")
        return
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, float32")
    columns = ["compile s", "fwd+bwd", "viterbi", "copy x2", "ratio", "us/token"]
    print(f"{'B':>5} {'T':>6} {'L':>4}" + "".join(f"{column:>10}" for column in columns))
    for documents, tokens, labels in GRID:
        case = random_case(labels, [tokens] * documents, device="cuda")
        start = time.perf_counter()
        both = partial(cuda.forward_backward, *case, logits=True, gradients=True)
        both()
        torch.cuda.synchronize()
        first = time.perf_counter() - start
        evidence = milliseconds(both)
        path = milliseconds(partial(cuda.viterbi, *case, logits=True))
        copies = 2 * milliseconds(partial(torch.empty_like(case.transition).copy_, case.transition))
        figures = [first, evidence, path, copies, evidence / copies, 1000 * evidence / tokens]
        print(f"{documents:5} {tokens:6} {labels:4}" + "".join(f"{x:10.3f}" for x in figures), flush=True)


if __name__ == "__main__":
    main()
