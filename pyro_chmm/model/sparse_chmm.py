"""Sparse-CHMM as a Pyro model and its guide.

Both are plain torch modules: a ``PyroModule`` would register its parameters in Pyro's global store, and two models could not train
side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pyro
import torch
from pyro import poutine
from pyro.distributions import (
    Categorical,
    Delta,
    MaskedDistribution,
    TorchDistribution,
    constraints,
)
from pyro.infer import Trace_ELBO, TraceEnum_ELBO
from pyro.ops.indexing import Vindex
from torch import BoolTensor, Tensor, nn

from pyro_chmm import chain
from pyro_chmm.data.batching import PackedBatch
from pyro_chmm.errors import ConfigError
from pyro_chmm.model.coarse_evidence import with_coarse_columns
from pyro_chmm.model.conditionals import Conditionals, sequence_transitions
from pyro_chmm.model.prior_densities import called_prior, dirichlet, document_prior, log_densities
from pyro_chmm.model.priors import Amortized, AnyPrior, EmissionPrior, Hierarchical

#: Draws that estimate the KL divergence to a callable's distribution, where epochs are chosen.
_KL_DRAWS = 8
_Shape = torch.Size | list[int] | tuple[int, ...]


class WeakLabels(TorchDistribution):
    """What K LFs say of a token, given one emission row each.

    :param emission: ``(..., K, L)``, rows that sum to 1.
    :param weight: ``(..., K)``, what each observation counts; 0 where the LF abstained.
    """

    arg_constraints = {"emission": constraints.simplex}  # noqa: RUF012  (torch's convention)
    support = constraints.independent(constraints.integer, 1)

    def __init__(self, emission: Tensor, weight: Tensor) -> None:
        self.emission, self.weight = emission, weight
        batch_shape = torch.broadcast_shapes(emission.shape[:-2], weight.shape[:-1])
        super().__init__(batch_shape, emission.shape[-2:-1], validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        """Weighted log probability of label ids ``(..., K)``, -1 for an abstention."""
        emission, index = torch.broadcast_tensors(self.emission, value.clamp(min=0).unsqueeze(-1))
        log_prob = emission.gather(-1, index[..., :1]).squeeze(-1).log()
        counts = (value >= 0) & (self.weight > 0)
        return torch.where(counts, self.weight * log_prob, torch.zeros_like(log_prob)).sum(-1)

    def sample(self, sample_shape: _Shape = torch.Size()) -> Tensor:  # noqa: B008  (torch's signature)
        """Label ids ``sample_shape + (..., K)``; abstentions are not drawn."""
        shape = self.batch_shape + self.emission.shape[-2:]
        return cast(Tensor, Categorical(self.emission.expand(shape)).sample(sample_shape))


class Unscored(MaskedDistribution):
    """A distribution that is sampled but adds nothing to the objective, because its KL divergence is 0 or taken by a formula.

    Like ``distribution.mask(False)``, in the precision of the sample.
    """

    def __init__(self, distribution: TorchDistribution) -> None:
        super().__init__(distribution, False)  # type: ignore[no-untyped-call]

    def expand(self, batch_shape: _Shape, _instance: object = None) -> Unscored:
        """The same with another batch shape."""
        return Unscored(self.base_dist.expand(batch_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """Zeros of the batch shape."""
        return value.new_zeros(self.batch_shape)


class TiedPrior(TorchDistribution):
    """The guide's distribution once more, in the model: what is sampled there adds nothing to the objective here.

    :param posterior: makes the guide's distribution; called only to sample from the model alone.
    """

    arg_constraints = {}  # noqa: RUF012  (torch's convention)

    def __init__(self, posterior: Callable[[], TorchDistribution], batch_shape: _Shape, event_shape: _Shape) -> None:
        self.posterior = posterior
        super().__init__(torch.Size(batch_shape), torch.Size(event_shape), validate_args=False)

    def sample(self, sample_shape: _Shape = torch.Size()) -> Tensor:  # noqa: B008  (torch's signature)
        """A sample of the guide's distribution."""
        return self.posterior().sample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """Zeros of the batch shape."""
        return value.new_zeros(self.batch_shape)


class SparseCHMMGuide(nn.Module):
    """The guide: emissions from the neural networks of section 3.2.

    ::

        corpus_emission[k, i, :]  ~ Dirichlet(a parameter)                   only under a hierarchical prior
        for each document m, with sentence vector e0:
            emission[k, i, :]  ~ Dirichlet(concentration(e0)[k, i, :])   and the prior's own, where that is a Dirichlet
    """

    def __init__(self, conditionals: Conditionals, prior: AnyPrior, kl_weight: float = 1.0) -> None:
        super().__init__()
        self.conditionals, self.prior, self.kl_weight = conditionals, prior, kl_weight

    def forward(self, batch: PackedBatch) -> None:
        """Sample the site ``emission``, and before it ``corpus_emission`` where the prior has one."""
        corpus_emission = None
        if isinstance(self.prior, Hierarchical):
            corpus_emission = pyro.sample("corpus_emission", Unscored(corpus_posterior(self.conditionals)))
        with pyro.plate("documents", batch.num_documents, dim=-1):
            posterior = self.conditionals.emission_distribution(batch.document_vectors, corpus_emission)
            if has_analytic_kl(self.prior):
                pyro.sample("emission", Unscored(posterior))
            else:
                with poutine.scale(scale=self.kl_weight):
                    pyro.sample("emission", posterior)


class SparseCHMMModel(nn.Module):
    """The model.

    ::

        corpus_emission  ~ prior of the corpus, where the prior is hierarchical     site "corpus_emission"
        for each document m, with sentence vector e0 and token vectors e1..eT:
            emission[k, i, :]  ~ prior                                        site "emission"
            z[0] is O
            for t in 1..T:
                z[t]     ~ Categorical(transition(e_t)[z[t-1], :])           site "z_t", enumerated
                x[t, k]  ~ Categorical(emission[k, z[t], :])                 site "x_t", observed, LFs that did not abstain

    :param prior: on the emission. :class:`Amortized` ties it to the guide (KL 0); an :class:`EmissionPrior` enters by its analytic
        KL divergence; a callable returns a Pyro distribution, whose KL is estimated from the sample.
    :param kl_weight: weight of that KL divergence. The log densities of the conditionals' other priors have weight 1.
    :param marginalize: ``"enum"`` runs the loop under :class:`TraceEnum_ELBO`; ``"fast"`` puts one factor of
        :func:`pyro_chmm.chain.log_evidence` in its place. Both give the same ELBO and gradients.
    """

    def __init__(
        self, conditionals: Conditionals, prior: AnyPrior, kl_weight: float = 1.0, marginalize: str = "fast"
    ) -> None:
        super().__init__()
        if marginalize not in ("fast", "enum"):
            raise ConfigError(f"marginalize is {marginalize!r}, expected fast or enum.")
        self.conditionals, self.prior, self.kl_weight = conditionals, prior, kl_weight
        self.marginalize = marginalize
        self.terms: dict[str, Tensor] = {}  # of the last run, summed over its documents

    def elbo(self) -> Trace_ELBO | TraceEnum_ELBO:
        """The ELBO that suits ``marginalize``; use with ``differentiable_loss(model, guide, batch)``."""
        return TraceEnum_ELBO(max_plate_nesting=1) if self.marginalize == "enum" else Trace_ELBO()

    def forward(self, batch: PackedBatch) -> None:
        """Run the story on a packed batch; leaves the objective's terms beside the evidence in ``terms``."""
        self.terms = {}
        corpus_emission = self.sample_corpus_emission(batch) if isinstance(self.prior, Hierarchical) else None
        with pyro.plate("documents", batch.num_documents, dim=-1):
            emission = self.sample_emission(batch, corpus_emission)
            logits = self.conditionals.transition_logits(batch.token_vectors)
            for name, density in log_densities(self.conditionals, batch, logits).items():
                self.add_term("prior", -density)
                pyro.factor(name, density)
            if self.marginalize == "enum":
                self.enumerate_chain(batch, emission, logits)
                self.sharpen(batch, emission, logits)
            else:
                self.marginalize_chain(batch, emission, logits)

    def add_term(self, name: str, values: Tensor) -> None:
        """Add to one of the terms."""
        self.terms[name] = self.terms.get(name, torch.zeros((), device=values.device)) + values.detach().sum()

    def sample_corpus_emission(self, batch: PackedBatch) -> Tensor:
        """Site ``corpus_emission`` ``(K, L, L)``, and a batch's share of its KL divergence."""
        assert isinstance(self.prior, Hierarchical)
        conditionals = self.conditionals
        prior = dirichlet(self.prior.concentration(conditionals.observed).to(batch.document_vectors))
        emission = pyro.sample("corpus_emission", Unscored(prior))
        share = batch.num_documents / max(int(conditionals.training_size[0]), batch.num_documents)
        kl = share * emission_kl(corpus_posterior(conditionals), prior)
        self.add_term("kl", kl)
        pyro.factor("corpus_emission_kl", -self.kl_weight * kl)
        return emission

    def sample_emission(self, batch: PackedBatch, corpus_emission: Tensor | None = None) -> Tensor:
        """Site ``emission`` ``(B, K, L, L)``, and its KL divergence where a formula exists."""
        vectors = batch.document_vectors
        distribution = self.conditionals.emission_distribution
        if isinstance(self.prior, Amortized):
            shape = self.conditionals.wxor.shape
            return pyro.sample("emission", TiedPrior(lambda: distribution(vectors), vectors.shape[:1], shape))
        posterior = distribution(vectors, corpus_emission)
        if isinstance(self.prior, EmissionPrior):
            prior = document_prior(self.prior, self.conditionals, batch.num_documents, corpus_emission)
            emission = pyro.sample("emission", Unscored(prior))
            kl = emission_kl(posterior, prior)
            self.add_term("kl", kl)
            pyro.factor("emission_kl", -self.kl_weight * kl)
            return emission
        prior = called_prior("emission_prior", self.prior, vectors, tuple(posterior.event_shape))
        with poutine.scale(scale=self.kl_weight):
            return pyro.sample("emission", prior)

    def marginalize_chain(self, batch: PackedBatch, emission: Tensor, logits: Tensor) -> None:
        """All of z and x as one factor: the log evidence of each document, sharpened if asked for."""
        conditionals, config = self.conditionals, self.conditionals.config
        transitions, are_logits = conditionals.chain_transitions(logits)
        evidence = conditionals.log_emission_evidence(emission, batch)
        inputs = conditionals.initial.to(logits), transitions, evidence, batch.offsets
        if config.posterior_sharpening == 0:
            objective = chain.log_evidence(*inputs, logits=are_logits, backend=config.backend)
        else:
            # one pass for both, with the gradient of their sum
            sharpened = chain.sharpened_evidence(
                *inputs, config.posterior_sharpening, logits=are_logits, backend=config.backend
            )
            objective, self.terms["entropy"] = sharpened.value, sharpened.entropy.sum()
        objective = objective - conditionals.log_partition(transitions, batch.offsets)
        pyro.factor("weak_labels", objective.to(logits.dtype))

    def enumerate_chain(self, batch: PackedBatch, emission: Tensor, logits: Tensor) -> None:
        """The loop over tokens as the story tells it."""
        device = batch.offsets.device
        documents = torch.arange(batch.num_documents, device=device)
        longest = int(batch.lengths.max())
        inside = torch.arange(longest, device=device) < batch.lengths.unsqueeze(-1)  # (B, T)
        position = (batch.offsets[:-1].unsqueeze(-1) + torch.arange(longest, device=device)).clamp(
            max=len(logits) - 1
        )
        if self.conditionals.config.transition_normalization == "sequence":
            transitions = sequence_transitions(logits[position], inside)  # T times (B, L, L)
        else:
            # unbind, not [:, t]: the backward of each select would be a full-size tensor of zeros
            transitions = list(torch.softmax(logits, dim=-1)[position].unbind(1))
        emission, weak_labels, weights = with_coarse_columns(emission, batch)
        labels, weight = weak_labels[position].unbind(1), weights[position].unbind(1)
        z = torch.zeros(batch.num_documents, dtype=torch.long, device=device)
        for t in pyro.markov(range(longest)):
            with poutine.mask(mask=cast(BoolTensor, inside[:, t])):
                row = Vindex(transitions[t])[documents, z, :]  # (..., B, L)
                z = pyro.sample(f"z_{t + 1}", Categorical(row), infer={"enumerate": "parallel"})
                rows = Vindex(emission)[documents, :, z, :]  # (..., B, K, L)
                pyro.sample(f"x_{t + 1}", WeakLabels(rows, weight[t]), obs=labels[t])

    def sharpen(self, batch: PackedBatch, emission: Tensor, logits: Tensor) -> None:
        """Take a multiple of the posterior entropy of z off the objective (1 is the authors' implicit objective)."""
        config = self.conditionals.config
        if config.posterior_sharpening == 0:
            return
        transitions, are_logits = self.conditionals.chain_transitions(logits)
        evidence = self.conditionals.log_emission_evidence(emission, batch)
        inputs = self.conditionals.initial.to(logits), transitions, evidence, batch.offsets
        entropy = chain.entropy(*inputs, logits=are_logits, backend=config.backend)
        self.terms["entropy"] = entropy.detach().sum()
        pyro.factor("posterior_sharpening", -config.posterior_sharpening * entropy.to(logits.dtype))


def has_analytic_kl(prior: AnyPrior) -> bool:
    """Whether the KL divergence needs no sample: the prior is tied to the guide, or a Dirichlet of ours."""
    return isinstance(prior, Amortized | EmissionPrior)


def corpus_posterior(conditionals: Conditionals) -> TorchDistribution:
    """The guide's distribution of the corpus's emission, event shape ``(K, L, L)``.

    :raises ConfigError: where the conditionals were built without one.
    """
    corpus_emission = conditionals.networks.corpus_emission
    if corpus_emission is None:
        raise ConfigError("A hierarchical prior needs conditionals that were built with emission_prior='hierarchical:STRENGTH'.")
    return dirichlet(corpus_emission())


def emission_kl(posterior: TorchDistribution, prior: TorchDistribution) -> Tensor:
    """KL divergence of guide and prior, of the batch shape; where emissions are not sampled, minus the log density of the mean."""
    if isinstance(posterior, Delta):
        return -prior.log_prob(posterior.v)
    rows = torch.distributions.kl_divergence(posterior.base_dist, prior.base_dist)
    return rows.sum(dim=(-1, -2))


@torch.no_grad()
def prior_objective(conditionals: Conditionals, prior: AnyPrior, batch: PackedBatch) -> Tensor:
    """What the priors add to the objective of a batch, ``()``: log densities less weighted KL divergences; 0 where there are none.

    No sample is taken where a formula exists; a hierarchical prior's corpus emission is the guide's mean.
    """
    logits = conditionals.transition_logits(batch.token_vectors)
    densities = sum((value.sum() for value in log_densities(conditionals, batch, logits).values()), logits.new_zeros(()))
    if isinstance(prior, Amortized):
        return densities
    posterior = conditionals.emission_distribution(batch.document_vectors)
    if not isinstance(prior, EmissionPrior):
        other = called_prior("emission_prior", prior, batch.document_vectors, tuple(posterior.event_shape))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            draws = posterior.sample((_KL_DRAWS,))
        kl = (posterior.log_prob(draws) - other.log_prob(draws)).mean(dim=0)
        return densities - conditionals.config.kl_weight * kl.sum()
    corpus = corpus_posterior(conditionals).mean if isinstance(prior, Hierarchical) else None
    kl = emission_kl(posterior, document_prior(prior, conditionals, batch.num_documents, corpus))
    return densities - conditionals.config.kl_weight * kl.sum()
