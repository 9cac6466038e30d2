"""Entropy and its gradient, a Hessian-vector product, against all paths and against autograd through a plain loop."""

import pytest
import torch
from torch import Tensor

from pyro_chmm import chain
from tests.chain.cases import INF, MANY, RAGGED, Case, brute_entropy, close, cotangent, gradients, make_case

BACKENDS = ("reference", "cpu")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("logits", [True, False])
@pytest.mark.parametrize("labels", [1, 2, 3])
def test_values_and_gradients_equal_all_paths(backend: str, logits: bool, labels: int) -> None:
    case = make_case(RAGGED, labels)
    case = (case if logits else case.probabilities()).requiring_grad()
    weights = cotangent(case)
    expected = brute_entropy(case)
    actual = chain.entropy(*case.inputs, logits=logits, backend=backend)
    assert close(actual, expected, 1e-9)
    pairs = zip(gradients(actual, case, weights), gradients(expected, case, weights), strict=True)
    for got, want in pairs:
        assert close(got, want, 1e-8)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("logits", [True, False])
def test_what_cannot_happen_adds_nothing(backend: str, logits: bool) -> None:
    case = make_case((4, 3, 0, 5), 3, forbid=True)
    case = (case if logits else case.probabilities()).requiring_grad()
    actual = chain.entropy(*case.inputs, logits=logits, backend=backend)
    assert actual[0] == 0
    assert close(actual[1:], brute_entropy(case)[1:], 1e-9)
    actual.sum().backward()
    for part in case.inputs[:3]:
        assert part.grad is not None
        assert part.grad.isfinite().all()
    impossible = case.transition == (-INF if logits else 0)
    assert (case.transition.grad[impossible] == 0).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("labels", [3, 9])
def test_gradient_equals_autograd_through_a_loop(backend: str, labels: int) -> None:
    case = make_case(MANY, labels).requiring_grad()
    weights = cotangent(case)
    expected = torch.stack([_entropy(case, span) for span in case.spans])
    actual = chain.entropy(*case.inputs, backend=backend)
    assert close(actual, expected, 1e-9)
    pairs = zip(gradients(actual, case, weights), gradients(expected, case, weights), strict=True)
    for got, want in pairs:
        assert close(got, want, 1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("labels", [1, 5, 37])
@pytest.mark.parametrize("forbid", [False, True])
@pytest.mark.parametrize("logits", [True, False])
def test_kernel_equals_the_reference(dtype: torch.dtype, labels: int, forbid: bool, logits: bool) -> None:
    case = make_case(MANY, labels, forbid=forbid)
    case = (case if logits else case.probabilities()).to(dtype).requiring_grad()
    weights = cotangent(case)
    options = {"logits": logits}
    expected = chain.sharpened_evidence(*case.inputs, 0.7, backend="reference", **options)
    actual = chain.sharpened_evidence(*case.inputs, 0.7, backend="cpu", **options)
    tolerance = 1e-9 if dtype == torch.float64 else 2e-6
    for got, want in zip(actual, expected, strict=True):
        assert close(got, want, tolerance)
    weights[~expected.value.isfinite()] = 0
    values = [result.value.nan_to_num(neginf=0) for result in (actual, expected)]
    for got, want in zip(*(gradients(value, case, weights) for value in values), strict=True):
        assert got.dtype == dtype
        assert close(got, want, tolerance)


@pytest.mark.parametrize("sharpening", [0.0, 0.4, -1.0])
def test_sharpened_evidence_is_the_sum_of_its_parts(sharpening: float) -> None:
    case = make_case(MANY, 3).requiring_grad()
    result = chain.sharpened_evidence(*case.inputs, sharpening)
    evidence, entropy = chain.log_evidence(*case.inputs), chain.entropy(*case.inputs)
    assert close(result.log_evidence, evidence, 1e-10)
    assert close(result.entropy, entropy, 1e-10)
    assert not result.log_evidence.requires_grad
    assert not result.entropy.requires_grad
    assert close(result.value, evidence - sharpening * entropy, 1e-10)
    weights = cotangent(case)
    parts = gradients(evidence - sharpening * entropy, case, weights)
    for got, want in zip(gradients(result.value, case, weights), parts, strict=True):
        assert close(got, want, 1e-9)


def test_ten_thousand_tokens_in_float32() -> None:
    single = make_case((10_000,), 3).to(torch.float32)
    double = single.to(torch.float64)
    inner = chain.entropy(*single.inputs)
    assert close(inner, chain.entropy(*double.inputs, backend="reference"), 1e-8)
    # H(z | x) per token cannot exceed log L
    assert 0 < float(inner) < 10_001 * torch.log(torch.tensor(3.0))


def test_a_certain_path_has_entropy_zero() -> None:
    case = make_case((6,), 3)
    case.log_emission[:] = -INF
    case.log_emission[:, 1] = 0.0
    case.initial[:] = torch.tensor([0.0, 1.0, 0.0])
    assert abs(float(chain.entropy(*case.inputs))) < 1e-12


def _entropy(case: Case, span: slice) -> Tensor:
    """H of one document as plain torch operations in probabilities: autograd through it gives the gradient's oracle."""
    if span.stop == span.start:
        return case.log_emission.new_zeros(())
    potentials = case.transition[span].softmax(-1) * case.log_emission[span].exp()[:, None, :]
    alpha, total = case.initial, case.log_emission.new_zeros(())
    alphas, scales = [alpha], []
    for potential in potentials:
        alpha = alpha @ potential
        scales.append(alpha.sum())
        total = total + scales[-1].log()
        alpha = alpha / scales[-1]
        alphas.append(alpha)
    beta = torch.ones_like(alpha)
    for potential, before, scale in zip(reversed(potentials), reversed(alphas[:-1]), reversed(scales), strict=True):
        pairs = before[:, None] * potential * beta / scale
        total = total - (pairs * potential.log()).sum()
        beta = (potential * beta).sum(-1) / scale
    return total - (case.initial * beta * case.initial.log()).sum()
