"""Messages against all paths, and their product with the evidence against the marginals."""

import pytest
import torch

from pyro_chmm import chain
from tests.chain.cases import INF, MANY, RAGGED, close, joint, make_case


@pytest.mark.parametrize("logits", [True, False])
@pytest.mark.parametrize("forbid", [False, True])
def test_the_parts_multiply_to_the_marginals(logits: bool, forbid: bool) -> None:
    case = make_case(MANY, 5, forbid=forbid)
    case = case if logits else case.probabilities()
    left, right = chain.messages(*case.inputs, logits=logits)
    product = (left + case.log_emission + right).softmax(-1).nan_to_num(0.0)
    found = chain.marginals(*case.inputs, logits=logits, backend="reference")
    assert close(product, found.state, 1e-10)
    for document, span in enumerate(case.spans):
        impossible = found.log_evidence[document] == -INF
        assert bool((left[span] == -INF).all()) is bool(impossible) or span.stop == span.start


def test_each_message_equals_all_paths_of_its_side() -> None:
    case = make_case(RAGGED, 3)
    left, right = chain.messages(*case.inputs)
    for span in case.spans:
        paths, p = joint(case, span) if span.stop > span.start else (torch.zeros(0, 1), torch.zeros(0))
        for t in range(span.stop - span.start):
            before = make_case(RAGGED, 3)
            before.log_emission[span.start + t : span.stop] = 0.0  # only what was said before counts
            path, weight = joint(before, span)
            expected = torch.zeros(3, dtype=torch.float64).index_add_(0, path[:, t + 1], weight)
            assert close(left[span][t].exp(), expected / expected.sum(), 1e-10)
            posterior = torch.zeros(3, dtype=torch.float64).index_add_(0, paths[:, t + 1], p)
            after = posterior / (left[span][t] + case.log_emission[span][t]).exp()
            assert close(right[span][t].exp(), after / after.sum(), 1e-10)


def test_the_last_token_hears_nothing_from_the_right() -> None:
    case = make_case(RAGGED, 3)
    _, right = chain.messages(*case.inputs)
    last = [span.stop - 1 for span in case.spans if span.stop > span.start]
    assert close(right[last].exp(), torch.full((len(last), 3), 1 / 3, dtype=torch.float64), 1e-12)


def test_a_corpus_without_tokens_has_no_messages() -> None:
    case = make_case((0, 0), 3)
    left, right = chain.messages(*case.inputs)
    assert left.shape == right.shape == (0, 3)
