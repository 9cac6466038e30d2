"""Every hyper-parameter of Sparse-CHMM, with its type, default and meaning. Imports the standard library only."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from types import UnionType
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

from pyro_chmm.errors import ConfigError


def _option(default: Any, doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True)
class SparseCHMMConfig:
    """Hyper-parameters of Sparse-CHMM; Table 11 of the paper and our defaults are presets over it.

    :raises ConfigError: when a value makes no sense, naming the field.
    """

    encoder: str = _option("minilm", "Language model: minilm, none, a hub name or a local path.")
    layers: tuple[int, ...] = _option(
        (2, 4, 6), "Hidden layers put side by side as token vectors; -1 is the last."
    )
    document_vector: Literal["cls", "mean"] = _option(
        "cls", "Document vector: the [CLS] state or the mean over tokens."
    )
    ngrams: int = _option(
        512, "Hashed character n-grams of each word at the side of its vector, for the transitions; 0 for none, as in the paper."
    )
    abbreviations: bool = _option(
        True, 'What an LF marks as "chronic renal failure (CRF)", it marks at every CRF of that document; off, as in the paper.'
    )
    seed: int = _option(0, "Seed of initial weights, shuffling and emission samples.")
    select: Literal["valid-f1", "evidence"] = _option(
        "valid-f1",
        "Choose epochs by F1 on gold validation labels, or by held-out evidence (no gold is seen).",
    )
    shared_transition: bool = _option(True, "Transition weights by the label entered alone; off is the paper's full layer.")
    transition_normalization: Literal["sequence", "row"] = _option(
        "sequence", "Normalise transitions over whole label sequences, as a CRF, or each row by SoftMax, as in the paper."
    )
    transition_hidden: int = _option(64, "Units of a hidden layer below the transitions; 0 for none, as in the paper.")
    dropout: float = _option(0.5, "Share of token features and hidden units left out in a step, where there is a hidden layer.")
    # emission
    reliability_level: Literal["label", "entity"] = _option(
        "label", "One reliability a label, or one an entity type."
    )
    concentration_base: float = _option(2.0, "nu_base: least concentration of an emission entry.")
    concentration_range: float = _option(1000.0, "nu_expan: how far a prior of 1 raises the concentration.")
    h_n: float = _option(0.8, "Exponent n of the scaling function h, eq. (2).")
    h_s: float = _option(1.5, "Exponent s of the scaling function h, eq. (2).")
    g_n: float = _option(4.0, "Exponent n of the expansion function g, eq. (4).")
    g_r_stage1: float = _option(0.05, "Split point r of g in stage 1, in units of 1/L.")
    g_r_stage23: float = _option(0.05, "Split point r of g in stages 2 and 3, in units of 1/L.")
    wxor_normalization: Literal["softmax", "sum", "rate"] = _option(
        "softmax",
        "WXOR scores: SoftMax over queries (paper), divided by their sum over targets, or the plain rate.",
    )
    addon_weight: float = _option(0.2, "lambda: weight of observed statistics in stage 2's target emission.")
    majority_vote_lf: bool = _option(False, "Majority voting as one more LF during training only.")
    # what an LF's O means
    o_weight_contested: float = _option(
        0.0, "Weight of an LF's O at tokens where another LF fires (1: plain evidence)."
    )
    o_weight_silent: float = _option(
        1.0, "Weight of an LF's O in training at tokens where no LF fires (1: plain evidence)."
    )
    o_weight_prediction: float = _option(
        0.5,
        "The same when labels are predicted: LFs are silent together, so their silence says less than it seems to.",
    )
    posterior_temperature: float = _option(
        1.0, "Posteriors are to the power of 1 / this, which changes no label: LFs err together, and a model that takes them for "
        "independent is too sure."
    )
    o_weight_beside: float = _option(
        3.0, "Weight of an LF's O at silent tokens beside one where an LF fires: whoever marked that one looked here too."
    )
    # priors and objective
    emission_prior: str | dict[str, Any] = _option(  # noqa: RUF009
        "amortized", "Prior on the emission: amortized, symmetric, diagonal, empirical or hierarchical, as diagonal:50."
    )
    transition_prior: str | dict[str, Any] = _option(  # noqa: RUF009
        "none", "Prior on the transitions: none, symmetric, sticky or empirical, as sticky:50, or bio."
    )
    reliability_prior: str | dict[str, Any] = _option(  # noqa: RUF009
        "none", "Prior on the reliabilities: none, or beta, as beta:50; accuracies of LFs come from a file of priors."
    )
    kl_weight: float = _option(1.0, "Weight of the KL divergence between guide and emission prior.")
    posterior_sharpening: float = _option(
        0.0, "Multiple of the posterior entropy of z taken off the objective."
    )
    marginalize: Literal["fast", "enum"] = _option(
        "fast", "Sum over z by the chain's kernels or by TraceEnum_ELBO."
    )
    backend: str = _option("auto", "Chain backend: auto, reference, cpu or cuda.")
    # training
    batch_size: int = _option(128, "At most so many documents a training step.")
    batch_tokens: int = _option(4096, "At most so many tokens a training step, unless one document is longer.")
    pretrain_learning_rate: float = _option(0.05, "Learning rate of MSE pre-training.")
    pretrain_steps: int = _option(200, "At most so many steps of MSE pre-training, eq. (7); it ends on convergence.")
    learning_rate_stage1: float = _option(3e-3, "Learning rate of stage 1 (transitions and base prior).")
    learning_rate_stage2: float = _option(1e-3, "Learning rate of stage 2 (addon prior).")
    learning_rate_stage3: float = _option(1.5e-3, "Learning rate of stage 3 (transitions).")
    epochs_stage1: int = _option(20, "At most so many epochs in stage 1.")
    epochs_stage2: int = _option(3, "At most so many epochs in stage 2.")
    epochs_stage3: int = _option(5, "At most so many epochs in stage 3.")
    selection_window: int = _option(
        3, "Epochs whose mean score stands for the last of them: one epoch's F1 on few documents is luck in part."
    )
    patience: int = _option(6, "Epochs without a better selection score before a stage ends.")
    weight_penalty: float = _option(0.1, "L2 penalty on the weights of layers without dropout, in nats a token.")
    weight_averaging: float = _option(
        0.99, "Decay, a step, of the moving average of weights that is scored and kept; 0 for the weights themselves."
    )
    gradient_clip: float = _option(5.0, "Largest norm of a step's gradient.")
    verify: bool = _option(
        True, "Before training, check the fast path against TraceEnum_ELBO on the first batch."
    )
    # ablations (Table 4) and choices of the authors' code
    naive_emission: bool = _option(False, "Ablation: off-diagonal emission uniform, no emphasis on O.")
    scale_reliability: bool = _option(True, "Apply h, eq. (2); off is the paper's ablation without h.")
    softmax_reliability: bool = _option(True, "SoftMax over LFs, eq. (1); off puts a sigmoid in its place.")
    sample_emission: bool = _option(
        True, "Sample emissions from the Dirichlet in training; off uses its mean."
    )
    stage2: Literal["separate", "none", "merged"] = _option(
        "separate", "Stage 2 on its own, left out, or merged with 3."
    )
    detach_base_prior: bool = _option(False, "Only diagonal and O entries of the base prior carry gradients.")
    constrained_decoding: bool = _option(True, "Decode only valid BIO sequences.")

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for item in fields(self):
            object.__setattr__(
                self, item.name, _coerce(item.name, getattr(self, item.name), hints[item.name])
            )
        positive = ("concentration_base", "concentration_range", "h_n", "h_s", "g_r_stage1", "g_r_stage23", "posterior_temperature")
        for name in positive:
            _require(getattr(self, name) > 0, name, getattr(self, name), "a positive number")
        _require(self.g_n > 1, "g_n", self.g_n, "a number above 1")
        _require(self.o_weight_beside >= 0, "o_weight_beside", self.o_weight_beside, "0 or more")
        for name in ("o_weight_contested", "o_weight_silent", "o_weight_prediction", "addon_weight"):
            _require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "a number from 0 to 1")
        for name in ("kl_weight", "posterior_sharpening", "weight_penalty"):
            _require(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")
        for name in (n for n in hints if "learning_rate" in n or n == "gradient_clip"):
            _require(getattr(self, name) > 0, name, getattr(self, name), "a positive number")
        for name in ("batch_size", "batch_tokens", "selection_window", "patience", "epochs_stage1"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "1 or more")
        for name in ("dropout", "weight_averaging"):
            _require(0 <= getattr(self, name) < 1, name, getattr(self, name), "a number from 0 to below 1")
        for name in ("ngrams", "transition_hidden", "pretrain_steps", "epochs_stage2", "epochs_stage3", "seed"):
            _require(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")
        _require(len(self.layers) > 0, "layers", self.layers, "at least one layer")
        _require(
            self.backend in ("auto", "reference", "cpu", "cuda"),
            "backend",
            self.backend,
            "auto, reference, cpu or cuda",
        )

    @classmethod
    def describe(cls) -> dict[str, str]:
        """One line on each hyper-parameter, by name."""
        return {item.name: item.metadata["doc"] for item in fields(cls)}

    def to_dict(self) -> dict[str, Any]:
        """All hyper-parameters as JSON types."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """:raises ConfigError: on an unknown name or a wrong value."""
        return cls().updated(values)

    def updated(self, values: dict[str, Any]) -> Self:
        """A copy with some hyper-parameters changed.

        :raises ConfigError: on an unknown name (the known ones are listed) or a wrong value.
        """
        known = [item.name for item in fields(self)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ConfigError(f"Unknown hyper-parameter {unknown[0]!r}; known ones are {', '.join(known)}.")
        return replace(self, **values)


def _require(condition: bool, name: str, value: Any, expected: str) -> None:
    if not condition:
        raise ConfigError(f"Hyper-parameter {name} is {value!r}, expected {expected}.")


def _coerce(name: str, value: Any, kind: Any) -> Any:
    """``value`` as the field's type, or a ConfigError: files and command lines bring ints, lists and strings."""
    if get_origin(kind) is Literal:
        _require(value in get_args(kind), name, value, "one of " + ", ".join(map(str, get_args(kind))))
        return value
    if get_origin(kind) is tuple:
        ok = isinstance(value, (list, tuple)) and all(type(item) is int for item in value)
        _require(ok, name, value, "a list of whole numbers")
        return tuple(value)
    if get_origin(kind) is UnionType:
        _require(isinstance(value, (str, dict)), name, value, "a text or a table")
        return value
    if kind is float:
        ok = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < float("inf")
        _require(ok, name, value, "a finite number")
        return float(value)
    _require(
        type(value) is kind, name, value, {int: "a whole number", bool: "true or false", str: "a text"}[kind]
    )
    return value
