"""The CUDA backend: the kernels of the ``.cu`` files beside this one, launched on torch's current stream.

The sources are compiled by NVRTC through ``cuda.core`` when a kernel is first needed, for the GPU at hand and
one number of labels (a few seconds), and kept on disk (:mod:`pyro_chmm.chain.kernel_cache`); nothing is
compiled at installation. The signatures are those of :mod:`pyro_chmm.chain.backends`. Importing this module
needs neither CUDA nor the extra ``[cuda]``.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyro_chmm.chain import kernel_cache
from pyro_chmm.chain.backends import ForwardBackward
from pyro_chmm.errors import ChainError

_INSTALL = 'pip install "pyro-chmm[cuda]"'
_REAL = {torch.float32: "float", torch.float64: "double"}
_EMISSION_THREADS = 256


def forward_backward(
    initial: Tensor,
    transition: Tensor,
    log_emission: Tensor,
    offsets: Tensor,
    *,
    logits: bool,
    gradients: bool,
    transitions: bool = True,
) -> ForwardBackward:
    """Log evidence (B,) and its gradients, by scaled forward-backward with one block per document.

    The backward pass runs even where no gradients are wanted: it is what notices that a path which matters
    has underflowed.
    """
    documents, labels = len(offsets) - 1, len(initial)
    evidence = torch.empty(documents, dtype=torch.float64, device=initial.device)
    to_initial = initial.new_empty(documents, labels)
    to_transition = torch.empty_like(transition) if gradients and transitions else None
    to_emission = torch.empty_like(log_emission)
    outputs = (evidence, to_initial, to_transition, to_emission)
    _launch_chain("forward_backward", initial, transition, log_emission, offsets, logits, *outputs)
    if not gradients:
        return ForwardBackward(evidence, None, None, None)
    return ForwardBackward(*outputs)


def viterbi(
    initial: Tensor, transition: Tensor, log_emission: Tensor, offsets: Tensor, *, logits: bool
) -> tuple[Tensor, Tensor]:
    """The most probable z_0..z_T of each document: labels z_1..z_T (N,), log joint score (B,)."""
    labels = torch.empty(len(log_emission), dtype=torch.int64, device=initial.device)
    score = torch.empty(len(offsets) - 1, dtype=torch.float64, device=initial.device)
    pointers = torch.empty(log_emission.shape, dtype=torch.uint8, device=initial.device)
    _launch_chain("viterbi", initial, transition, log_emission, offsets, logits, labels, score, pointers)
    return labels, score


def emission_evidence(
    log_emission: Tensor, weak_labels: Tensor, weight: Tensor | None, offsets: Tensor
) -> Tensor:
    """Eq. (10), (N, L)."""
    documents, lfs, labels = log_emission.shape[:3]
    result = log_emission.new_empty(len(weak_labels), labels)
    arguments = (log_emission, weak_labels, weight, offsets, lfs, labels, result)
    _launch("emission_evidence", documents, _EMISSION_THREADS, _emission_program(log_emission), arguments)
    return result


def emission_evidence_backward(
    cotangent: Tensor,
    log_emission: Tensor,
    weak_labels: Tensor,
    weight: Tensor | None,
    offsets: Tensor,
    *,
    weight_gradient: bool,
) -> tuple[Tensor, Tensor | None]:
    """Gradients of :func:`emission_evidence` to the log emission (B, K, L, L) and, if wanted, of the weight."""
    documents, lfs, labels = log_emission.shape[:3]
    program = _emission_program(log_emission)
    to_emission = torch.empty_like(log_emission)
    arguments = (cotangent, weak_labels, weight, offsets, lfs, labels, to_emission)
    _launch("emission_gradient", documents * lfs, 32 * -(-labels // 32), program, arguments)
    if not weight_gradient:
        return to_emission, None
    to_weight = log_emission.new_empty(weak_labels.shape)
    arguments = (cotangent, log_emission, weak_labels, offsets, lfs, labels, to_weight)
    _launch("weight_gradient", documents, _EMISSION_THREADS, program, arguments)
    return to_emission, to_weight


def check_available() -> None:
    """Raise ChainError that says what is missing, unless kernels can be compiled and a GPU is visible."""
    try:
        from cuda.bindings import nvrtc
        from cuda.core import Program  # noqa: F401

        nvrtc.nvrtcVersion()  # loads the library
    except (ImportError, RuntimeError) as error:
        raise ChainError(
            f"backend 'cuda' needs cuda.core and NVRTC for its kernels and cannot load them ({error}); "
            f"install them with {_INSTALL}, or use backend='cpu'"
        ) from error
    if torch.version.cuda is None:
        raise ChainError(
            f"backend 'cuda' needs a torch that was built for CUDA, and this one is {torch.__version__}; "
            "install torch from a CUDA index, or use backend='cpu'"
        )
    if not torch.cuda.is_available():
        raise ChainError(
            "backend 'cuda' finds no CUDA device; see nvidia-smi and CUDA_VISIBLE_DEVICES, "
            "or use backend='cpu'"
        )


def warps_per_document(labels: int) -> int:
    """Warps in a block: a thread then holds at most 32 numbers of a transition matrix."""
    return 1 if labels <= 16 else 4 if labels <= 32 else 8 if labels <= 64 else 16


class Program(NamedTuple):
    """A ``.cu`` file beside this module and the macros that it is compiled with."""

    source: str
    macros: tuple[tuple[str, str], ...]


def chain_program(name: str, labels: int, dtype: torch.dtype) -> Program:
    """The file of a chain kernel, specialised for a number of labels."""
    numbers = (("CHAIN_LABELS", str(labels)), ("CHAIN_WARPS", str(warps_per_document(labels))))
    return Program(name, (*numbers, ("CHAIN_REAL", _REAL[dtype])))


def _emission_program(log_emission: Tensor) -> Program:
    return Program("emission_evidence", (("CHAIN_REAL", _REAL[log_emission.dtype]),))


def _launch_chain(
    name: str,
    initial: Tensor,
    transition: Tensor,
    log_emission: Tensor,
    offsets: Tensor,
    logits: bool,
    *outputs: Tensor | None,
) -> None:
    labels = len(initial)
    program = chain_program(name, labels, initial.dtype)
    arguments = (initial, transition, log_emission, offsets, int(logits), *outputs)
    _launch(name, len(offsets) - 1, 32 * warps_per_document(labels), program, arguments)


def _launch(
    kernel: str, blocks: int, threads: int, program: Program, arguments: tuple[Tensor | int | None, ...]
) -> None:
    """Queue one kernel on the stream that torch uses for the tensors' device."""
    if blocks == 0:
        return
    from cuda.core import Device, LaunchConfig, launch

    device = next(part.device for part in arguments if isinstance(part, Tensor))
    with torch.cuda.device(device):
        # autograd calls from threads of its own, in which no context may be current yet
        Device(device.index).set_current()
        config = LaunchConfig(grid=blocks, block=threads)
        stream = _Stream(torch.cuda.current_stream(device).cuda_stream)
        launch(stream, config, _kernel(kernel, program, device.index), *map(_argument, arguments))


def _argument(value: Tensor | int | None) -> Any:
    """What ``cuda.core`` passes as the kernel's C++ type; it would pass a Python int as a pointer."""
    if isinstance(value, Tensor):
        return value.data_ptr()
    return 0 if value is None else np.int32(value)


class _Stream(NamedTuple):
    """A torch stream in the form that ``cuda.core`` accepts; not every supported torch offers it itself."""

    handle: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


@cache
def _kernel(name: str, program: Program, device: int) -> Any:
    from cuda.core import ObjectCode

    major, minor = torch.cuda.get_device_capability(device)
    cubin = kernel_cache.load(program.source, program.macros, f"sm_{major}{minor}")
    try:
        return ObjectCode.from_cubin(cubin, name=program.source).get_kernel(name)
    except Exception as error:  # cuda.core has no public name for its errors
        raise ChainError(
            f"the CUDA driver cannot load the kernel {name!r} ({error}); it may be older than the installed "
            "NVRTC: install the nvidia-cuda-nvrtc of the CUDA version that torch was built for "
            f"({torch.version.cuda})"
        ) from error
