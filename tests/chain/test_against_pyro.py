"""The same chain as Pyro computes it: TraceEnum_ELBO over a pyro.markov loop, and dist.DiscreteHMM."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import TraceEnum_ELBO
from torch import Tensor

from pyro_chmm import chain
from tests.chain.cases import Case, close, cotangent, gradients, make_case


def enumerated(case: Case, span: slice) -> Tensor:
    """-loss of TraceEnum_ELBO on one document, with the story told one sample statement a token."""

    def model() -> None:
        z = pyro.sample("z_0", dist.Categorical(case.initial), infer={"enumerate": "parallel"})
        transitions = case.transition[span].unbind(0)
        for t in pyro.markov(range(span.stop - span.start)):
            logits = transitions[t][z]
            z = pyro.sample(f"z_{t + 1}", dist.Categorical(logits=logits), infer={"enumerate": "parallel"})
            pyro.factor(f"x_{t}", case.log_emission[span][t][z])

    loss: Tensor = TraceEnum_ELBO(max_plate_nesting=0).differentiable_loss(model, lambda: None)
    return -loss


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("labels", [2, 5])
def test_trace_enum_elbo(backend: str, labels: int) -> None:
    case = make_case((32, 1, 7), labels).requiring_grad()
    expected = torch.stack([enumerated(case, span) for span in case.spans])
    actual = chain.log_evidence(*case.inputs, backend=backend)
    assert close(actual, expected, 1e-10)
    weights = cotangent(case)
    pairs = zip(gradients(actual, case, weights)[1:], gradients(expected, case, weights)[1:], strict=True)
    for got, want in pairs:
        assert close(got, want, 1e-9)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("labels", [1, 4])
def test_discrete_hmm(backend: str, labels: int) -> None:
    """Like our chain it takes a step before the first observation. Gradients at the means of normal observations."""
    case = make_case((50, 1, 20), labels)
    generator = torch.Generator().manual_seed(0)
    tokens = len(case.log_emission)
    means = torch.randn(tokens, labels, generator=generator, dtype=torch.float64).requires_grad_()
    transition = case.transition.requires_grad_()
    x = torch.randn(tokens, generator=generator, dtype=torch.float64)
    expected = torch.stack(
        [
            dist.DiscreteHMM(case.initial.log().expand(1, labels), transition[span], dist.Normal(means[span], 1.0)).log_prob(
                x[span]
            )[0]
            for span in case.spans
        ]
    )
    log_emission = dist.Normal(means, 1.0).log_prob(x[:, None])
    actual = chain.log_evidence(case.initial, transition, log_emission, case.offsets, backend=backend)
    assert close(actual, expected, 1e-10)
    weights = cotangent(case)
    pairs = zip(
        torch.autograd.grad((actual * weights).sum(), (transition, means)),
        torch.autograd.grad((expected * weights).sum(), (transition, means)),
        strict=True,
    )
    for got, want in pairs:
        assert close(got, want, 1e-9)


def test_gradients_at_the_parameters_of_a_network() -> None:
    """Transitions and emissions from a linear layer, all documents at once: one loss, one gradient, as in training."""
    case = make_case((9, 4, 12), 3).to(torch.float32)
    torch.manual_seed(0)
    vectors = torch.randn(25, 6)
    grads = []
    for method in ("chain", "enumeration"):
        torch.manual_seed(1)
        layer = torch.nn.Linear(6, 12)
        out = layer(vectors)
        inner = Case(case.initial, out[:, :9].reshape(-1, 3, 3), out[:, 9:], case.offsets)
        if method == "chain":
            loss = -chain.log_evidence(*inner.inputs).mean()
        else:
            loss = -torch.stack([enumerated(inner, span) for span in inner.spans]).mean()
        loss.backward()
        grads.append([loss.detach(), layer.weight.grad, layer.bias.grad])
    for got, want in zip(*grads, strict=True):
        assert close(got, want, 1e-5)
