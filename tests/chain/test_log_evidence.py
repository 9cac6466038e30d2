"""The ladder of the log evidence: all paths, the float64 reference, the kernels; ragged, long, forbidden, impossible."""

import pytest
import torch

from pyro_chmm import chain
from pyro_chmm.chain import cpu
from tests.chain.cases import INF, MANY, RAGGED, Case, brute_log_evidence, close, cotangent, gradients, make_case

BACKENDS = ("reference", "cpu")


@pytest.fixture(params=["groups", "rows"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the two forward-backward kernels, whichever would be chosen."""
    name: str = request.param
    monkeypatch.setattr(cpu, "_groups_pay", lambda lengths, labels: name == "groups")
    return name


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("logits", [True, False])
@pytest.mark.parametrize("labels", [1, 2, 3])
def test_values_and_gradients_equal_all_paths(backend: str, logits: bool, labels: int) -> None:
    case = make_case(RAGGED, labels)
    case = (case if logits else case.probabilities()).requiring_grad()
    weights = cotangent(case)
    expected = brute_log_evidence(case)
    actual = chain.log_evidence(*case.inputs, logits=logits, backend=backend)
    assert actual.dtype == torch.float64
    assert close(actual, expected, 1e-10)
    pairs = zip(gradients(actual, case, weights), gradients(expected, case, weights), strict=True)
    for got, want in pairs:
        assert close(got, want, 1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("logits", [True, False])
def test_forbidden_transitions_and_impossible_documents(backend: str, logits: bool) -> None:
    case = make_case((4, 3, 0, 5), 3, forbid=True)
    case = (case if logits else case.probabilities()).requiring_grad()
    expected = brute_log_evidence(case)
    assert expected[0] == -INF
    actual = chain.log_evidence(*case.inputs, logits=logits, backend=backend)
    assert close(actual, expected, 1e-10)
    actual[torch.isfinite(actual)].sum().backward()
    for part in case.inputs[:3]:
        assert part.grad is not None
        assert part.grad.isfinite().all()
    assert (case.transition.grad[:4] == 0).all()
    assert (case.log_emission.grad[:4] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lengths", [RAGGED, MANY])
@pytest.mark.parametrize("labels", [1, 3, 5, 9, 33, 37])
@pytest.mark.parametrize("forbid", [False, True])
def test_kernels_equal_the_reference(kernel: str, dtype: torch.dtype, lengths: tuple[int, ...], labels: int, forbid: bool) -> None:
    for logits in (True, False):
        case = make_case(lengths, labels, forbid=forbid)
        case = (case if logits else case.probabilities()).to(dtype).requiring_grad()
        _compare(case, 1e-10 if dtype == torch.float64 else 5e-6)


def test_most_labels(kernel: str) -> None:
    _compare(make_case((2, 1, 3), 128).to(torch.float32).requiring_grad(), 5e-6)


@pytest.mark.parametrize("documents", [1, 7, 8, 9, 24])
def test_groups_of_eight_filled_and_not(documents: int) -> None:
    lengths = tuple(1 + (7 * m) % 11 for m in range(documents))
    _compare(make_case(lengths, 4).requiring_grad(), 1e-10)


@pytest.mark.parametrize(("documents", "labels"), [(16, 9), (1, 5), (2, 37)])
def test_steps_that_are_not_kept_are_computed_again(kernel: str, documents: int, labels: int) -> None:
    case = make_case((60,) * documents, labels).requiring_grad()
    _compare(case, 1e-9)
    without = chain.marginals(*case.inputs, backend="cpu")
    assert close(without.state, chain.marginals(*case.inputs, backend="reference").state, 1e-9)


@pytest.mark.parametrize("labels", [3, 9, 37])
def test_ten_thousand_tokens_in_float32(kernel: str, labels: int) -> None:
    case = make_case((10_000, 1), labels)
    single = case.to(torch.float32).requiring_grad()
    # the same numbers that float32 sees
    double = single.to(torch.float64).requiring_grad()
    expected = chain.log_evidence(*double.inputs, backend="cpu")
    actual = chain.log_evidence(*single.inputs, backend="cpu")
    assert close(actual, expected, 1e-6)
    weights = torch.ones(2, dtype=torch.float64)
    pairs = zip(gradients(actual, single, weights), gradients(expected, double, weights), strict=True)
    for got, want in pairs:
        assert (got - want).abs().max() < 5e-5


def test_ten_thousand_tokens_against_the_reference() -> None:
    case = make_case((10_000,), 3).requiring_grad()
    _compare(case, 1e-8)


def test_hundred_thousand_tokens() -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = 100_000
    transition = torch.randn(tokens, 2, 2, generator=generator).requires_grad_()
    log_emission = torch.randn(tokens, 2, generator=generator).requires_grad_()
    initial = torch.tensor([1.0, 0.0])
    offsets = torch.tensor([0, tokens])
    evidence = chain.log_evidence(initial, transition, log_emission, offsets)
    evidence.sum().backward()
    double = chain.log_evidence(initial.double(), transition.double(), log_emission.double(), offsets)
    assert close(evidence, double, 1e-7)
    # marginals of each token sum to 1, gradients to logits of each row to 0
    assert (log_emission.grad.sum(-1) - 1).abs().max() < 1e-5
    assert transition.grad.sum(-1).abs().max() < 1e-5


@pytest.mark.parametrize("lengths", [(40,), (40,) * 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_scaled_probabilities_cannot_hold_is_still_exact(kernel: str, lengths: tuple[int, ...], dtype: torch.dtype) -> None:
    """The likelier label cannot be reached, by a margin beyond the range of the dtype; the other one decides."""
    case = make_case(lengths, 3)
    case.transition[:, :, 0] = -INF
    case.log_emission[:, 0] = 900.0
    case.log_emission[::7, 1] -= 800.0
    case.transition[5, :, 2] -= 120.0
    case.log_emission[5, 1] -= 300.0
    _compare(case.to(dtype).requiring_grad(), 1e-8 if dtype == torch.float64 else 1e-4)


@pytest.mark.parametrize("lengths", [RAGGED, MANY])
def test_large_logits(kernel: str, lengths: tuple[int, ...]) -> None:
    case = make_case(lengths, 4, spread=60.0)
    case.transition[::2] += 500.0
    case.transition[1::3] -= 500.0
    _compare(case.requiring_grad(), 1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_empty_documents_alone(backend: str) -> None:
    case = make_case((0, 0), 3).requiring_grad()
    evidence = chain.log_evidence(*case.inputs, backend=backend)
    assert evidence.tolist() == [0.0, 0.0]
    evidence.sum().backward()
    assert (case.initial.grad == 0).all()
    none = make_case((), 3)
    assert chain.log_evidence(*none.inputs, backend=backend).shape == (0,)


def test_inputs_need_not_be_contiguous_and_stay_as_they_are() -> None:
    case = make_case(MANY, 3)
    tokens = len(case.log_emission)
    one_matrix = case.transition[:1].expand(tokens, 3, 3)
    turned = case.log_emission.T.contiguous().T
    before = [part.clone() for part in (case.initial, one_matrix, turned)]
    actual = chain.log_evidence(case.initial, one_matrix, turned, case.offsets)
    assert torch.equal(actual, chain.log_evidence(*before, case.offsets))
    for part, kept in zip((case.initial, one_matrix, turned), before, strict=True):
        assert torch.equal(part, kept)


def test_a_document_does_not_depend_on_its_batch() -> None:
    case = make_case(MANY, 5)
    together = chain.log_evidence(*case.inputs)
    for document, span in enumerate(case.spans):
        offsets = torch.tensor([0, span.stop - span.start])
        alone = chain.log_evidence(case.initial, case.transition[span], case.log_emission[span], offsets)
        assert close(alone[0], together[document], 1e-12)


def _compare(case: Case, tolerance: float) -> None:
    """Values and gradients of the CPU kernels against those of the reference."""
    weights = cotangent(case)
    expected = chain.log_evidence(*case.inputs, logits=case.logits, backend="reference")
    actual = chain.log_evidence(*case.inputs, logits=case.logits, backend="cpu")
    assert close(actual, expected, tolerance)
    weights[~expected.isfinite()] = 0
    expected, actual = expected.nan_to_num(neginf=0), actual.nan_to_num(neginf=0)
    pairs = zip(gradients(actual, case, weights), gradients(expected, case, weights), strict=True)
    for got, want in pairs:
        assert got.dtype == case.log_emission.dtype
        assert close(got, want, tolerance)
