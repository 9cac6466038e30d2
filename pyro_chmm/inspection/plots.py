"""Pictures of a model (extra ``inspect``).

Each function takes ``ax`` (axes, or an array of them) or makes its own, and returns what it drew on. Colors are those of Okabe and
Ito, which people with any color vision can tell apart; every series has a marker or dash of its own too.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr

from pyro_chmm.errors import DataError
from pyro_chmm.inspection.believed import Intervals
from pyro_chmm.inspection.calibration import Calibration
from pyro_chmm.model.config import SparseCHMMConfig
from pyro_chmm.model.reliability import emit_to_o, scale_reliability

BLUE, ORANGE, GREEN, PINK, SKY, AMBER, GRAY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#888888"
PALETTE = (BLUE, ORANGE, GREEN, PINK, SKY, AMBER, GRAY)
_MARKERS = "osD^vPX"
_MOST_ANNOTATED = 11  # labels, above which the numbers in a heat map would not be legible
AxesArray = NDArray[Any]


def _grid(ax: Any, panels: int, size: tuple[float, float], columns: int | None = None, **options: Any) -> list[Axes]:
    """As many axes as there are panels: those given, or new ones in rows of ``columns``."""
    if ax is None:
        columns = min(panels, columns or panels)
        rows = -(-panels // columns)
        figure, made = plt.subplots(
            rows, columns, figsize=(size[0] * columns, size[1] * rows), squeeze=False, layout="constrained", **options
        )
        for unused in made.flat[panels:]:
            figure.delaxes(unused)
        ax = made
    found: list[Axes] = list(np.ravel(np.asarray(ax, dtype=object)))
    if len(found) < panels:
        raise DataError(f"The picture has {panels} panels, and {len(found)} axes were given.")
    return found[:panels]


def plot_emission(emissions: Mapping[str, NDArray[np.floating]], label_names: Sequence[str], ax: Any = None) -> AxesArray:
    """Heat maps of one LF's emission side by side, such as stage by stage and then the true one (figure 7).

    :param emissions: for each title an ``(L, L)`` emission, true label (rows) by observed label; rows of NaN are left blank.
    :param ax: as many axes.
    """
    labels = len(label_names)
    side = max(2.4, 0.42 * labels + 1.0)
    axes = _grid(ax, len(emissions), (side, side), sharey=True)
    for place, (panel, (title, emission)) in enumerate(zip(axes, emissions.items(), strict=True)):
        panel.imshow(emission, vmin=0, vmax=1, cmap="cividis")
        panel.set_title(title, fontsize=10)
        panel.set_xticks(range(labels), label_names, rotation=90, fontsize=8)
        panel.set_yticks(range(labels), label_names, fontsize=8)
        panel.set_xlabel("observed label", fontsize=9)
        if place == 0:
            panel.set_ylabel("true label", fontsize=9)
        panel.tick_params(length=0, labelleft=place == 0)
        panel.spines[:].set_visible(False)
        if labels <= _MOST_ANNOTATED:
            _annotate(panel, emission)
    return np.array(axes, dtype=object)


def _annotate(panel: Axes, emission: NDArray[np.floating]) -> None:
    for row, column in np.ndindex(emission.shape):
        value = emission[row, column]
        text = "–" if np.isnan(value) else f"{value:.2f}".removeprefix("0") if value < 0.995 else "1"
        ink: dict[str, Any] = {} if np.isnan(value) else {"color": "#111111" if value > 0.55 else "#ffffff"}
        if np.isnan(value) or value >= 0.005:
            panel.text(column, row, text, ha="center", va="center", fontsize=7, **ink)


def plot_scaling(config: SparseCHMMConfig, num_lfs: int, ax: Axes | None = None) -> Axes:
    """The function h of eq. (2), which scales reliability scores (figure 3): the model's own, and others for comparison."""
    (panel,) = _grid(ax, 1, (4.2, 3.4))
    split = 1 / num_lfs if num_lfs > 1 else 0.5
    score = torch.linspace(0, 1, 401, dtype=torch.float64)
    others = [(1.0, 1.0), (2.0, 1.0), (1.0, 2.0), (2.0, 2.0)]
    for (n, s), dash in zip(others, (":", "--", "-.", (0, (1, 3))), strict=True):
        panel.plot(score, scale_reliability(score, n, s, split), color=GRAY, linestyle=dash, lw=1.2, label=f"n = {n:g}, s = {s:g}")
    own = scale_reliability(score, config.h_n, config.h_s, split)
    panel.plot(score, own, color=BLUE, lw=2.2, label=f"n = {config.h_n:g}, s = {config.h_s:g} (this model)")
    panel.set(xlabel="reliability score a", ylabel="h(a)", xlim=(0, 1), ylim=(0, 1.02))
    panel.set_title(f"Scaling h, split point r = {split:.2g}")
    return _finish(panel)


def plot_expansion(config: SparseCHMMConfig, num_labels: int, ax: Any = None) -> AxesArray:
    """The base prior's entries by reliability, and the function g of eq. (4) by its exponent (figure 4).

    :param ax: two axes.
    """
    entries, exponents = _grid(ax, 2, (4.2, 3.4))
    split = config.g_r_stage23 / num_labels
    reliability = torch.linspace(0, 1, 1001, dtype=torch.float64)
    to_o = emit_to_o(reliability, num_labels, config.g_n, split)
    others = (1 - reliability - to_o) / (num_labels - 2)
    lines = (("the right label", reliability, BLUE, "-"), ("O", to_o, ORANGE, "--"), ("each other label", others, GREEN, "-."))
    for name, values, color, dash in lines:
        entries.plot(reliability, values, color=color, linestyle=dash, lw=2, label=name)
    entries.set(xlabel="reliability a", ylabel="probability that the LF says", title="Base prior of an entity label's row")
    for n, dash in zip((1.5, 2.0, 8.0), (":", "--", "-."), strict=True):
        values = emit_to_o(reliability, num_labels, n, split)
        exponents.plot(reliability, values, color=GRAY, linestyle=dash, lw=1.2, label=f"n = {n:g}")
    exponents.plot(reliability, to_o, color=ORANGE, lw=2.2, label=f"n = {config.g_n:g} (this model)")
    exponents.set(xlabel="reliability a", ylabel="g(a), probability of O", title=f"Expansion g, L = {num_labels}, r = {split:.2g}")
    for panel in (entries, exponents):
        panel.set(xlim=(0, 1), ylim=(0, 1.02))
        _finish(panel)
    return np.array([entries, exponents], dtype=object)


def plot_expected_against_true_f1(
    expected: NDArray[np.floating],
    f1: NDArray[np.floating],
    lf_names: Sequence[str],
    entity_types: Sequence[str],
    ax: Axes | None = None,
) -> Axes:
    """The F1 that the model expects of each LF on each entity type against the true one, with both correlations (figure 8).

    :param expected, f1: ``(K, E)``, 0 to 1, NaN where there is none; see
        :func:`pyro_chmm.inspection.believed.expected_and_true_f1`.
    """
    (panel,) = _grid(ax, 1, (4.6, 3.8))
    groups = list(zip(entity_types, expected.T, f1.T, strict=True))
    if len(groups) == 1:  # then LFs are what can be told apart
        groups = list(zip(lf_names, expected, f1, strict=True))
    told_apart = len(groups) <= len(PALETTE)
    for place, (name, x, y) in enumerate(groups):
        style: dict[str, Any] = {"color": BLUE}
        if told_apart:
            style = {"color": PALETTE[place], "marker": _MARKERS[place], "label": name}
        panel.scatter(x, y, s=42, alpha=0.85, linewidths=0, **style)
    panel.set(xlabel="F1 expected without gold", ylabel="true F1", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    panel.set_title(_correlations(expected, f1))
    return _finish(panel, legend=told_apart)


def _correlations(expected: NDArray[np.floating], f1: NDArray[np.floating]) -> str:
    known = ~np.isnan(f1) & ~np.isnan(expected)
    x, y = expected[known], f1[known]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return "Too few points for a correlation"
    return f"Pearson {pearsonr(x, y).statistic:.2f}, Spearman {spearmanr(x, y).statistic:.2f}"


def plot_reliabilities(intervals: Intervals, lf_names: Sequence[str], label_names: Sequence[str], ax: Any = None) -> AxesArray:
    """Posterior intervals of how often each LF says the right label, a panel for each label.

    :param ax: as many axes as labels.
    """
    height = 0.28 * len(lf_names) + 1.0
    axes = _grid(ax, len(label_names), (2.3, height), columns=4, sharex=True)
    rows = np.arange(len(lf_names))
    for place, (panel, label) in enumerate(zip(axes, label_names, strict=True)):
        low, mean, high = (part[:, place] for part in (intervals.low, intervals.mean, intervals.high))
        spread = np.maximum([mean - low, high - mean], 0)
        panel.errorbar(mean, rows, xerr=spread, fmt="o", color=BLUE, ms=4.5, elinewidth=1.8, capsize=0)
        spot = panel.get_subplotspec()
        first = spot is None or spot.is_first_col()
        panel.set_yticks(rows, lf_names if first else [""] * len(rows), fontsize=8)
        panel.set(xlim=(-0.03, 1.03), ylim=(len(rows) - 0.5, -0.5))
        panel.set_xticks([0, 0.5, 1], ["0", ".5", "1"], fontsize=8)
        panel.set_title(label, fontsize=10)
        panel.tick_params(length=0, labelbottom=True)
        _finish(panel, legend=False)
    return np.array(axes, dtype=object)


def read_history(path: str | Path) -> list[dict[str, float]]:
    """The rows of a run's ``history.csv``, one an epoch; NaN for what is empty there.

    :raises DataError: for a file that cannot be read as one.
    """
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            return [{name: float(value or "nan") for name, value in row.items()} for row in csv.DictReader(file)]
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path} cannot be read as the history of a run: {error}.") from None


def plot_training(history: Sequence[Mapping[str, float]], ax: Any = None) -> AxesArray:
    """Training curves: log evidence a token, and F1 on the validation split, with the stages marked.

    :param history: see :func:`read_history`.
    :param ax: two axes.
    """
    if not history:
        raise DataError("The history has no epoch; there is nothing to draw.")
    evidence, scores = _grid(ax, 2, (4.6, 3.2))
    epochs = np.arange(1, len(history) + 1)
    stages = np.array([row["stage"] for row in history])
    evidence.plot(epochs, [row["evidence"] for row in history], "o-", color=BLUE, ms=3.5, lw=1.6)
    evidence.set_ylabel("log evidence a token")
    evidence.set_title("Training", pad=16)
    for name, color, style in (("f1", BLUE, "o-"), ("precision", ORANGE, "--"), ("recall", GREEN, "-.")):
        values = [row[f"valid_{name}"] for row in history]
        scores.plot(epochs, values, style, color=color, ms=3.5, lw=1.6, label=name.replace("f1", "F1"))
    scores.set_ylabel("percent")
    scores.set_title("Validation", pad=16)
    for panel in (evidence, scores):
        panel.set_xlabel("epoch, all stages")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        for stage in np.unique(stages):
            (inside,) = np.nonzero(stages == stage)
            if inside[0]:
                panel.axvline(inside[0] + 0.5, color=GRAY, lw=0.8, linestyle=":")
            middle = (inside[0] + inside[-1]) / 2 + 1
            note: dict[str, Any] = {"transform": panel.get_xaxis_transform(), "ha": "center", "fontsize": 8, "color": GRAY}
            panel.text(middle, 1.02, f"stage {stage:.0f}", **note)
        _finish(panel, legend=False)
    if not np.isnan([row["valid_f1"] for row in history]).all():
        scores.legend(fontsize=8, frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.18))
    return np.array([evidence, scores], dtype=object)


def plot_calibration(curves: Mapping[str, Calibration], title: str = "Calibration", ax: Axes | None = None) -> Axes:
    """Reliability diagram: how often the most probable label is right, by its probability; larger dots stand for more tokens.

    :param curves: by name, such as the model's and the vote's.
    """
    (panel,) = _grid(ax, 1, (4.2, 3.8))
    panel.plot([0, 1], [0, 1], color=GRAY, lw=1, linestyle=":")
    for place, (name, found) in enumerate(curves.items()):
        there = found.counts > 0
        x, y = found.confidence[there], found.accuracy[there]
        share = np.sqrt(found.counts[there] / found.counts.sum())
        panel.plot(x, y, color=PALETTE[place], lw=1.4, linestyle=("-", "--", "-.", ":")[place % 4])
        panel.scatter(x, y, s=14 + 160 * share, color=PALETTE[place], marker=_MARKERS[place], linewidths=0, alpha=0.85)
        handle = panel.plot([], [], color=PALETTE[place], marker=_MARKERS[place], ms=6, linestyle=("-", "--", "-.", ":")[place % 4])
        handle[0].set_label(f"{name}, ECE {100 * found.error:.1f} %")
    panel.set(xlabel="probability of the label", ylabel="share of tokens where it is right", xlim=(0, 1.03), ylim=(0, 1.03))
    panel.set_title(title)
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return _finish(panel)


def _finish(panel: Axes, legend: bool = True) -> Axes:
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(alpha=0.25, lw=0.6)
    panel.set_axisbelow(True)
    panel.title.set_fontsize(10)
    if legend:
        panel.legend(fontsize=8, frameon=False)
    return panel
