"""Every misuse gets one sentence that says what was found, what was expected and what to do."""

import math

import pytest
import torch
from torch import Tensor

from pyro_chmm import chain
from pyro_chmm.errors import ChainError
from tests.chain.cases import INF, MANY, RAGGED, Case, make_case

BACKENDS = ("reference", "cpu")


@pytest.mark.parametrize(
    ("position", "wrong", "message"),
    [
        (0, torch.ones(4) / 4, r"initial has shape \(4,\); expected \(3,\)"),
        (1, torch.zeros(15, 3), r"transition has shape \(15, 3\); expected \(15, 3, 3\)"),
        (1, torch.zeros(14, 3, 3), r"transition has shape \(14, 3, 3\); expected \(15, 3, 3\)"),
        (2, torch.zeros(15), r"log_emission has shape \(15,\); expected \(N, L\)"),
        (2, torch.zeros(15, 129), "129 labels; the chain works with 1 to 128"),
        (2, torch.zeros(15, 0), "0 labels"),
        (0, torch.ones(3, dtype=torch.int64), "initial has dtype torch.int64; expected float32 or float64"),
        (1, torch.zeros(15, 3, 3, dtype=torch.float16), "transition has dtype torch.float16"),
        (1, torch.zeros(15, 3, 3, dtype=torch.float64), "convert one to the other's dtype"),
        (1, torch.zeros(15, 3, 3, device="meta"), "transition is on meta but log_emission is on cpu"),
        (3, torch.tensor([0, 15], device="meta"), "offsets is on meta"),
        (3, torch.tensor([0.0, 15.0]), r"offsets has shape \(2,\) and dtype torch.float32"),
        (3, torch.tensor([[0, 15]]), r"offsets has shape \(1, 2\)"),
        (3, torch.tensor([], dtype=torch.int64), r"offsets has shape \(0,\)"),
        (3, torch.tensor([0, 14]), "offsets run from 0 to 14; expected from 0 to 15"),
        (3, torch.tensor([1, 15]), "offsets run from 1 to 15"),
        (3, torch.tensor([0, 9, 6, 15]), "document 1 would run from token 9 to 6"),
    ],
)
def test_shapes_dtypes_devices_offsets(position: int, wrong: Tensor, message: str) -> None:
    inputs = list(make_case(RAGGED, 3).to(torch.float32).inputs)
    inputs[position] = wrong
    for function in (chain.log_evidence, chain.marginals, chain.viterbi, chain.entropy, chain.impossible_step):
        with pytest.raises(ChainError, match=message):
            function(*inputs)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lengths", [RAGGED, MANY])
@pytest.mark.parametrize("value", [math.nan, INF])
@pytest.mark.parametrize("name", ["transition", "log_emission"])
def test_what_is_not_a_number_is_found(backend: str, lengths: tuple[int, ...], value: float, name: str) -> None:
    case = make_case(lengths, 3)
    token = int(case.offsets[3])
    getattr(case, name)[token, 1] = value
    _refused(case, backend, rf"{name} holds {value} at document 3, token 0, label \[1")


@pytest.mark.parametrize("backend", BACKENDS)
def test_negative_probabilities(backend: str) -> None:
    case = make_case(RAGGED, 3).probabilities()
    case.transition[2] = -0.25
    _refused(case, backend, "transition holds -0.25 at document 0, token 2, .*expected probabilities")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("value", [math.nan, -0.5])
def test_initial(backend: str, value: float) -> None:
    case = make_case(RAGGED, 3)
    case.initial[1] = value
    _refused(case, backend, "initial must hold finite probabilities")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lengths", [RAGGED, MANY])
def test_a_reached_label_with_no_way_out(backend: str, lengths: tuple[int, ...]) -> None:
    case = make_case(lengths, 3)
    case.transition[1, 2] = -INF
    _refused(case, backend, "all transition logits from label 2 are -inf at document 0, token 1")


def test_sums_are_checked_on_request() -> None:
    case = make_case(RAGGED, 3).probabilities()
    chain.log_evidence(*case.inputs, logits=False, check=True)
    case.transition[4, 1] *= 2
    chain.log_evidence(*case.inputs, logits=False)
    with pytest.raises(ChainError, match=r"transition\[4, 1\] sums to 2; .*pass logits=True"):
        chain.log_evidence(*case.inputs, logits=False, check=True)
    case.initial[0] += 1
    with pytest.raises(ChainError, match="initial sums to 2; expected a sum of 1"):
        chain.viterbi(*case.inputs, check=True)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lengths", [(4, 3, 0, 5), (4, 3, 0, *[2] * 20)])
def test_impossible_steps_are_found(backend: str, lengths: tuple[int, ...]) -> None:
    case = make_case(lengths, 3)
    assert chain.impossible_step(*case.inputs, backend=backend) == []
    case.log_emission[2] = -INF
    case.transition[5, :, 0] = -INF
    case.log_emission[5, 1:] = -INF
    steps = chain.impossible_step(*case.inputs, backend=backend)
    assert steps == [(0, 2), (1, 1)]
    assert steps[1].document == 1
    assert steps[1].token == 1
    case.initial[:] = 0
    first = chain.impossible_step(*case.inputs, backend=backend)
    assert [step.token for step in first] == [0] * (len(lengths) - 1)


def _refused(case: Case, backend: str, message: str) -> None:
    options = {"logits": case.logits, "backend": backend}
    for function in (chain.log_evidence, chain.marginals, chain.viterbi, chain.entropy):
        with pytest.raises(ChainError, match=message):
            function(*case.inputs, **options)
    with pytest.raises(ChainError, match=message):
        chain.sample(*case.inputs, draws=2, **options)
