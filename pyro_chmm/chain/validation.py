"""What the chain's functions check before they work, and the message a user gets."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from pyro_chmm.errors import ChainError

MAX_LABELS = 128
_FLOATS = (torch.float32, torch.float64)
_SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)


def check_chain(initial: Tensor, transition: Tensor, log_emission: Tensor, offsets: Tensor, *, logits: bool, check: bool) -> None:
    """Raise ChainError unless the four tensors describe a packed batch of chains."""
    if log_emission.ndim != 2:
        raise _shape("log_emission", log_emission, "(N, L): one row per packed token, one column per label")
    tokens, labels = log_emission.shape
    if not 1 <= labels <= MAX_LABELS:
        raise ChainError(f"log_emission has {labels} labels; the chain works with 1 to {MAX_LABELS}")
    if initial.shape != (labels,):
        raise _shape(
            "initial",
            initial,
            f"({labels},): one probability per label, as log_emission has {labels} columns",
        )
    if transition.shape != (tokens, labels, labels):
        raise _shape(
            "transition",
            transition,
            f"{(tokens, labels, labels)}: one (from, to) matrix per token of log_emission",
        )
    tensors = {"initial": initial, "transition": transition, "log_emission": log_emission}
    _check_floats(tensors)
    check_offsets(offsets, tokens, log_emission.device)
    if check:
        _check_distribution("initial", initial)
        if not logits:
            _check_distribution("transition", transition)


def check_emission(log_emission: Tensor, weak_labels: Tensor, weight: Tensor | None, offsets: Tensor) -> None:
    """Raise ChainError unless the tensors fit eq. (10)."""
    if log_emission.ndim != 4 or log_emission.shape[2] != log_emission.shape[3]:
        raise _shape("log_emission", log_emission, "(B, K, L, L): documents, LFs, true label, observed label")
    documents, lfs, labels = log_emission.shape[:3]
    if not 1 <= labels <= MAX_LABELS:
        raise ChainError(f"log_emission has {labels} labels; the chain works with 1 to {MAX_LABELS}")
    if weak_labels.ndim != 2 or weak_labels.shape[1] != lfs:
        raise _shape("weak_labels", weak_labels, f"(N, {lfs}): one column per LF of log_emission")
    if weak_labels.dtype not in _SIGNED:
        raise ChainError(f"weak_labels has dtype {weak_labels.dtype}; expected signed integers, -1 where an LF abstained")
    tensors = {"log_emission": log_emission}
    if weight is not None:
        if weight.shape != weak_labels.shape:
            raise _shape("weight", weight, f"{tuple(weak_labels.shape)}, the shape of weak_labels")
        tensors["weight"] = weight
    _check_floats(tensors)
    if weak_labels.device != log_emission.device:
        raise _device("weak_labels", weak_labels, "log_emission", log_emission)
    check_offsets(offsets, len(weak_labels), log_emission.device)
    if len(offsets) != documents + 1:
        raise _shape(
            "offsets",
            offsets,
            f"({documents + 1},): log_emission holds {documents} documents, so one more offset",
        )
    if not torch.compiler.is_compiling():
        check_weak_labels(weak_labels, labels)


def check_weak_labels(weak_labels: Tensor, labels: int) -> None:
    """Raise ChainError if an id is neither -1 (abstained) nor one of the labels."""
    if weak_labels.numel() == 0:
        return
    low, high = (int(bound) for bound in torch.aminmax(weak_labels))
    if low < -1 or high >= labels:
        token, lf = ((weak_labels < -1) | (weak_labels >= labels)).nonzero()[0].tolist()
        raise ChainError(
            f"weak_labels[{token}, {lf}] is {int(weak_labels[token, lf])}; expected a label id from 0 to {labels - 1}, "
            "or -1 where the LF abstained"
        )


def check_offsets(offsets: Tensor, tokens: int, device: torch.device) -> None:
    """Raise ChainError unless the offsets ascend from 0 to the number of tokens."""
    if offsets.dtype != torch.int64 or offsets.ndim != 1 or len(offsets) == 0:
        raise ChainError(
            f"offsets has shape {tuple(offsets.shape)} and dtype {offsets.dtype}; expected int64 of shape (B + 1,), "
            "the first token of each document and then the number of tokens"
        )
    if offsets.device != device:
        raise ChainError(f"offsets is on {offsets.device}, the other tensors on {device}; move it with .to({str(device)!r})")
    if torch.compiler.is_compiling():
        return  # values are not known while a graph is traced
    bounds = offsets.cpu().numpy()
    if bounds[0] != 0 or bounds[-1] != tokens:
        raise ChainError(f"offsets run from {bounds[0]} to {bounds[-1]}; expected from 0 to {tokens}, the number of packed tokens")
    descends = bounds[1:] < bounds[:-1]
    if descends.any():
        document = int(descends.argmax())
        raise ChainError(
            f"offsets do not ascend: document {document} would run from token {bounds[document]} "
            f"to {bounds[document + 1]}; pass the running sum of the documents' lengths"
        )


def check_number(values: Tensor, inputs: Sequence[Tensor], *, logits: bool) -> None:
    """Raise ChainError if the log evidence or score of a document is NaN, and say what made it so."""
    # no value is +inf, so the sum is NaN only if a value is
    if math.isnan(float(values.sum())):
        document = int(values.isnan().nonzero()[0])
        initial, transition, log_emission, offsets = (part.detach() for part in inputs)
        _raise_not_a_number(initial, transition, log_emission, offsets, logits=logits, document=document)


def _raise_not_a_number(
    initial: Tensor,
    transition: Tensor,
    log_emission: Tensor,
    offsets: Tensor,
    *,
    logits: bool,
    document: int,
) -> None:
    start, stop = int(offsets[document]), int(offsets[document + 1])
    if not bool((initial >= 0).all() & (initial < torch.inf).all()):
        raise ChainError(f"initial must hold finite probabilities, and holds {initial.tolist()[:8]}")
    for name, tensor in (("log_emission", log_emission[start:stop]), ("transition", transition[start:stop])):
        wrong = tensor.isnan() | (tensor == torch.inf)
        if name == "transition" and not logits:
            wrong |= tensor < 0
        if bool(wrong.any()):
            token, *place = wrong.nonzero()[0].tolist()
            raise ChainError(
                f"{name} holds {float(tensor[(token, *place)])} at document {document}, token {token}, label {place}; "
                f"expected {'finite numbers or -inf' if logits or name == 'log_emission' else 'probabilities'}"
            )
    dead = (transition[start:stop] == -torch.inf).all(-1) & logits
    if bool(dead.any()):
        token, label = dead.nonzero()[0].tolist()
        raise ChainError(
            f"all transition logits from label {label} are -inf at document {document}, token {token}, and that label can be "
            "reached; allow at least one transition out of it"
        )
    raise ChainError(f"the log evidence of document {document} is not a number; scale the inputs down")


def _check_floats(tensors: dict[str, Tensor]) -> None:
    last_name, last = list(tensors.items())[-1]
    for name, tensor in tensors.items():
        if tensor.dtype not in _FLOATS:
            raise ChainError(f"{name} has dtype {tensor.dtype}; expected float32 or float64, convert it with .float()")
        if tensor.dtype != last.dtype:
            raise ChainError(f"{name} is {tensor.dtype} but {last_name} is {last.dtype}; convert one to the other's dtype")
        if tensor.device != last.device:
            raise _device(name, tensor, last_name, last)


def _check_distribution(name: str, probabilities: Tensor) -> None:
    totals = probabilities.detach().sum(-1)
    wrong = ~((totals - 1).abs() <= 1e-4) | (probabilities < 0).any(-1)
    if bool(wrong.any()):
        place = wrong.nonzero()[0].tolist()
        raise ChainError(
            f"{name}{place or ''} sums to {float(totals[tuple(place)]):.6g}; expected a sum of 1 over the last axis"
            + ("" if name == "initial" else "; pass logits=True if these are logits")
        )


def _shape(name: str, tensor: Tensor, expected: str) -> ChainError:
    return ChainError(f"{name} has shape {tuple(tensor.shape)}; expected {expected}")


def _device(name: str, tensor: Tensor, other: str, reference: Tensor) -> ChainError:
    return ChainError(f"{name} is on {tensor.device} but {other} is on {reference.device}; move one with .to(...)")
