"""How a backend is chosen, what it says, and what the kernels share: threads, forks and the cache on disk."""

import logging
import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from pyro_chmm import chain
from pyro_chmm.chain import backends, compiled
from pyro_chmm.errors import ChainError
from tests.chain.cases import MANY, make_case


def test_automatic_choice_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    backends._automatic.cache_clear()
    case = make_case(MANY, 3)
    with caplog.at_level(logging.DEBUG, logger="pyro_chmm.chain"):
        chain.log_evidence(*case.inputs)
        chain.log_evidence(*case.inputs)
    assert [record.message for record in caplog.records] == ["chain: backend 'cpu' for tensors on 'cpu'"]


def test_unknown_and_unfit_backends() -> None:
    case = make_case(MANY, 3)
    with pytest.raises(ChainError, match=r"unknown chain backend 'gpu'; expected one of auto, reference, cpu, cuda"):
        chain.log_evidence(*case.inputs, backend="gpu")
    with pytest.raises(ChainError, match=r"backend 'cuda' .* on device 'cpu'; move them with .to\('cuda'\)"):
        chain.log_evidence(*case.inputs, backend="cuda")


def test_a_backend_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    backends._load.cache_clear()
    monkeypatch.setitem(sys.modules, "pyro_chmm.chain.cpu", None)
    with pytest.raises(ChainError, match=r"chain backend 'cpu' cannot be imported .*use backend='reference'"):
        backends.resolve("cpu", torch.device("cpu"))
    backends._load.cache_clear()


def test_other_devices_get_the_reference() -> None:
    assert backends.resolve("auto", torch.device("meta")) == "reference"


@pytest.mark.parametrize("costs", [[], [5], [1] * 40, [100, *[0] * 7], [0, 0, 0]])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_item_is_worked_on_once(costs: list[int], threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        seen: list[int] = []
        compiled.run_parallel(lambda first, last: seen.extend(range(first, last)), costs)
    finally:
        torch.set_num_threads(before)
    assert sorted(seen) == list(range(len(costs)))


def test_an_error_in_a_thread_is_raised() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)

    def fail(first: int, last: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise ValueError("in a thread")
        reached.wait(10)

    reached = threading.Event()
    try:
        with pytest.raises(ValueError, match="in a thread"):
            compiled.run_parallel(lambda first, last: (reached.set() if _worker() else None, fail(first, last))[0], [1] * 8)
    finally:
        torch.set_num_threads(before)


def _worker() -> bool:
    return threading.current_thread() is not threading.main_thread()


def test_two_threads_may_call_at_once() -> None:
    case = make_case(MANY * 4, 5)
    expected = chain.log_evidence(*case.inputs)
    results: list[torch.Tensor] = []

    def call() -> None:
        for _ in range(20):
            results.append(chain.log_evidence(*case.inputs))

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 60
    assert all(torch.equal(result, expected) for result in results)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_threads_after_a_fork() -> None:
    """A forked child, such as a worker of a DataLoader, starts its own threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        compiled.run_parallel(lambda first, last: None, [1] * 8)
        context = multiprocessing.get_context("fork")
        child = context.Process(target=_count_in_child)
        child.start()
        child.join(60)
    finally:
        torch.set_num_threads(before)
    assert child.exitcode == 0


def _count_in_child() -> None:
    seen: list[int] = []
    compiled.run_parallel(lambda first, last: seen.extend(range(first, last)), [1] * 8)
    os._exit(0 if sorted(seen) == list(range(8)) else 1)


def test_kernels_work_where_nothing_can_be_written(tmp_path: Path) -> None:
    """A read-only installation for a user without a home: numba finds no place for its cache, and compiles without."""
    program = """
import numba.core.caching as caching
for locator in list(caching.CacheImpl._locator_classes):
    locator.from_function = classmethod(lambda cls, *arguments: None)
from pyro_chmm.chain.compiled import kernel
@kernel
def double(x):
    return 2 * x
assert double(21) == 42
"""
    script = tmp_path / "program.py"
    script.write_text(program)
    done = subprocess.run([sys.executable, "-W", "error", str(script)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
