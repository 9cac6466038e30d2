"""Eq. (10) and its gradients, document by document. A run of tokens with the same weak label reads or writes its column once."""

from typing import Any

import numpy as np

from pyro_chmm.chain.compiled import kernel


@kernel
def forward(log_emission: Any, weak_labels: Any, weight: Any, offsets: Any, out: Any, first: int, last: int) -> None:
    """out (N, L) of documents ``first`` to ``last``. ``weight`` is (N, K), or (0, 0) if all weights are 1."""
    labels = out.shape[1]
    column = np.empty(labels, out.dtype)
    for document in range(first, last):
        begin, end = offsets[document], offsets[document + 1]
        for n in range(begin, end):
            for j in range(labels):
                out[n, j] = 0.0
        for k in range(weak_labels.shape[1]):
            said = -1
            for n in range(begin, end):
                observed = weak_labels[n, k]
                factor = weight[n, k] if len(weight) > 0 else out.dtype.type(1)
                if observed < 0 or factor == 0:
                    continue
                if observed != said:
                    said = observed
                    for j in range(labels):
                        column[j] = log_emission[document, k, j, said]
                for j in range(labels):
                    out[n, j] += factor * column[j]


@kernel
def backward(cotangent: Any, weak_labels: Any, weight: Any, offsets: Any, gradient: Any, first: int, last: int) -> None:
    """gradient (B, K, L, L) of documents ``first`` to ``last``."""
    labels = cotangent.shape[1]
    column = np.empty(labels, cotangent.dtype)
    for document in range(first, last):
        for k in range(weak_labels.shape[1]):
            for i in range(labels):
                for j in range(labels):
                    gradient[document, k, i, j] = 0.0
            said = -1
            for n in range(offsets[document], offsets[document + 1]):
                observed = weak_labels[n, k]
                factor = weight[n, k] if len(weight) > 0 else cotangent.dtype.type(1)
                if observed < 0 or factor == 0:
                    continue
                if observed != said:
                    _flush(column, said, gradient[document, k])
                    said = observed
                for j in range(labels):
                    column[j] += factor * cotangent[n, j]
            _flush(column, said, gradient[document, k])


@kernel
def _flush(column: Any, said: int, gradient: Any) -> None:
    """Add what was gathered for one weak label, and start again from 0."""
    for j in range(len(column)):
        if said >= 0:
            gradient[j, said] += column[j]
        column[j] = 0.0


@kernel
def backward_weight(
    cotangent: Any, log_emission: Any, weak_labels: Any, offsets: Any, gradient: Any, first: int, last: int
) -> None:
    """gradient (N, K) of documents ``first`` to ``last``; a cotangent of 0 counts as 0 even where the log emission is -inf."""
    labels = cotangent.shape[1]
    for document in range(first, last):
        for n in range(offsets[document], offsets[document + 1]):
            for k in range(weak_labels.shape[1]):
                total = cotangent.dtype.type(0)
                observed = weak_labels[n, k]
                if observed >= 0:
                    for j in range(labels):
                        if cotangent[n, j] != 0:
                            total += cotangent[n, j] * log_emission[document, k, j, observed]
                gradient[n, k] = total
