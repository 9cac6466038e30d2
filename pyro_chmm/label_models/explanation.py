"""Why a token got its label: what each LF said, how far it is believed, and what the neighbours added."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyro_chmm import chain
from pyro_chmm.data.batching import PackedBatch
from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.labels import ABSTAIN
from pyro_chmm.errors import DataError
from pyro_chmm.model.coarse_evidence import with_coarse_columns
from pyro_chmm.model.conditionals import Conditionals


@dataclass(frozen=True, eq=False)
class Vote:
    """What one LF said about the token, and what the model makes of it.

    :ivar label: None where the LF abstained.
    :ivar weight: what the observation counts, by the ``o_weight`` and ``posterior_temperature`` hyper-parameters.
    :ivar reliability: eq. (2), of the LF on the label it says, in this document; None for an abstention or a coarse label.
    :ivar log_evidence: ``(L,)``, weight times log p(the LF says so | true label); 0 where it abstained.
    :ivar carried: whether it said so of the long form, and the token is of the abbreviation.
    """

    lf: str
    label: str | None
    weight: float
    reliability: float | None
    log_evidence: NDArray[np.float64]
    carried: bool = False


@dataclass(frozen=True, eq=False)
class Explanation:
    """One token's posterior, taken apart: ``marginals`` is ``exp(log_evidence) * left * right``, divided by its sum.

    :ivar token: place in the document, from 0; ``word`` is what stands there.
    :ivar labels: the L labels, in the order of all arrays.
    :ivar log_evidence: ``(L,)``, the sum over the votes.
    :ivar left: ``(L,)``, what the tokens before it say, normalised; ``right``, those after it.
    :ivar marginals: ``(L,)``, p(label | all weak labels of the document).
    :ivar label: the label in the most probable label sequence, which need not be the most probable one at the token.
    :ivar gold: None where the corpus has no gold labels.
    """

    document: str
    token: int
    word: str
    labels: tuple[str, ...]
    votes: tuple[Vote, ...]
    log_evidence: NDArray[np.float64]
    left: NDArray[np.float64]
    right: NDArray[np.float64]
    marginals: NDArray[np.float64]
    label: str
    gold: str | None

    @property
    def evidence(self) -> NDArray[np.float64]:
        """``(L,)``, what the votes alone say: the evidence, normalised."""
        weights = np.exp(self.log_evidence - self.log_evidence.max())
        shares: NDArray[np.float64] = weights / weights.sum()
        return shares


@dataclass(frozen=True, eq=False)
class DecodedBatch:
    """All that decoding a batch goes through. O observed labels: the L labels and, after them, ``B-`` and ``I-`` of coarse labels.

    :ivar documents: ``(B,)`` positions in the corpus; ``offsets``, ``(B + 1,)``.
    :ivar observed: ``(N, K)`` ids of what the LFs said, -1 for an abstention; ``weight``, what it counts.
    :ivar emission: ``(B, K, L, O)`` Dirichlet means.
    :ivar concentration: ``(B, K, L, L)`` of the guide.
    :ivar reliability: ``(B, K, L)``.
    :ivar log_evidence: ``(N, L)``; ``left``, ``right``, log messages likewise; ``marginals``, probabilities.
    :ivar labels: ``(N,)`` Viterbi's, -1 in an impossible document.
    """

    documents: Tensor
    offsets: Tensor
    observed: Tensor
    weight: Tensor
    emission: Tensor
    concentration: Tensor
    reliability: Tensor
    log_evidence: Tensor
    left: Tensor
    right: Tensor
    marginals: Tensor
    labels: Tensor

    def cpu(self) -> DecodedBatch:
        """The same in main memory."""
        return DecodedBatch(*(getattr(self, item.name).cpu() for item in fields(self)))

    def vote_evidence(self, token: int) -> Tensor:
        """``(K, L)`` log evidence that each LF adds at a token of the batch, float64."""
        document = int(torch.searchsorted(self.offsets, token, right=True)) - 1
        said, weight = self.observed[token], self.weight[token].double()
        rows = self.emission[document].double()[torch.arange(len(said)), :, said.clamp(min=0)]
        return torch.where(weight[:, None] > 0, weight[:, None] * rows.log(), 0.0)


@torch.no_grad()
def decode(conditionals: Conditionals, batch: PackedBatch) -> DecodedBatch:
    """Decode a batch as prediction does, and keep the parts."""
    vectors = batch.document_vectors
    mean = conditionals.emission_mean(vectors)
    emission, observed, weight = with_coarse_columns(mean, batch)
    evidence = conditionals.log_emission_evidence(mean, batch)
    inputs = conditionals.initial, conditionals.decoding_transitions(batch.token_vectors), evidence, batch.offsets
    left, right = chain.messages(*inputs, logits=False)
    marginals = chain.marginals(*inputs, logits=False, backend=conditionals.config.backend).state
    labels = chain.viterbi(*inputs, logits=False, backend=conditionals.config.backend).labels
    return DecodedBatch(
        batch.documents,
        batch.offsets,
        observed,
        weight,
        emission,
        conditionals.concentration(vectors),
        conditionals.reliability(vectors),
        evidence,
        left,
        right,
        marginals / marginals.sum(dim=-1, keepdim=True).clamp(min=1e-30),
        labels,
    )


def find_token(corpus: Corpus, document: int | str, token: int) -> int:
    """The number of a document, given by number or name, that has the token.

    :raises DataError: where there is no such document, or it has no such token.
    """
    if isinstance(document, str):
        if document not in corpus.document_ids:
            first = f", the first of them {corpus.document_ids[0]!r}" if corpus.document_ids else ""
            there = f"{corpus.num_documents:,} documents{first}"
            raise DataError(f"There is no document {document!r}; the corpus has {there}.")
        document = corpus.document_ids.index(document)
    if not 0 <= document < corpus.num_documents:
        raise DataError(f"There is no document number {document}; the corpus has {corpus.num_documents} documents, counted from 0.")
    length = len(corpus.tokens[document])
    if not 0 <= token < length:
        known = f"its {length} tokens are counted from 0 to {length - 1}" if length else "it is empty"
        raise DataError(f"Document {corpus.document_ids[document]!r} has no token {token}; {known}.")
    return document


def explain(corpus: Corpus, document: int, token: int, decoded: DecodedBatch) -> Explanation:
    """Take one token's posterior apart.

    :param corpus: as it was given, without votes carried to abbreviations.
    :param decoded: of the document alone.
    """
    names, observed_names = corpus.label_set.names, corpus.observed_set.names
    evidence, start = decoded.vote_evidence(token).numpy(), int(corpus.offsets[document])
    votes = []
    for place, lf in enumerate(corpus.lf_names):
        said = int(decoded.observed[token, place])
        reliability = float(decoded.reliability[0, place, said]) if 0 <= said < len(names) else None
        label = None if said == ABSTAIN else observed_names[said]
        carried = said != int(corpus.observed_labels[start + token, place])
        votes.append(Vote(lf, label, float(decoded.weight[token, place]), reliability, evidence[place], carried))
    best = int(decoded.labels[token])
    return Explanation(
        document=corpus.document_ids[document],
        token=token,
        word=corpus.tokens[document][token],
        labels=names,
        votes=tuple(votes),
        log_evidence=evidence.sum(axis=0),
        left=decoded.left[token].exp().numpy(),
        right=decoded.right[token].exp().numpy(),
        marginals=decoded.marginals[token].double().numpy(),
        label=names[best],
        gold=None if corpus.gold is None else names[int(corpus.gold[start + token])],
    )
