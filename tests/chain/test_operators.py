"""The custom ops as citizens of PyTorch: opcheck, gradcheck, second backwards, compilation; and the same bits every time."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pyro_chmm import chain
from pyro_chmm.chain.emission import chain_emission_evidence
from pyro_chmm.chain.operators import chain_log_evidence, chain_objective
from pyro_chmm.errors import ChainError
from tests.chain.cases import MANY, RAGGED, Case, cotangent, make_case

BACKENDS = ("reference", "cpu")


@pytest.mark.parametrize("backend", BACKENDS)
def test_opcheck(backend: str) -> None:
    case = make_case(RAGGED, 3).requiring_grad()
    initial, transition, log_emission, offsets = case.inputs
    torch.library.opcheck(chain_log_evidence, (*case.inputs, True, backend, True, True))
    constant = (initial, transition.detach(), log_emission, offsets)
    torch.library.opcheck(chain_log_evidence, (*constant, True, backend, True, False))
    constants = [part.detach() for part in case.inputs]
    torch.library.opcheck(chain_log_evidence, (*constants, True, backend, False, False))
    torch.library.opcheck(chain_objective, (*case.inputs, True, backend, True, True, 1.0, -0.5))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("weighted", [True, False])
def test_opcheck_emission(backend: str, weighted: bool) -> None:
    log_emission, weak_labels, weight, offsets = _emission()
    inputs = (log_emission, weak_labels, weight if weighted else None, offsets, backend)
    torch.library.opcheck(chain_emission_evidence, inputs)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("logits", [True, False])
@pytest.mark.parametrize("lengths", [(2, 0, 3), (1,) * 16])
def test_gradcheck(backend: str, logits: bool, lengths: tuple[int, ...]) -> None:
    case = make_case(lengths, 2)
    case = (case if logits else case.probabilities()).requiring_grad()

    def check(function: Callable[..., Tensor]) -> None:
        assert torch.autograd.gradcheck(
            lambda *leaves: function(*leaves, case.offsets, logits=logits, backend=backend), case.inputs[:3]
        )

    check(chain.log_evidence)
    check(chain.entropy)
    check(lambda *inputs, **options: chain.sharpened_evidence(*inputs, 0.3, **options).value)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradcheck_emission(backend: str) -> None:
    log_emission, weak_labels, weight, offsets = _emission()
    assert torch.autograd.gradcheck(
        lambda *leaves: chain.emission_evidence(leaves[0], weak_labels, leaves[1], offsets, backend=backend),
        (log_emission, weight),
    )


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_one_input_alone_gets_its_gradient(wanted: int) -> None:
    case = make_case(MANY, 3).requiring_grad()
    expected = torch.autograd.grad(chain.log_evidence(*case.inputs).sum(), case.inputs[wanted])[0]
    inputs = [part.detach() for part in case.inputs]
    inputs[wanted].requires_grad_()
    chain.log_evidence(*inputs).sum().backward()
    assert torch.equal(inputs[wanted].grad, expected)


def test_no_gradient_is_computed_without_need() -> None:
    case = make_case(RAGGED, 3)
    assert not chain.log_evidence(*case.inputs).requires_grad
    with torch.no_grad():
        assert not chain.log_evidence(*case.requiring_grad().inputs).requires_grad


def test_a_graph_can_be_walked_twice() -> None:
    case = make_case(MANY, 3).requiring_grad()
    evidence = chain.log_evidence(*case.inputs)
    weights = cotangent(case)
    first = torch.autograd.grad((evidence * weights).sum(), case.inputs[:3], retain_graph=True)
    kept = [part.clone() for part in first]
    second = torch.autograd.grad(evidence.sum(), case.inputs[:3], retain_graph=True)
    third = torch.autograd.grad((evidence * weights).sum(), case.inputs[:3])
    for before, unweighted, again, still in zip(kept, second, third, first, strict=True):
        assert torch.equal(before, again)
        assert torch.equal(before, still)
        assert not torch.equal(before, unweighted)


def test_second_derivatives_are_refused() -> None:
    case = make_case(RAGGED, 3).requiring_grad()
    evidence = chain.log_evidence(*case.inputs)
    first = torch.autograd.grad(evidence.sum(), case.transition, create_graph=True)[0]
    with pytest.raises(ChainError, match="first derivatives"):
        torch.autograd.grad(first.square().sum(), case.transition)
    log_emission, weak_labels, weight, offsets = _emission()
    out = chain.emission_evidence(log_emission, weak_labels, weight, offsets)
    first = torch.autograd.grad(out.sum(), log_emission, create_graph=True)[0]
    with pytest.raises(ChainError, match="first derivatives"):
        torch.autograd.grad(first.square().sum(), weight)


def test_a_loss_that_leaves_an_output_out() -> None:
    case = make_case(RAGGED, 3).requiring_grad()
    log_emission = case.log_emission
    evidence = chain.log_evidence(*case.inputs)
    (evidence.detach() * log_emission.sum()).sum().backward()
    assert case.transition.grad is None


def test_compiled_graph_gives_the_same() -> None:
    case = make_case(MANY, 3).requiring_grad()

    def loss(initial: Tensor, transition: Tensor, log_emission: Tensor) -> Tensor:
        evidence = chain.log_evidence(initial, transition, log_emission, case.offsets, backend="cpu")
        return evidence.sum() + chain.entropy(initial, transition, log_emission, case.offsets, backend="cpu").sum()

    expected = torch.autograd.grad(loss(*case.inputs[:3]), case.inputs[:3])
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    actual = torch.autograd.grad(compiled(*case.inputs[:3]), case.inputs[:3])
    for got, want in zip(actual, expected, strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize(("lengths", "labels"), [(MANY * 4, 3), (MANY * 4, 20), ((2000, 1, 3000), 3)])
def test_same_bits_from_run_to_run_and_for_any_number_of_threads(lengths: tuple[int, ...], labels: int) -> None:
    case = make_case(lengths, labels).to(torch.float32).requiring_grad()
    weights = cotangent(case)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 1, 3):
            torch.set_num_threads(count)
            results.append(_everything(case, weights))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        for first, again in zip(results[0], other, strict=True):
            assert torch.equal(first, again)


def _everything(case: Case, weights: Tensor) -> list[Tensor]:
    evidence = chain.log_evidence(*case.inputs)
    entropy = chain.entropy(*case.inputs)
    total = ((evidence + entropy) * weights).sum()
    draws = chain.sample(*case.inputs, draws=3, generator=torch.Generator().manual_seed(0))
    path = chain.viterbi(*case.inputs)
    return [evidence.detach(), entropy.detach(), draws, *path, *torch.autograd.grad(total, case.inputs[:3])]


def _emission() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    log_emission = torch.randn(3, 2, 3, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    weak_labels = torch.randint(-1, 3, (5, 2), generator=generator).to(torch.int16)
    weight = torch.rand(5, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    return log_emission, weak_labels, weight, torch.tensor([0, 3, 3, 5])
