"""CHMM and CHMM-FE as estimators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import pyro
import torch
from numpy.typing import NDArray
from pyro.infer import Trace_ELBO
from torch import Tensor, nn

from pyro_chmm import chain
from pyro_chmm.data.batching import OWeights, PackedBatch, PackedCorpus
from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.encoder import EncoderSettings, encode, resolve_encoder
from pyro_chmm.data.labels import Ids
from pyro_chmm.data.scoring import score
from pyro_chmm.errors import DataError
from pyro_chmm.label_models.fitted import FittedModel
from pyro_chmm.label_models.majority_vote import MajorityVote
from pyro_chmm.model.chmm import CHMMModel, CHMMNetworks, no_guide
from pyro_chmm.model.gradient_training import GradientSettings, train
from pyro_chmm.model.hidden_chain import log_emission_evidence
from pyro_chmm.model.initialization import observed_statistics, standardize
from pyro_chmm.model.training import EpochRecord, Selection


class CHMM(FittedModel):
    """Conditional hidden Markov model (Li et al., ACL 2021), trained as :class:`~pyro_chmm.SparseCHMM` is.

    It departs from its source in this: the gradient is that of the evidence itself; biases start at the logarithms of the majority
    vote's statistics instead of pre-training by MSE; an L2 penalty and averaged weights; the O of an LF counts
    ``o_weight_contested`` where another LF fires; decoding admits valid BIO only.

    :param encoder: language model, see :class:`EncoderSettings`; ``layers`` likewise.
    :param o_weight_contested: what an LF's O counts where another LF fires; 1 is plain evidence.
    :param backend: of the chain: auto, reference, cpu or cuda.
    :param device: where to train and predict.
    :param cache_dir: where encoded vectors are kept (default: the user's cache folder).
    :param training: fields of :class:`GradientSettings`.
    :raises ConfigError: for a value that makes no sense.

    After :meth:`fit`: ``history_`` (a record an epoch), ``seconds_per_epoch_``.
    """

    fixed_emission = False

    def __init__(
        self,
        *,
        encoder: str = "minilm",
        layers: tuple[int, ...] | list[int] = (2, 4, 6),
        o_weight_contested: float = 0.1,
        backend: str = "auto",
        device: str = "cpu",
        cache_dir: str | Path | None = None,
        **training: Any,
    ) -> None:
        self.encoder = EncoderSettings(encoder, tuple(layers))
        self.o_weights = OWeights(contested=o_weight_contested)
        self.training = GradientSettings(**training)
        self.backend, self.device, self.cache_dir = backend, device, cache_dir
        self.history_: list[EpochRecord] = []
        self.seconds_per_epoch_: dict[str, float] = {}
        self._networks: CHMMNetworks | None = None

    def fit(self, train: Corpus, valid: Corpus | None = None) -> Self:
        """Learn from weak labels alone.

        :param valid: scored after every epoch, by F1 on its gold labels or, without any, by the evidence of its weak labels.
            Without it, the evidence of the training documents decides.
        :raises DataError: where the two differ in LFs or labels, or train has no token.
        :raises TrainingError: where training cannot go on.
        """
        self.begin_fit(train, valid)
        self.encoder = EncoderSettings(resolve_encoder(self.encoder.name), self.encoder.layers)
        packed = self._pack(train)
        vote = self.observer(train)
        start = observed_statistics(packed, vote)
        networks = self._build(packed.vectors.tokens.shape[1])
        layer = networks.transition.outer
        standardize(layer, packed.vectors.tokens)
        networks.initialize(layer.mean, layer.deviation, start.transition, start.emission)
        self._networks = networks.to(self.device)
        self._train(packed, packed if valid is None else self._pack(valid))
        return self

    def observer(self, corpus: Corpus) -> Ids:
        """(N,) the labels beside which training starts: the majority vote's."""
        return MajorityVote().predict_ids(corpus)

    def _train(self, packed: PackedCorpus, held_out: PackedCorpus) -> None:
        model, elbo = CHMMModel(self.networks(), backend=self.backend), Trace_ELBO()

        def loss(batch: PackedBatch) -> Tensor:
            return cast(Tensor, elbo.differentiable_loss(model, no_guide, batch))

        with pyro.validation_enabled(False):
            self.history_ = train(
                self.networks(),
                loss,
                self.networks().penalized(),
                packed,
                lambda module: self._selection(cast(CHMMNetworks, module), held_out),
                self.training,
                self.device,
            )
        self.seconds_per_epoch_ = {"1": float(np.mean([record.seconds for record in self.history_] or [0.0]))}

    def networks(self) -> CHMMNetworks:
        """What was learned; :class:`ConfigError` before :meth:`fit`."""
        self.labels()
        assert self._networks is not None
        return self._networks

    def _build(self, width: int) -> CHMMNetworks:
        return CHMMNetworks(width, len(self.lf_names), len(self.labels()), self.fixed_emission)

    def _pack(self, corpus: Corpus) -> PackedCorpus:
        vectors = encode(corpus, self.encoder, cache_dir=self.cache_dir, device=self.device)
        return PackedCorpus(corpus, vectors, self.o_weights)

    @torch.no_grad()
    def _selection(self, networks: CHMMNetworks, packed: PackedCorpus) -> Selection:
        """By F1 where gold is there, else by the evidence a token."""
        corpus = packed.corpus
        if corpus.gold is not None:
            found = score(corpus.label_set, corpus.gold, self._decode(networks, packed), corpus.offsets)
            return Selection(found.f1, {"f1": found.f1, "precision": found.precision, "recall": found.recall})
        inputs = (self._chain(networks, batch, constrained=False) for batch in self._batches(packed))
        total = sum(float(chain.log_evidence(*part, logits=False, backend=self.backend).sum()) for part in inputs)
        return Selection(total / max(corpus.num_tokens, 1))

    @torch.no_grad()
    def _decode(self, networks: CHMMNetworks, packed: PackedCorpus) -> Ids:
        paths = (
            chain.viterbi(*self._chain(networks, batch), logits=False, backend=self.backend).labels.cpu()
            for batch in self._batches(packed)
        )
        return torch.cat([torch.zeros(0, dtype=torch.long), *paths]).numpy().astype(np.int16)

    def predict_ids(self, corpus: Corpus) -> Ids:
        """Most probable label sequences (Viterbi), ``(N,)`` ids; valid BIO."""
        return self._decode(self.networks(), self._pack(self.aligned(corpus)))

    @torch.no_grad()
    def predict_proba(self, corpus: Corpus) -> list[NDArray[np.floating]]:
        """Posterior marginals of each document's labels, ``(T, L)`` each; rows sum to 1."""
        packed = self._pack(self.aligned(corpus))
        chains = (self._chain(self.networks(), batch) for batch in self._batches(packed))
        parts = [chain.marginals(*inputs, logits=False, backend=self.backend).state.cpu() for inputs in chains]
        state = torch.cat([torch.zeros(0, len(self.labels())), *parts])
        state = state / state.sum(dim=-1, keepdim=True)
        return [part.numpy() for part in state.split(np.diff(corpus.offsets).tolist())]

    def _batches(self, packed: PackedCorpus) -> Iterator[PackedBatch]:
        """All documents in order; batches small enough for an emission matrix a token."""
        for batch in packed.in_order(max_tokens=4096):
            if len(batch.weak_labels):
                yield batch.to(self.device)

    def _chain(
        self, networks: CHMMNetworks, batch: PackedBatch, constrained: bool = True
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Initial, transition probabilities (those that BIO forbids 0, if constrained), log evidence and offsets."""
        transition = torch.softmax(networks.transition(batch.token_vectors), dim=-1)
        if constrained:
            allowed = torch.from_numpy(self.labels().allowed_transitions.copy()).to(transition.device)
            transition = transition.masked_fill(~allowed, 0.0)
        evidence = log_emission_evidence(networks.log_emission(batch.token_vectors), batch, self.backend)
        initial = torch.eye(transition.shape[-1], dtype=transition.dtype, device=transition.device)[0]
        return initial, transition, evidence, batch.offsets

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments, but those of the machine."""
        return {
            "encoder": self.encoder.name,
            "layers": list(self.encoder.layers),
            "o_weight_contested": self.o_weights.contested,
            "backend": self.backend,
            **asdict(self.training),
        }

    def weights(self) -> dict[str, Tensor]:
        """The networks' tensors."""
        return dict(cast(nn.Module, self.networks()).state_dict())

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        """From :meth:`weights`."""
        self._networks = self._build(weights["transition.outer.mean"].shape[0])
        self._networks.load_state_dict(weights)
        self._networks.to(self.device).eval()


class CHMMFixedEmission(CHMM):
    """CHMM-FE of the paper (section 4.1.2): CHMM whose emissions are the true ones, of the gold training labels, and stay so.

    A reference, not a rival: it sees gold labels. It learns transitions only.
    """

    fixed_emission = True

    def observer(self, corpus: Corpus) -> Ids:
        """(N,) the gold labels; :class:`DataError` if there are none."""
        if corpus.gold is None:
            raise DataError("CHMM-FE takes its emissions from gold training labels, and the training corpus has none.")
        return corpus.gold
