"""Forward and backward of the log evidence, the ways people do it: each takes a batch and returns the loss and its gradients.

They all start from the same transition logits and log evidence of the same documents and end with the gradients to both. Ours takes
the packed tokens; the others take them padded to (B, T), where a padded step has log evidence 0 and changes nothing.
"""

from dataclasses import dataclass
from typing import ClassVar

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import TraceEnum_ELBO
from pyro.ops.indexing import Vindex
from torch import Tensor

from pyro_chmm import chain

Result = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Batch:
    """Documents of random lengths up to T (or all T long), packed and padded."""

    initial: Tensor
    transition: Tensor
    log_emission: Tensor
    offsets: Tensor
    padded_transition: Tensor
    padded_log_emission: Tensor

    @property
    def shape(self) -> tuple[int, int, int]:
        documents, steps, labels = self.padded_log_emission.shape
        return documents, steps, labels

    def double(self) -> "Batch":
        parts = (self.transition, self.log_emission, self.padded_transition, self.padded_log_emission)
        first, second, third, fourth = (part.double() for part in parts)
        return Batch(self.initial.double(), first, second, self.offsets, third, fourth)


def make_batch(documents: int, steps: int, labels: int, *, ragged: bool, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.full((documents,), steps)
    if ragged:
        lengths = torch.randint(1, steps + 1, (documents,), generator=generator)
        lengths[0] = steps
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    padded_transition = torch.randn(documents, steps, labels, labels, generator=generator)
    padded_log_emission = 2 * torch.randn(documents, steps, labels, generator=generator)
    inside = torch.arange(steps) < lengths[:, None]
    padded_log_emission[~inside] = 0.0
    return Batch(
        torch.full((labels,), 1 / labels),
        padded_transition[inside],
        padded_log_emission[inside],
        offsets,
        padded_transition,
        padded_log_emission,
    )


def ours(batch: Batch) -> Result:
    transition, log_emission = _leaves(batch.transition, batch.log_emission)
    loss = -chain.log_evidence(batch.initial, transition, log_emission, batch.offsets).mean()
    return loss.detach(), *torch.autograd.grad(loss, (transition, log_emission))


def enumeration(batch: Batch) -> Result:
    """TraceEnum_ELBO over a pyro.markov loop, the transitions taken with ``unbind``."""
    transition, log_emission = _leaves(batch.padded_transition, batch.padded_log_emission)
    documents, steps, _ = batch.shape
    index = torch.arange(documents)

    def model() -> None:
        matrices, evidence = transition.unbind(1), log_emission.unbind(1)
        with pyro.plate("documents", documents):
            z = pyro.sample("z_0", dist.Categorical(batch.initial), infer={"enumerate": "parallel"})
            for t in pyro.markov(range(steps)):
                row = dist.Categorical(logits=Vindex(matrices[t])[index, z])
                z = pyro.sample(f"z_{t + 1}", row, infer={"enumerate": "parallel"})
                pyro.factor(f"x_{t}", Vindex(evidence[t])[index, z])

    loss = TraceEnum_ELBO(max_plate_nesting=1).differentiable_loss(model, lambda: None) / documents
    return loss.detach(), *torch.autograd.grad(loss, (transition, log_emission))


class _Evidence(dist.TorchDistribution):  # type: ignore[misc]
    """An observation whose log probability is given."""

    arg_constraints: ClassVar[dict[str, object]] = {}
    support = dist.constraints.real

    def __init__(self, log_emission: Tensor) -> None:
        self.log_emission = log_emission
        super().__init__(log_emission.shape, validate_args=False)

    def expand(self, batch_shape: torch.Size, _instance: object = None) -> "_Evidence":
        return _Evidence(self.log_emission.expand(batch_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        return self.log_emission


def discrete_hmm(batch: Batch) -> Result:
    """``dist.DiscreteHMM``: a parallel scan over matrix products."""
    transition, log_emission = _leaves(batch.padded_transition, batch.padded_log_emission)
    documents, steps, labels = batch.shape
    initial = batch.initial.log().expand(documents, labels)
    hmm = dist.DiscreteHMM(initial, transition, _Evidence(log_emission), validate_args=False)
    loss = -hmm.log_prob(log_emission.new_zeros(documents, steps)).mean()
    return loss.detach(), *torch.autograd.grad(loss, (transition, log_emission))


def log_space_loop(batch: Batch) -> Result:
    """logsumexp step by step, with autograd."""
    transition, log_emission = _leaves(batch.padded_transition, batch.padded_log_emission)
    alpha = batch.initial.log().expand(len(transition), -1)
    for log_p, evidence in zip(transition.log_softmax(-1).unbind(1), log_emission.unbind(1), strict=True):
        alpha = torch.logsumexp(alpha[:, :, None] + log_p, 1) + evidence
    loss = -alpha.logsumexp(-1).mean()
    return loss.detach(), *torch.autograd.grad(loss, (transition, log_emission))


@torch.no_grad()
def analytic_loop(batch: Batch) -> Result:
    """Scaled forward-backward in eager torch with the gradients written out: no tape, all that is not sequential done at once."""
    transition, log_emission = batch.padded_transition, batch.padded_log_emission
    p = transition.softmax(-1)
    top = log_emission.amax(-1, keepdim=True)
    emission = (log_emission - top).exp()
    documents, steps, labels = batch.shape
    matrices, emissions = p.unbind(1), emission.unbind(1)
    alphas = [batch.initial.expand(documents, labels)]
    scales = []
    for t in range(steps):
        alpha = torch.bmm(alphas[-1][:, None, :], matrices[t])[:, 0] * emissions[t]
        scale = alpha.sum(-1, keepdim=True)
        alphas.append(alpha / scale)
        scales.append(scale)
    beta = torch.ones_like(alphas[0])
    weighed = [beta] * steps
    betas = [beta] * (steps + 1)
    for t in reversed(range(steps)):
        weighed[t] = emissions[t] * betas[t + 1] / scales[t]
        betas[t] = torch.bmm(matrices[t], weighed[t][:, :, None])[:, :, 0]
    evidence = torch.stack(scales, 1).double().log().sum((1, 2)) + top.double().sum((1, 2))
    before, after = torch.stack(alphas[:-1], 1), torch.stack(weighed, 1)
    centred = after[:, :, None, :] - torch.stack(betas[:-1], 1)[..., None]
    to_transition = p.mul_(before[..., None]).mul_(centred).mul_(-1 / documents)
    to_emission = (torch.stack(alphas[1:], 1) * torch.stack(betas[1:], 1)).mul_(-1 / documents)
    return -evidence.mean(), to_transition, to_emission


def copy_twice(batch: Batch) -> Result:
    """What any method has to do at least: read the transitions and write a tensor of their size. Twice."""
    return batch.log_emission, batch.transition.clone(), batch.transition.clone()


def _leaves(transition: Tensor, log_emission: Tensor) -> tuple[Tensor, Tensor]:
    return transition.detach().requires_grad_(), log_emission.detach().requires_grad_()
