"""The CUDA backend on a GPU against the float64 reference on the CPU, through the public functions."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pyro_chmm import chain
from pyro_chmm.chain import reference
from pyro_chmm.errors import ChainError
from tests.chain.cuda.cases import INF, Case, as_probabilities, difference, random_case

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible to torch"),
]

LABELS = [1, 3, 5, 9, 16, 17, 33, 37, 64, 65, 128]
RAGGED = [1, 0, 7, 40, 2, 1]
TOLERANCE = {torch.float32: 5e-6, torch.float64: 1e-12}


def on_gpu(case: Case) -> Case:
    return Case(*(part.cuda() for part in case))


def values_and_gradients(case: Case, backend: str, *, logits: bool = True) -> list[Tensor]:
    initial, transition, log_emission = leaves = [part.clone().requires_grad_() for part in case[:3]]
    evidence = chain.log_evidence(
        initial, transition, log_emission, case.offsets, logits=logits, backend=backend
    )
    return [evidence.detach(), *torch.autograd.grad(evidence[evidence.isfinite()].sum(), leaves)]


def check(case: Case, *, logits: bool = True, tolerance: float | None = None) -> None:
    found = values_and_gradients(on_gpu(case), "cuda", logits=logits)
    expected = values_and_gradients(case, "reference", logits=logits)
    assert len(found) == len(expected) == 4
    for one, other in zip(found, expected, strict=True):
        assert difference(one, other) < (tolerance or TOLERANCE[case.initial.dtype])


@pytest.mark.parametrize("labels", LABELS)
def test_logits(labels: int) -> None:
    check(random_case(labels, RAGGED))


@pytest.mark.parametrize("labels", [3, 37])
def test_probabilities(labels: int) -> None:
    check(as_probabilities(random_case(labels, RAGGED)), logits=False)


@pytest.mark.parametrize("labels", [9, 37, 128])
def test_double_precision(labels: int) -> None:
    check(random_case(labels, RAGGED, dtype=torch.float64))


@pytest.mark.parametrize("labels", LABELS)
def test_viterbi(labels: int) -> None:
    case = random_case(labels, RAGGED, dtype=torch.float64)
    found = chain.viterbi(*on_gpu(case), backend="cuda")
    expected = chain.viterbi(*case, backend="reference")
    assert found.labels.cpu().equal(expected.labels)
    assert difference(found.log_score, expected.log_score) < 1e-12


def test_long_document() -> None:
    """T = 10,000 in float32."""
    case = random_case(9, [10_000])
    check(case, tolerance=1e-5)
    found = chain.viterbi(*on_gpu(case), backend="cuda")
    assert difference(found.log_score, chain.viterbi(*case, backend="reference").log_score) < 1e-6


def test_longest_document() -> None:
    """T = 100,000: the marginals of every token still sum to 1."""
    found = chain.marginals(*on_gpu(random_case(5, [100_000])), backend="cuda")
    assert found.log_evidence.isfinite().all()
    assert float((found.state.sum(-1) - 1).abs().max()) < 1e-5


@pytest.mark.parametrize("labels", [5, 33])
def test_impossible_and_nearly_impossible_documents(labels: int) -> None:
    case = random_case(labels, [3, 2, 2])
    case.log_emission[1] = -INF
    case.transition[3:5, 1:, 0] = -INF
    case.transition[3:5, 0, 0] = 0.0
    case.log_emission[3, 0] = -400.0
    case.log_emission[4, 1:] = -INF
    check(case)
    assert chain.impossible_step(*on_gpu(case), backend="cuda") == [(0, 1)]
    assert chain.viterbi(*on_gpu(case), backend="cuda").labels[:3].tolist() == [-1, -1, -1]


def test_not_a_number_is_an_error() -> None:
    case = on_gpu(random_case(5, [3]))
    case.transition[1, 2, 3] = float("nan")
    with pytest.raises(ChainError, match="token 1"):
        chain.log_evidence(*case, backend="cuda")


@pytest.mark.parametrize("labels", [9, 37])
def test_runs_do_not_differ(labels: int) -> None:
    case = on_gpu(random_case(labels, RAGGED * 20))
    first = values_and_gradients(case, "cuda")
    for _ in range(3):
        assert all(map(torch.equal, first, values_and_gradients(case, "cuda")))


def test_the_current_stream_is_used() -> None:
    """On a stream that is kept busy first, a launch on another stream would read the tensors too early."""
    case = on_gpu(random_case(9, RAGGED))
    expected = chain.viterbi(*case, backend="cuda").log_score
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        emission = torch.full_like(case.log_emission, -1.0)
        busy = torch.randn(4096, 4096, device="cuda")
        for _ in range(20):
            busy = (busy @ busy).clamp(-1, 1)
        emission.copy_(case.log_emission + 0 * busy[0, 0])
        found = chain.viterbi(*case._replace(log_emission=emission), backend="cuda").log_score
    stream.synchronize()
    assert found.equal(expected)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("labels", [3, 37])
def test_emission_evidence(labels: int, weighted: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    offsets = torch.tensor([0, *RAGGED]).cumsum(0)
    tokens, lfs = int(offsets[-1]), 11
    logits = torch.randn(len(RAGGED), lfs, labels, labels, generator=generator)
    weak_labels = torch.randint(-1, labels, (tokens, lfs), generator=generator)
    weight = torch.rand(tokens, lfs, generator=generator) if weighted else None

    def run(move: Callable[[Tensor], Tensor], backend: str) -> list[Tensor]:
        leaves = [
            move(part).requires_grad_() for part in (logits.log_softmax(-1), weight) if part is not None
        ]
        result = chain.emission_evidence(
            leaves[0], move(weak_labels), leaves[1] if weighted else None, move(offsets), backend=backend
        )
        return [result.detach(), *torch.autograd.grad(result.exp().sum(), leaves)]

    for found, expected in zip(run(Tensor.cuda, "cuda"), run(Tensor.clone, "reference"), strict=True):
        assert difference(found, expected) < 1e-5


def test_errors_at_500_tokens() -> None:
    """The gradient in float32 against float64, the figure that the issue asks for."""
    case = random_case(9, [500] * 4)
    single = values_and_gradients(on_gpu(case), "cuda")
    double = reference.forward_backward(
        case.initial.double(),
        case.transition.double(),
        case.log_emission.double(),
        case.offsets,
        logits=True,
        gradients=True,
    )
    assert difference(single[2], double.transition) < 5e-6
    assert difference(single[3], double.log_emission) < 5e-6
