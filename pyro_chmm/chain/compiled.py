"""What the kernels share: how they are compiled, cached and spread over threads.

Threads are plain Python threads over compiled code that holds no GIL. numba's own threading layers either abort when two threads
call them at once or do not survive a fork; these do both.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
import platformdirs
import torch

_FLAGS = {"contract", "reassoc", "nsz"}
_CHUNKS_PER_THREAD = 4
_pools: dict[int, ThreadPoolExecutor] = {}
_lock = threading.Lock()


def kernel(function: Callable[..., Any]) -> Any:
    """Compile with numba at the first call, without the GIL; cached on disk where there is a place to write.

    Sums may be reordered, which is what lets loops become vector instructions; NaN and infinity keep their meaning.
    """
    with _user_cache():
        try:
            return numba.njit(function, cache=True, nogil=True, error_model="numpy", fastmath=_FLAGS)
        except RuntimeError:
            # numba's way of saying that neither __pycache__ nor the user's cache directory can be written
            return numba.njit(function, nogil=True, error_model="numpy", fastmath=_FLAGS)


@contextmanager
def _user_cache() -> Iterator[None]:
    """Keep compiled kernels in the user's cache folder, unless ``$NUMBA_CACHE_DIR`` names another.

    Beside the source they would outlive an uninstalled package, and the folder they leave shadows an editable install.
    """
    settings: Any = numba.config
    before = settings.CACHE_DIR
    if not before:
        settings.CACHE_DIR = str(Path(platformdirs.user_cache_dir("pyro-chmm")) / "numba")
    try:
        yield
    finally:
        settings.CACHE_DIR = before


def part(function: Callable[..., Any]) -> Any:
    """A piece of a kernel, copied into it: a call would count references to every array."""
    return numba.njit(function, inline="always", error_model="numpy", fastmath=_FLAGS)


def run_parallel(work: Callable[[int, int], None], costs: Sequence[int]) -> None:
    """Call ``work(first, last)`` for consecutive ranges that cover ``costs``, on as many threads as torch uses.

    Each item belongs to exactly one range and ranges share nothing, so the results do not depend on the number of threads.
    """
    threads = min(torch.get_num_threads(), len(costs))
    if threads <= 1:
        if costs:
            work(0, len(costs))
        return
    ranges = iter(_ranges(costs, threads * _CHUNKS_PER_THREAD))

    def take_turns() -> None:
        # next() on a list iterator is atomic
        for first, last in ranges:
            work(first, last)

    pool = _pool(threads - 1)
    others = [pool.submit(take_turns) for _ in range(threads - 1)]
    try:
        take_turns()
    finally:
        for other in others:
            other.result()


def _ranges(costs: Sequence[int], count: int) -> list[tuple[int, int]]:
    share = sum(costs) / count
    ranges, first, cost = [], 0, 0
    for item in range(len(costs)):
        cost += costs[item]
        if cost >= share or item == len(costs) - 1:
            ranges.append((first, item + 1))
            first, cost = item + 1, 0
    return ranges


def _pool(workers: int) -> ThreadPoolExecutor:
    with _lock:
        if workers not in _pools:
            _pools[workers] = ThreadPoolExecutor(workers, thread_name_prefix="pyro-chmm-chain")
        return _pools[workers]


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    # threads do not survive a fork; the child starts its own when it needs them
    _pools.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_after_fork)
