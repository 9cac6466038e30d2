"""Exact inference in a linear chain with time-varying transitions, over packed documents.

It knows nothing of named entities, Pyro or files. All functions share the signature that :mod:`pyro_chmm.chain.api` describes.
"""

from pyro_chmm.chain.api import (
    ImpossibleStep,
    Marginals,
    SharpenedEvidence,
    ViterbiPath,
    entropy,
    impossible_step,
    log_evidence,
    marginals,
    sample,
    sharpened_evidence,
    viterbi,
)
from pyro_chmm.chain.emission import emission_evidence
from pyro_chmm.chain.messages import Messages, messages

__all__ = [
    "ImpossibleStep",
    "Marginals",
    "Messages",
    "SharpenedEvidence",
    "ViterbiPath",
    "emission_evidence",
    "entropy",
    "impossible_step",
    "log_evidence",
    "marginals",
    "messages",
    "sample",
    "sharpened_evidence",
    "viterbi",
]
