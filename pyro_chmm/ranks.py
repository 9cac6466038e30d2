"""Several processes that work as one: documents are shared among them, one writes. Started by ``torchrun``.

Everywhere else, and in a process of its own, there is one rank, number 0, and nothing here costs anything. Every rank runs the same
program: what it calls of this module, all others call too, in the same order.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pyro_chmm.errors import RankError

if TYPE_CHECKING:
    from torch import Tensor

Item = TypeVar("Item")

_joined = False


def launched() -> int:
    """This process's number among those that ``torchrun`` started; 0 in a process of its own. Needs no torch."""
    return int(os.environ.get("RANK", "0")) if int(os.environ.get("WORLD_SIZE", "1")) > 1 else 0


@contextmanager
def joined(device: str = "cpu") -> Iterator[str]:
    """Join the processes that ``torchrun`` started, if it did; yields the device of this one.

    :param device: ``cuda`` becomes this rank's own GPU; NCCL connects these, gloo the CPUs.
    :raises RankError: where another rank ended early.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield device
        return
    import torch
    import torch.distributed as dist

    if device == "cuda":
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(device)
    global _joined
    before = signal.signal(signal.SIGTERM, _end)  # how torchrun ends those that are left
    dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    _joined = True
    try:
        with _others_alive():
            yield device
    finally:
        _joined = False
        dist.destroy_process_group()
        signal.signal(signal.SIGTERM, before)


def _end(*_: Any) -> None:
    raise RankError("Another rank ended early; what it said is above. This one ends too.")


@contextmanager
def _others_alive() -> Iterator[None]:
    """A connection that breaks means that the rank at its other end is gone."""
    import torch.distributed as dist

    try:
        yield
    except dist.DistBackendError as error:  # NCCL's
        raise RankError(f"Rank {rank()} lost another rank, which ended early ({_first_line(error)}).") from error
    except RuntimeError as error:
        if not any(sign in str(error) for sign in ("gloo", "Connection closed by peer", "Connection reset", "Broken pipe")):
            raise
        raise RankError(f"Rank {rank()} lost another rank, which ended early ({_first_line(error)}).") from error


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0].rstrip(".")[-160:]


def rank() -> int:
    """The number of this process, 0 for the one that writes."""
    if not _joined:
        return 0
    import torch.distributed as dist

    return dist.get_rank()


def size() -> int:
    """How many processes there are."""
    if not _joined:
        return 1
    import torch.distributed as dist

    return dist.get_world_size()


def wait() -> None:
    """Until every rank is here."""
    if size() > 1:
        import torch.distributed as dist

        dist.barrier()


def add(*tensors: Tensor) -> None:
    """Put the sum over ranks in the place of each tensor."""
    if size() > 1:
        import torch.distributed as dist

        for tensor in tensors:
            total = tensor.to(_device())
            dist.all_reduce(total)
            tensor.copy_(total)


def agreed(value: float) -> float:
    """Rank 0's value, on every rank."""
    if size() == 1:
        return value
    import torch
    import torch.distributed as dist

    box = torch.tensor([value], dtype=torch.float64, device=_device())
    dist.broadcast(box, 0)
    return float(box)


def stacked(tensor: Tensor) -> Tensor:
    """The tensors of all ranks, of one shape: ``(...) -> (ranks, ...)``."""
    if size() == 1:
        return tensor.unsqueeze(0)
    import torch
    import torch.distributed as dist

    mine = tensor.to(_device()).contiguous()
    found = [torch.empty_like(mine) for _ in range(size())]
    dist.all_gather(found, mine)
    return torch.stack(found).to(tensor.device)


def share(documents: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """This rank's consecutive part of some documents, of about as many tokens as each other rank's; it may be empty.

    :param lengths: tokens in each of the documents.
    """
    if size() == 1:
        return documents
    ends = np.cumsum(lengths)
    middles = ends - lengths / 2
    bounds = np.searchsorted(middles, ends[-1] * np.arange(size() + 1) / size() if len(ends) else np.zeros(size() + 1))
    return documents[bounds[rank()] : bounds[rank() + 1]]


def in_turn(items: Sequence[Item], work: Callable[[Item], Tensor]) -> Iterator[Tensor]:
    """``work(item)`` for every item, in order and on every rank; each rank does its share of the work.

    The results have one dtype and the same shape but for the first axis.
    """
    if size() == 1:
        yield from map(work, items)
        return
    for first in range(0, len(items), size()):
        # at the end there may be fewer items than ranks: some do the last one too
        mine = work(items[min(first + rank(), len(items) - 1)])
        yield from _of_all(mine)[: len(items) - first]


def _of_all(mine: Tensor) -> list[Tensor]:
    """The tensors of all ranks, whose first axes may differ."""
    import torch

    rows = stacked(torch.tensor(len(mine))).tolist()
    padded = mine.new_zeros(max(rows), *mine.shape[1:])
    padded[: len(mine)] = mine
    # gloo knows no 16-bit integers: bytes are bytes
    whole = stacked(padded.contiguous().flatten().view(torch.uint8)).flatten(1)
    return [part.view(mine.dtype).view(padded.shape)[:count] for part, count in zip(whole, rows, strict=True)]


def _device() -> str:
    import torch
    import torch.distributed as dist

    return f"cuda:{torch.cuda.current_device()}" if dist.get_backend() == "nccl" else "cpu"
