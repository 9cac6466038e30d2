"""NVRTC compiles the CUDA sources for GPUs that need not be there."""

import pytest
import torch

from pyro_chmm.chain import cuda, kernel_cache
from pyro_chmm.errors import ChainError
from tests.chain.cuda.requirements import needs_nvrtc

pytestmark = needs_nvrtc

EMISSION = cuda.Program("emission_evidence", (("CHAIN_REAL", "float"),))
ENTRIES = {
    "forward_backward": ["forward_backward"],
    "viterbi": ["viterbi"],
    "emission_evidence": ["emission_evidence", "emission_gradient", "weight_gradient"],
}


def check(program: cuda.Program, architecture: str) -> None:
    cubin = kernel_cache.compile_source(program.source, program.macros, architecture)
    assert cubin.startswith(b"\x7fELF")
    for entry in ENTRIES[program.source]:
        assert f".text.{entry}\0".encode() in cubin


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_every_kernel_compiles(architecture: str) -> None:
    check(cuda.chain_program("forward_backward", 5, torch.float32), architecture)
    check(cuda.chain_program("viterbi", 5, torch.float32), architecture)
    check(EMISSION, architecture)


@pytest.mark.parametrize("labels", [1, 17, 37, 128])
def test_every_layout_compiles(labels: int) -> None:
    check(cuda.chain_program("forward_backward", labels, torch.float32), "sm_90")


def test_double_precision_at_the_most_labels_fits_into_shared_memory() -> None:
    """Viterbi's pairs of number and label need the most."""
    check(cuda.chain_program("viterbi", 128, torch.float64), "sm_80")


def test_a_source_that_does_not_compile_says_why() -> None:
    program = cuda.chain_program("viterbi", 129, torch.float32)
    with pytest.raises(ChainError, match=r"viterbi\.cu for sm_90 [^$]*1 to 128 labels"):
        kernel_cache.compile_source(program.source, program.macros, "sm_90")
