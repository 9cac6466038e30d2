"""The very sources that go to the GPU, compiled as C++ and run on the CPU, against the float64 reference."""

from types import ModuleType

import pytest
import torch

from pyro_chmm.chain import reference
from tests.chain.cuda.cases import INF, Case, as_probabilities, difference, random_case
from tests.chain.cuda.requirements import needs_compiler

pytestmark = needs_compiler

LENGTHS = {
    1: [4, 0, 1],
    3: [1, 9, 0, 2],
    5: [0, 1, 6, 2],
    9: [5, 1, 0, 40],
    21: [2, 1],
    33: [1, 0, 3],
    37: [2, 1],
}
TOLERANCE = {torch.float32: 3e-6, torch.float64: 1e-13}


def check_forward_backward(backend: ModuleType, case: Case, *, logits: bool = True) -> None:
    found = backend.forward_backward(*case, logits=logits, gradients=True)
    expected = reference.forward_backward(*case, logits=logits, gradients=True)
    for name in found._fields:
        tensor = getattr(found, name)
        assert tensor.dtype == (torch.float64 if name == "log_evidence" else case.initial.dtype)
        assert difference(tensor, getattr(expected, name)) < TOLERANCE[case.initial.dtype], name


def check_viterbi(backend: ModuleType, case: Case, *, logits: bool = True) -> None:
    labels, score = backend.viterbi(*case, logits=logits)
    expected_labels, expected_score = reference.viterbi(*case, logits=logits)
    assert labels.tolist() == expected_labels.tolist()
    assert difference(score, expected_score) < TOLERANCE[case.initial.dtype]


@pytest.mark.parametrize("labels", LENGTHS)
def test_ragged_documents(backend: ModuleType, labels: int) -> None:
    case = random_case(labels, LENGTHS[labels])
    check_forward_backward(backend, case)
    check_viterbi(backend, case)


@pytest.mark.parametrize("labels", [5, 33])
def test_probabilities(backend: ModuleType, labels: int) -> None:
    case = as_probabilities(random_case(labels, [3, 1, 0]))
    check_forward_backward(backend, case, logits=False)
    check_viterbi(backend, case, logits=False)


def test_double_precision(backend: ModuleType) -> None:
    case = random_case(5, [4, 1, 0], dtype=torch.float64)
    check_forward_backward(backend, case)
    check_viterbi(backend, case)


@pytest.mark.parametrize("labels", [5, 33])
def test_what_only_log_space_can_do(backend: ModuleType, labels: int) -> None:
    """Label 0 is all but ruled out, then certain: factors beyond the range of float32, in one step or two."""
    case = random_case(labels, [2, 4])
    case.transition[:, 1:, 0] = -INF
    case.transition[:, 0, 0] = 0.0
    case.log_emission[0, 0] = -400.0
    case.log_emission[1, 1:] = -INF
    case.log_emission[2:4, 0] = -60.0
    case.log_emission[4:, 1:] = -65.0
    check_forward_backward(backend, case)
    check_viterbi(backend, case)


@pytest.mark.parametrize("labels", [5, 33])
def test_impossible_documents_among_others(backend: ModuleType, labels: int) -> None:
    case = random_case(labels, [1, 2, 1, 1])
    case.log_emission[2] = -INF
    case.transition[3, :, 1] = -INF
    case.log_emission[3, torch.arange(labels) != 1] = -INF
    check_forward_backward(backend, case)
    check_viterbi(backend, case)
    found = backend.forward_backward(*case, logits=True, gradients=True)
    assert found.log_evidence.isinf().tolist() == [False, True, True, False]
    assert not found.transition[1:4].any()
    labels_found, _ = backend.viterbi(*case, logits=True)
    assert (labels_found[1:4] == -1).all()


def _spoil_transition(case: Case) -> None:
    case.transition[1, 2, 1] = float("nan")


def _spoil_emission(case: Case) -> None:
    case.log_emission[1, 2] = INF


def _spoil_row(case: Case) -> None:
    case.transition[1, 2] = -INF


def _spoil_initial(case: Case) -> None:
    case.initial[2] = -0.1


@pytest.mark.parametrize("spoil", [_spoil_transition, _spoil_emission, _spoil_row, _spoil_initial])
@pytest.mark.parametrize("labels", [5, 33])
def test_what_is_no_number_gives_none(backend: ModuleType, labels: int, spoil: object) -> None:
    case = random_case(labels, [2, 1])
    spoil(case)  # type: ignore[operator]
    found = backend.forward_backward(*case, logits=True, gradients=True)
    _, score = backend.viterbi(*case, logits=True)
    expected = reference.forward_backward(*case, logits=True, gradients=True)
    assert found.log_evidence[0].isnan()
    assert score[0].isnan()
    assert found.log_evidence.isnan().tolist() == expected.log_evidence.isnan().tolist()
    assert not found.transition[:2].any()


def test_negative_probabilities_give_no_number(backend: ModuleType) -> None:
    case = as_probabilities(random_case(5, [2]))
    case.transition[1, 0, 1] = -0.5
    assert backend.forward_backward(*case, logits=False, gradients=True).log_evidence.isnan().all()
    assert backend.viterbi(*case, logits=False)[1].isnan().all()


def test_rows_that_no_path_reaches_do_not_matter(backend: ModuleType) -> None:
    case = random_case(5, [3])
    case.log_emission[0, 2] = -INF
    case.transition[1, 2] = torch.tensor([-INF, -INF, -INF, -INF, -INF])
    case.transition[1, 2, 1] = float("nan")
    check_forward_backward(backend, case)
    check_viterbi(backend, case)


def test_only_what_is_asked_for(backend: ModuleType) -> None:
    case = random_case(5, [3, 0, 1])
    expected = backend.forward_backward(*case, logits=True, gradients=True)
    value_only = backend.forward_backward(*case, logits=True, gradients=False)
    assert value_only.log_evidence.equal(expected.log_evidence)
    assert value_only[1:] == (None, None, None)
    no_transitions = backend.forward_backward(*case, logits=True, gradients=True, transitions=False)
    assert no_transitions.transition is None
    assert no_transitions.log_emission.equal(expected.log_emission)
    assert no_transitions.initial.equal(expected.initial)


def test_runs_do_not_differ(backend: ModuleType) -> None:
    case = random_case(33, [2])
    first = backend.forward_backward(*case, logits=True, gradients=True)
    second = backend.forward_backward(*case, logits=True, gradients=True)
    assert all(one.equal(other) for one, other in zip(first, second, strict=True))


def test_viterbi_ties_go_to_the_lowest_label(backend: ModuleType) -> None:
    for labels in (3, 33):
        case = random_case(labels, [2])
        case.transition.fill_(0.0)
        case.log_emission.fill_(-1.0)
        case.log_emission[1, 0] = -2.0
        assert backend.viterbi(*case, logits=True)[0].tolist() == [0, 1]


def test_no_documents(backend: ModuleType) -> None:
    case = random_case(3, [])
    found = backend.forward_backward(*case, logits=True, gradients=True)
    assert [len(part) for part in found] == [0, 0, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_emission_evidence(backend: ModuleType, dtype: torch.dtype, weighted: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    lengths, lfs, labels = [3, 0, 1, 7], 4, 5
    tokens = sum(lengths)
    log_emission = torch.randn(4, lfs, labels, labels, generator=generator, dtype=torch.float64).log_softmax(
        -1
    )
    log_emission[0, 1, :, 2] = -INF
    weak_labels = torch.randint(-1, labels, (tokens, lfs), generator=generator).to(torch.int16)
    weight = torch.rand(tokens, lfs, generator=generator, dtype=torch.float64)
    weight[(weight < 0.3) | (weak_labels == 2)] = 0.0
    weak_labels[:3, 1] = torch.where(weak_labels[:3, 1] == 2, 2 if weighted else -1, weak_labels[:3, 1])
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    inputs = (log_emission.to(dtype), weak_labels, weight.to(dtype) if weighted else None, offsets)
    result = backend.emission_evidence(*inputs)
    assert difference(result, reference.emission_evidence(*inputs)) < TOLERANCE[dtype]
    cotangent = torch.rand(tokens, labels, generator=generator, dtype=torch.float64).to(dtype)
    cotangent[1, 2] = 0.0
    gradients = backend.emission_evidence_backward(cotangent, *inputs, weight_gradient=weighted)
    expected = reference.emission_evidence_backward(cotangent, *inputs, weight_gradient=weighted)
    assert difference(gradients[0], expected[0]) < TOLERANCE[dtype]
    assert (gradients[1] is None) == (expected[1] is None)
    if weighted:
        assert difference(gradients[1], expected[1]) < TOLERANCE[dtype]
