"""Chains to test with, and the oracle that needs no dynamic program: all paths, spelled out."""

import itertools
from dataclasses import dataclass, replace

import torch
from torch import Tensor

INF = float("inf")
RAGGED = (3, 0, 1, 4, 6, 1)
"""Few documents, lengths 0 and 1 among them: the row kernel."""
MANY = (5, 1, 0, 7, 3, 12, 9, 4, 4, 6, 8, 1, 1, 1, 20, 3, 2, 11, 0, 2)
"""Enough documents for the kernel that takes eight at once, the last group not full."""


@dataclass(frozen=True)
class Case:
    initial: Tensor
    transition: Tensor
    log_emission: Tensor
    offsets: Tensor
    logits: bool = True

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.initial, self.transition, self.log_emission, self.offsets

    @property
    def spans(self) -> list[slice]:
        return [slice(a, b) for a, b in itertools.pairwise(self.offsets.tolist())]

    def probabilities(self) -> "Case":
        """The same chain with probabilities instead of logits."""
        return replace(self, transition=self.transition.softmax(-1), logits=False)

    def requiring_grad(self) -> "Case":
        leaves = [part.detach().clone().requires_grad_() for part in self.inputs[:3]]
        return Case(leaves[0], leaves[1], leaves[2], self.offsets, self.logits)

    def to(self, dtype: torch.dtype) -> "Case":
        return Case(*(part.to(dtype) for part in self.inputs[:3]), self.offsets, self.logits)


def make_case(lengths: tuple[int, ...], labels: int, *, forbid: bool = False, spread: float = 2.0, seed: int = 0) -> Case:
    """A random chain in float64. With ``forbid`` some transitions, starts and emissions are impossible, one document wholly."""
    generator = torch.Generator().manual_seed(seed)
    tokens = sum(lengths)
    initial = torch.rand(labels, generator=generator, dtype=torch.float64) + 0.1
    transition = torch.randn(tokens, labels, labels, generator=generator, dtype=torch.float64) * spread
    log_emission = torch.randn(tokens, labels, generator=generator, dtype=torch.float64) * spread - 1
    if forbid and labels > 1:
        initial[0] = 0
        transition[torch.rand(transition.shape, generator=generator) < 0.3] = -INF
        transition[:, :, 1] = 0.0
        log_emission[torch.rand(log_emission.shape, generator=generator) < 0.3] = -INF
        log_emission[:, 1] = -3.0
        log_emission[2] = -INF
    offsets = torch.tensor([0, *itertools.accumulate(lengths)])
    return Case(initial / initial.sum(), transition, log_emission, offsets)


def joint(case: Case, span: slice) -> tuple[Tensor, Tensor]:
    """All paths z_0..z_T of one document (paths, T + 1) and their joint probabilities with the evidence (paths,)."""
    labels, steps = len(case.initial), span.stop - span.start
    transition = case.transition[span]
    if case.logits:
        # exp over the sum of exp: softmax would turn a row of -inf to NaN
        transition = transition.exp() / transition.exp().sum(-1, keepdim=True)
    paths = torch.tensor(list(itertools.product(range(labels), repeat=steps + 1)))
    p = case.initial[paths[:, 0]]
    for t in range(steps):
        emission = case.log_emission[span][t].exp()
        p = p * transition[t][paths[:, t], paths[:, t + 1]] * emission[paths[:, t + 1]]
    return paths, p


def brute_log_evidence(case: Case) -> Tensor:
    """(B,), differentiable; 0 for an empty document."""
    zero = case.log_emission.new_zeros(())
    return torch.stack([joint(case, span)[1].sum().log() if span.stop > span.start else zero for span in case.spans])


def brute_entropy(case: Case) -> Tensor:
    """(B,), differentiable where all paths are possible; 0 for an empty document."""
    entropies = []
    for span in case.spans:
        p = joint(case, span)[1]
        q = p / p.sum()
        entropies.append(-torch.xlogy(q, q).sum() if span.stop > span.start else case.log_emission.new_zeros(()))
    return torch.stack(entropies)


def gradients(values: Tensor, case: Case, cotangent: Tensor) -> tuple[Tensor, ...]:
    """Gradients of sum(values * cotangent) to the case's initial, transition and log emission."""
    return torch.autograd.grad((values * cotangent).sum(), case.inputs[:3])


def cotangent(case: Case, seed: int = 1) -> Tensor:
    """A different weight for each document."""
    return torch.rand(len(case.offsets) - 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.5


def close(actual: Tensor, expected: Tensor, tolerance: float) -> bool:
    """Within ``tolerance`` absolutely and relatively, infinities equal, no NaN."""
    return torch.allclose(actual.double(), expected.double(), rtol=tolerance, atol=tolerance)
