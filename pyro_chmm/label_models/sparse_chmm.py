"""Sparse-CHMM as an estimator: the class that users import."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from pyro_chmm.data.abbreviations import carry_votes
from pyro_chmm.data.batching import PackedCorpus
from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.encoder import encode, resolve_encoder
from pyro_chmm.data.labels import ABSTAIN, LabelSet
from pyro_chmm.data.scoring import Score, score
from pyro_chmm.errors import ConfigError, DataError
from pyro_chmm.label_models import model_files
from pyro_chmm.label_models.base import LabelModel
from pyro_chmm.label_models.corpus_inference import batches, decoded_ids, log_evidence, marginals, mean_over_documents
from pyro_chmm.label_models.explanation import DecodedBatch, Explanation, decode, explain, find_token
from pyro_chmm.label_models.fitting_data import aligned, check_training_data, matching, with_lf
from pyro_chmm.label_models.majority_vote import MajorityVote
from pyro_chmm.label_models.posterior import Posterior
from pyro_chmm.label_models.prediction import CHOICES, chosen
from pyro_chmm.label_models.prior_predictive import PriorPredictive
from pyro_chmm.model.checkpoint import Checkpoints
from pyro_chmm.model.conditionals import Conditionals, encoder_settings, o_weights
from pyro_chmm.model.config import SparseCHMMConfig
from pyro_chmm.model.initialization import initialize, observed_statistics
from pyro_chmm.model.priors import AnyPrior, AnyReliabilityPrior, AnyTransitionPrior, Prior, prior_spec, resolve_prior
from pyro_chmm.model.priors.registry import CALLABLE
from pyro_chmm.model.training import EpochRecord, Selection, Trainer
from pyro_chmm.presets import load_preset

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

#: What a prior's keyword argument takes beside priors and callables.
PriorLike = str | float | dict[str, Any] | None

_VOTE_LF = "majority-vote"


class SparseCHMM(LabelModel):
    """Sparse conditional hidden Markov model (Li et al., KDD 2022) as a label model.

    >>> corpus = pyro_chmm.load_dataset("demo")
    >>> model = pyro_chmm.SparseCHMM(encoder="none").fit(corpus.train, valid=corpus.valid)
    >>> labels = model.predict(corpus.test)

    :param preset: starting values of the hyper-parameters: ``default``, or Table 11's ``paper-laptop`` and so on.
    :param emission_prior: a strength (of ``diagonal``), ``"amortized"`` (the default), ``"NAME:STRENGTH"``, a dict as
        ``config.json`` holds it, a prior of :mod:`pyro_chmm.model.priors`, or a callable from document vectors ``(B, width)`` to a
        Pyro distribution of batch shape ``(B,)`` and event shape ``(K, L, L)``. ``kl_weight`` weighs its KL divergence. The guide
        adds the pseudo-observations of a Dirichlet prior to its own, so a strong one is given back.
    :param transition_prior: likewise; a strength is that of ``sticky``, a callable takes token vectors ``(N, width)`` and returns
        batch shape ``(N,)``, event shape ``(L, L)``.
    :param reliability_prior: likewise; a strength is that of ``beta``, a callable takes document vectors and returns batch shape
        ``(B,)``, event shape ``(K, L)``. Reliabilities are shares over the LFs, which no strength overrules, unless
        ``softmax_reliability`` is off.
    :param device: where to train and predict, e.g. ``"cpu"`` or ``"cuda"``.
    :param cache_dir: where encoded vectors are kept (default: the user's cache folder).
    :param hyperparameters: any field of :class:`SparseCHMMConfig`.
    :raises ConfigError: on an unknown hyper-parameter or a value that makes no sense.

    After :meth:`fit`: ``history_`` (a record an epoch), ``stages_``, ``best_stage_``, ``selection_`` (the score of the best stage),
    ``seconds_per_epoch_`` by stage.
    """

    def __init__(
        self,
        *,
        preset: str = "default",
        emission_prior: PriorLike | AnyPrior = None,
        transition_prior: PriorLike | AnyTransitionPrior = None,
        reliability_prior: PriorLike | AnyReliabilityPrior = None,
        device: str = "cpu",
        cache_dir: str | Path | None = None,
        **hyperparameters: Any,
    ) -> None:
        values = {**load_preset(preset), **{name: v for name, v in hyperparameters.items() if v is not None}}
        self._encoder_chosen = hyperparameters.get("encoder") is not None
        given = {"emission_prior": emission_prior, "transition_prior": transition_prior, "reliability_prior": reliability_prior}
        wanted = {name: values.get(name) if prior is None else prior for name, prior in given.items()}
        priors = {name: resolve_prior(name, prior) for name, prior in wanted.items()}
        values |= {name: CALLABLE if wanted[name] == CALLABLE else prior_spec(prior) for name, prior in priors.items()}
        self.config = SparseCHMMConfig.from_dict(values)
        # what fit() chooses on gold validation labels, unless the user has
        self._chosen = {name: getattr(self.config, name) for name in CHOICES if name not in values}
        self.prior: AnyPrior = priors["emission_prior"]
        self.transition_prior: AnyTransitionPrior = priors["transition_prior"]
        self.reliability_prior: AnyReliabilityPrior = priors["reliability_prior"]
        self.device, self.cache_dir = device, cache_dir
        self.history_: list[EpochRecord] = []
        self._stage_weights: dict[int, dict[str, Tensor]] = {}
        self._conditionals: Conditionals | None = None
        self.label_set: LabelSet | None = None
        self.lf_names: tuple[str, ...] = ()

    # fitting

    def fit(self, train: Corpus, valid: Corpus | None = None, *, checkpoints: Checkpoints | None = None) -> Self:
        """Learn from weak labels alone; ``valid`` chooses epochs.

        :param valid: scored after every epoch, by F1 on its gold labels or by the evidence of its weak labels (``select``). Without
            it, the evidence of the training documents decides.
        :param checkpoints: where to write them, and whether to go on from one, to the same weights as without a break.
        :raises DataError: where the two differ in LFs or labels, or train has no token.
        :raises ConfigError: where F1 is asked for and ``valid`` has no gold labels.
        :raises TrainingError: where training cannot go on.
        """
        self.check_input(train, valid)
        self.label_set, self.lf_names = train.label_set, train.lf_names
        self.config = self.config.updated(self._chosen)  # an earlier fit may have chosen others
        if not self._encoder_chosen:  # a preset's encoder is a wish, the user's a demand
            self.config = replace(self.config, encoder=resolve_encoder(self.config.encoder))
        train = self.observed(train.without_gold())  # its gold labels are never looked at
        valid = None if valid is None else self.observed(valid)
        packed = self._pack(train, training=True)
        packed_valid = None if valid is None else self._pack(valid, training=False)
        self._conditionals = self._build(packed).to(self.device)
        prior = self._bound_priors(self._conditionals, train.label_set, packed.corpus.lf_names)
        vote = MajorityVote().predict_ids(train)
        # the vote votes in the WXOR scores too; without it both are the same
        extra = self._pack(valid, training=True) if valid is not None and self.config.majority_vote_lf else packed_valid
        trainer = Trainer(
            self._conditionals,
            prior,
            packed,
            extra,
            vote,
            lambda: self._selection(packed_valid or packed, prior),
            checkpoints,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.seed)
            # not the trainer itself: it holds the vectors of all documents
            self._stage_weights, self.history_ = trainer.stage_weights, trainer.history
            self.best_stage_ = trainer.run()
        self.selection_ = trainer.stage_selection[self.best_stage_]
        if packed_valid is not None and (gold := packed_valid.corpus.gold) is not None and self.config.select == "valid-f1":
            for name in CHOICES:
                self._choose(name, packed_valid, gold)
        self.stages_ = tuple(sorted(trainer.stage_weights))
        self.seconds_per_epoch_ = {
            str(stage): float(
                np.mean([record.seconds for record in self.history_ if record.stage == stage] or [0.0])
            )
            for stage in self.stages_
        }
        return self

    def _choose(self, name: str, valid: PackedCorpus, gold: NDArray[np.int16]) -> None:
        """Set a hyper-parameter of prediction to what suits gold labels best, unless the user has set it."""
        if name not in self._chosen:
            return
        self.config = self.config.updated({name: chosen(self._fitted(), valid, gold, name)})
        self._fitted().config = self.config
        valid.reweigh(o_weights(self.config, training=False))
        log.info("Chosen on gold validation labels: %s %g", name, getattr(self.config, name))

    def use_stage(self, stage: int) -> Self:
        """Put the weights after a stage in place; only after :meth:`fit`, since a saved model holds the best stage alone."""
        if stage not in self._stage_weights:
            known = ", ".join(map(str, sorted(self._stage_weights))) or "none"
            raise ConfigError(f"Stage {stage} is not at hand; stages trained in this process: {known}.")
        self._fitted().restore(stage, self._stage_weights[stage])
        return self

    def check_input(self, train: Corpus, valid: Corpus | None = None) -> None:
        """Whether :meth:`fit` can learn from these; raises as it does."""
        priors = {"emission": self.prior, "transition": self.transition_prior, "reliability": self.reliability_prior}
        for name, prior in priors.items():
            if getattr(self.config, f"{name}_prior") == CALLABLE and not callable(prior):
                raise ConfigError(
                    f"{name}_prior was a callable, which a saved model does not hold; make a new SparseCHMM with it to train again."
                )
        check_training_data(train, valid)
        if self.config.select == "valid-f1" and valid is not None and valid.gold is None:
            raise ConfigError(
                "select is valid-f1, but the validation corpus has no gold labels; use --select evidence (select='evidence')."
            )

    def _build(self, packed: PackedCorpus) -> Conditionals:
        corpus, vectors = packed.corpus, packed.vectors
        return Conditionals.build(
            self.config, corpus.label_set, corpus.num_lfs, vectors.tokens.shape[1], vectors.documents.shape[1]
        )

    def _bound_priors(self, conditionals: Conditionals, label_set: LabelSet, lf_names: Sequence[str]) -> AnyPrior:
        """Give the conditionals their priors, for these labels and LFs; returns that on the emission."""

        def bound(prior: Any) -> Any:
            return prior.bound(lf_names, label_set) if isinstance(prior, Prior) else prior

        conditionals.transition_prior, conditionals.reliability_prior = bound(self.transition_prior), bound(self.reliability_prior)
        conditionals.emission_prior = bound(self.prior)
        return conditionals.emission_prior

    def _pack(self, corpus: Corpus, training: bool) -> PackedCorpus:
        """A corpus with vectors; the vote joins as one more LF, which abstains outside training."""
        vectors = encode(corpus, encoder_settings(self.config), cache_dir=self.cache_dir, device=self.device)
        if self.config.majority_vote_lf:
            silent = np.full(corpus.num_tokens, ABSTAIN, np.int16)
            corpus = with_lf(corpus, _VOTE_LF, MajorityVote().predict_ids(corpus) if training else silent)
        return PackedCorpus(corpus, vectors, o_weights(self.config, training))

    @torch.no_grad()
    def _selection(self, packed: PackedCorpus, prior: AnyPrior) -> Selection:
        """By F1 where gold is there and asked for, else by the evidence a token, and what the priors add to it."""
        gold = packed.corpus.gold
        if self.config.select == "valid-f1" and gold is not None:
            found = self._score(packed, gold)
            return Selection(found.f1, {"f1": found.f1, "precision": found.precision, "recall": found.recall})
        return Selection(log_evidence(self._fitted(), packed, prior) / max(packed.corpus.num_tokens, 1))

    def _score(self, packed: PackedCorpus, gold: NDArray[np.int16]) -> Score:
        return score(packed.corpus.label_set, gold, decoded_ids(self._fitted(), packed), packed.corpus.offsets)

    def evidence(self, corpus: Corpus) -> float:
        """Log evidence of a corpus's weak labels, in nats, weighed as in training; no gold label is seen."""
        return log_evidence(self._fitted(), self._pack(self._aligned(corpus), training=True))

    # prediction

    def predict_ids(self, corpus: Corpus) -> NDArray[np.int16]:
        """Most probable labels (Viterbi), ``(N,)`` ids; valid BIO unless ``constrained_decoding`` is off."""
        return decoded_ids(self._fitted(), self._pack(self._aligned(corpus), training=False))

    def predict_proba(self, corpus: Corpus) -> list[NDArray[np.float32]]:
        """Posterior marginals of each document's labels, ``(T, L)`` each; rows sum to 1."""
        return list(marginals(self._fitted(), self._pack(self._aligned(corpus), training=False)))

    def label(self, corpus: Corpus) -> tuple[NDArray[np.int16], Iterator[NDArray[np.float32]]]:
        """What :meth:`predict_ids` and :meth:`predict_proba` give, the latter a document after the other."""
        packed = self._pack(self._aligned(corpus), training=False)
        return decoded_ids(self._fitted(), packed), marginals(self._fitted(), packed)

    def stage_scores(self, corpus: Corpus) -> dict[int, Score]:
        """Strict scores on gold labels after each stage; only after :meth:`fit`.

        :raises DataError: where the corpus has no gold labels.
        """
        packed, found = self._pack(self._aligned(corpus), training=False), {}
        if packed.corpus.gold is None:
            raise DataError("The corpus has no gold labels to score against.")
        for stage in self.stages_:
            self.use_stage(stage)
            found[stage] = self._score(packed, packed.corpus.gold)
        self.use_stage(self.best_stage_)
        return found

    def explain(self, corpus: Corpus, document: int | str, token: int) -> Explanation:
        """Why a token has its label: each LF's vote and evidence, what the neighbours say, and the posterior that they make.

        :param document: its number, from 0, or its name.
        :param token: its place in the document, from 0.
        :raises DataError: where there is no such document or token.
        """
        number = find_token(corpus, document, token)
        batch = self._pack(self._aligned(corpus), training=False).batch(np.array([number])).to(self.device)
        return explain(self.matching(corpus), number, token, decode(self._fitted(), batch).cpu())

    def decoded(self, corpus: Corpus) -> Iterator[DecodedBatch]:
        """All that prediction goes through, for inspection: consecutive documents, a batch at a time."""
        packed = self._pack(self._aligned(corpus), training=False)
        return (decode(self._fitted(), batch).cpu() for batch in batches(self._fitted(), packed))

    def reliabilities(self, corpus: Corpus) -> NDArray[np.float64]:
        """Predicted reliability of each LF on each label, mean over documents: ``(K, L)``."""
        packed, conditionals = self._pack(self._aligned(corpus), training=False), self._fitted()
        return mean_over_documents(conditionals, packed, conditionals.reliability)[: len(self.lf_names)]

    def emission(self, corpus: Corpus) -> NDArray[np.float64]:
        """Mean emission over documents: ``(K, L, L)``."""
        packed, conditionals = self._pack(self._aligned(corpus), training=False), self._fitted()
        return mean_over_documents(conditionals, packed, conditionals.emission_mean)[: len(self.lf_names)]

    def posterior(self, corpus: Corpus, draws: int = 200, seed: int = 0) -> Posterior:
        """What the model believes of a corpus, as draws that are made when they are asked for.

        :param draws: how many, of all that is drawn.
        :param seed: the same one gives the same draws.
        :raises ConfigError: before :meth:`fit`, or where there is no draw to make.
        :raises DataError: where LFs or labels are not the model's.
        """
        corpus = self._aligned(corpus)
        return Posterior(self._fitted(), self._pack(corpus, training=False), corpus, draws=draws, seed=seed)

    def prior_predictive(self, corpus: Corpus, draws: int = 200, seed: int = 0) -> PriorPredictive:
        """What the priors mean: draws as of :meth:`posterior`, from the model alone. Before :meth:`fit` as after it.

        :param corpus: its tokens get labels; before :meth:`fit`, its majority vote starts the networks.
        :raises ConfigError: where a prior does not fit the corpus's LFs and labels, or there is no draw to make.
        """
        fitted = self._conditionals
        corpus = self.observed(corpus) if fitted is None else self._aligned(corpus)
        packed = self._pack(corpus, training=fitted is None)
        conditionals = self._build(packed).to(self.device).eval() if fitted is None else fitted
        prior = self._bound_priors(conditionals, corpus.label_set, packed.corpus.lf_names)
        if fitted is None:
            initialize(conditionals, packed, observed_statistics(packed, MajorityVote().predict_ids(corpus)))
        return PriorPredictive(conditionals, packed, corpus, draws=draws, seed=seed, prior=prior)

    def _fitted(self) -> Conditionals:
        if self._conditionals is None:
            raise ConfigError(
                "This SparseCHMM has not been fitted; call fit(train) or SparseCHMM.load(directory) first."
            )
        return self._conditionals

    def _aligned(self, corpus: Corpus) -> Corpus:
        self._fitted()
        return self.observed(aligned(corpus, self.lf_names, self.label_set or corpus.label_set))

    def observed(self, corpus: Corpus) -> Corpus:
        """The corpus as the model sees it: LFs mark the abbreviations of what they mark (``abbreviations``)."""
        return carry_votes(corpus) if self.config.abbreviations else corpus

    def matching(self, corpus: Corpus) -> Corpus:
        """The corpus with the model's LFs and labels, in their order; it may lack some of the entity types.

        :raises DataError: where an LF is missing or an entity type is new to the model.
        """
        self._fitted()
        return matching(corpus, self.lf_names, self.label_set or corpus.label_set)

    # files

    def save(self, directory: str | Path) -> None:
        """Write ``config.json`` and ``model.safetensors``, each atomically; nothing is pickled.

        :raises ConfigError: before :meth:`fit`.
        """
        conditionals = self._fitted()
        networks = conditionals.networks
        label_set = self.label_set
        description = {
            "class": "SparseCHMM",
            "hyperparameters": self.config.to_dict(),
            "entity_types": list(label_set.entity_types) if label_set else [],
            "lf_names": list(self.lf_names),
            "token_width": networks.transition.width,
            "document_width": networks.reliability.weight.shape[1],
            "stage": conditionals.stage,
        }
        model_files.write_model(Path(directory), description, conditionals.state_dict())

    @classmethod
    def load(cls, directory: str | Path, device: str = "cpu", cache_dir: str | Path | None = None) -> Self:
        """Read what :meth:`save` wrote, on any device.

        :raises ModelFileError: where the folder is missing, truncated, foreign, or of an unknown format.
        """
        description, weights = model_files.read_model(Path(directory), "SparseCHMM")
        with model_files.well_formed(directory):
            # what models were that were saved before these were there
            hyperparameters = {"ngrams": 0, "abbreviations": False, **description["hyperparameters"]}
            model = cls(device=device, cache_dir=cache_dir, **hyperparameters)
            model.label_set = LabelSet(tuple(description["entity_types"]))
            model.lf_names = tuple(description["lf_names"])
            lfs = len(model.lf_names) + int(model.config.majority_vote_lf)
            conditionals = Conditionals.build(
                model.config, model.label_set, lfs, description["token_width"], description["document_width"]
            )
            conditionals.load_state_dict(weights)
            conditionals.stage = int(description["stage"])
            vote = (_VOTE_LF,) if model.config.majority_vote_lf else ()
            model._bound_priors(conditionals, model.label_set, (*model.lf_names, *vote))
        model._conditionals = conditionals.to(device).eval()
        return model
