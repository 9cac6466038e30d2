"""Posterior marginals of labels and of pairs against all paths."""

import pytest
import torch

from pyro_chmm import chain
from tests.chain.cases import INF, MANY, RAGGED, close, joint, make_case


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("logits", [True, False])
@pytest.mark.parametrize("forbid", [False, True])
def test_marginals_equal_all_paths(backend: str, logits: bool, forbid: bool) -> None:
    case = make_case((4, 0, 3, 1, 5), 3, forbid=forbid)
    case = case if logits else case.probabilities()
    result = chain.marginals(*case.inputs, logits=logits, backend=backend, transitions=True)
    assert result.transition is not None
    for document, span in enumerate(case.spans):
        if span.stop == span.start:
            assert result.log_evidence[document] == 0
            continue
        paths, p = joint(case, span)
        if p.sum() == 0:
            assert result.log_evidence[document] == -INF
            assert (result.state[span] == 0).all()
            assert (result.transition[span] == 0).all()
            continue
        posterior = p / p.sum()
        assert close(result.log_evidence[document], p.sum().log(), 1e-10)
        for t in range(span.stop - span.start):
            pairs = torch.zeros(3, 3, dtype=torch.float64)
            pairs.index_put_((paths[:, t], paths[:, t + 1]), posterior, accumulate=True)
            assert close(result.transition[span][t], pairs, 1e-10)
            assert close(result.state[span][t], pairs.sum(0), 1e-10)


@pytest.mark.parametrize(("lengths", "labels"), [(MANY, 5), (RAGGED, 33)])
def test_pairs_sum_to_their_labels(lengths: tuple[int, ...], labels: int) -> None:
    case = make_case(lengths, labels).to(torch.float32)
    result = chain.marginals(*case.inputs, transitions=True)
    assert result.transition is not None
    assert close(result.state.sum(-1), torch.ones(len(result.state)), 1e-6)
    assert close(result.transition.sum(1), result.state, 1e-6)
    for span in case.spans:
        assert close(result.transition[span][1:].sum(2), result.state[span][:-1], 1e-6)


def test_pairs_are_left_out_unless_asked_for() -> None:
    case = make_case(RAGGED, 3).requiring_grad()
    result = chain.marginals(*case.inputs)
    assert result.transition is None
    assert not result.state.requires_grad
    assert close(result.log_evidence, chain.log_evidence(*case.inputs), 1e-12)


def test_a_label_that_is_never_reached_may_have_no_way_out() -> None:
    case = make_case(RAGGED, 3)
    case.initial[2] = 0
    case.transition[:, :, 2] = -INF
    case.transition[:, 2, :] = -INF
    for backend in ("reference", "cpu"):
        result = chain.marginals(*case.inputs, transitions=True, backend=backend)
        assert (result.state[:, 2] == 0).all()
        assert close(result.state.sum(-1), torch.ones(len(result.state)), 1e-10)
