"""The most probable path against all paths, with ties and forbidden transitions."""

import itertools

import pytest
import torch

from pyro_chmm import chain
from tests.chain.cases import INF, MANY, Case, close, joint, make_case

BACKENDS = ("reference", "cpu")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("logits", [True, False])
@pytest.mark.parametrize("forbid", [False, True])
def test_path_equals_the_best_of_all(backend: str, logits: bool, forbid: bool) -> None:
    case = make_case((4, 0, 3, 1, 5), 3, forbid=forbid)
    case = case if logits else case.probabilities()
    result = chain.viterbi(*case.inputs, logits=logits, backend=backend)
    assert result.labels.dtype == torch.int64
    for document, span in enumerate(case.spans):
        if span.stop == span.start:
            assert result.log_score[document] == 0
            continue
        paths, p = joint(case, span)
        assert close(result.log_score[document], p.max().log(), 1e-10)
        if p.max() == 0:
            assert (result.labels[span] == -1).all()
        else:
            assert result.labels[span].tolist() == paths[p.argmax(), 1:].tolist()


@pytest.mark.parametrize("backend", BACKENDS)
def test_ties_go_to_the_lowest_label(backend: str) -> None:
    case = Case(torch.full((4,), 0.25), torch.zeros(5, 4, 4), torch.zeros(5, 4), torch.tensor([0, 3, 5]))
    case.log_emission[1] = torch.tensor([-1.0, 0.0, 0.0, -1.0])
    assert chain.viterbi(*case.inputs, backend=backend).labels.tolist() == [0, 1, 0, 0, 0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_forbidden_transitions_are_never_taken(backend: str) -> None:
    """Labels O, B, I with I after O forbidden, and emissions that want I everywhere."""
    case = make_case((50,) * 4, 3)
    case.transition[:, 0, 2] = -INF
    case.log_emission[:, 2] += 2.0
    initial = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    labels = chain.viterbi(initial, *case.inputs[1:], backend=backend).labels
    assert (labels == 2).any()
    for span in case.spans:
        for before, after in itertools.pairwise([0, *labels[span].tolist()]):
            assert (before, after) != (0, 2)


@pytest.mark.parametrize("labels", [1, 9, 37])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kernel_equals_the_reference(labels: int, dtype: torch.dtype) -> None:
    case = make_case(MANY, labels, forbid=labels > 1).to(dtype)
    expected = chain.viterbi(*case.inputs, backend="reference")
    actual = chain.viterbi(*case.inputs, backend="cpu")
    assert torch.equal(actual.labels, expected.labels)
    assert close(actual.log_score, expected.log_score, 1e-10)


def test_score_is_that_of_the_path() -> None:
    """10,000 tokens: the score equals the sum along the returned path."""
    case = make_case((10_000,), 5)
    result = chain.viterbi(*case.inputs)
    log_p = case.transition.log_softmax(-1)
    before = torch.cat([torch.tensor([0]), result.labels[:-1]])
    steps = torch.arange(10_000)
    behind = log_p[steps[1:], before[1:], result.labels[1:]].sum() + case.log_emission[steps, result.labels].sum()
    start = (case.initial.log() + log_p[0, :, result.labels[0]]).max()
    assert close(result.log_score[0], behind + start, 1e-10)
