"""Draws from the posterior: their frequencies, their seed, and what cannot be drawn."""

import math

import pytest
import torch

from pyro_chmm import chain
from tests.chain.cases import MANY, make_case

BACKENDS = ("reference", "cpu")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("forbid", [False, True])
def test_frequencies_equal_the_marginals(backend: str, forbid: bool) -> None:
    """Hoeffding: each of fewer than 1,000 frequencies is off by more than ``margin`` with probability 1e-12, so a right sampler
    fails once in a billion seeds."""
    draws = 20_000
    margin = math.sqrt(math.log(2 / 1e-12) / (2 * draws))
    case = make_case((4, 3, 0, 6), 3, forbid=forbid)
    labels = chain.sample(*case.inputs, draws=draws, generator=torch.Generator().manual_seed(0), backend=backend)
    assert labels.shape == (draws, 13)
    expected = chain.marginals(*case.inputs, transitions=True, backend="reference")
    assert expected.transition is not None
    for document, span in enumerate(case.spans):
        drawn = labels[:, span]
        if expected.log_evidence[document].isinf():
            assert (drawn == -1).all()
            continue
        for t in range(span.stop - span.start):
            frequency = torch.bincount(drawn[:, t], minlength=3) / draws
            assert (frequency - expected.state[span][t]).abs().max() < margin
            if t > 0:
                pairs = torch.bincount(3 * drawn[:, t - 1] + drawn[:, t], minlength=9).view(3, 3) / draws
                assert (pairs - expected.transition[span][t]).abs().max() < margin
                assert (pairs[expected.transition[span][t] == 0] == 0).all()


@pytest.mark.parametrize("logits", [True, False])
@pytest.mark.parametrize("labels", [1, 9, 33])
def test_kernel_draws_what_the_reference_draws(labels: int, logits: bool) -> None:
    case = make_case(MANY, labels, forbid=labels > 1)
    case = case if logits else case.probabilities()
    both = [
        chain.sample(
            *case.inputs,
            draws=4,
            generator=torch.Generator().manual_seed(3),
            logits=logits,
            backend=backend,
        )
        for backend in BACKENDS
    ]
    assert torch.equal(*both)


def test_seeds() -> None:
    case = make_case(MANY, 3)

    def draw(seed: int) -> torch.Tensor:
        return chain.sample(*case.inputs, draws=2, generator=torch.Generator().manual_seed(seed))

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    assert chain.sample(*case.inputs, draws=0).shape == (0, len(case.log_emission))
