"""Pictures show the numbers that they are given, on the axes that they are given."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

from pyro_chmm.errors import DataError
from pyro_chmm.inspection import plots
from pyro_chmm.inspection.believed import diagonal_intervals
from pyro_chmm.inspection.calibration import calibration
from pyro_chmm.model.config import SparseCHMMConfig

LABELS = ("O", "B-X", "I-X")


def test_emissions_side_by_side() -> None:
    model, true = np.eye(3), np.full((3, 3), np.nan)
    true[0] = (0.25, 0.75, 0)
    axes = plots.plot_emission({"stage 1": model, "true": true}, LABELS)
    assert [panel.get_title() for panel in axes] == ["stage 1", "true"]
    np.testing.assert_array_equal(axes[0].images[0].get_array(), model)
    assert [text.get_text() for text in axes[0].texts] == ["1", "1", "1"]
    assert [text.get_text() for text in axes[1].texts] == [".25", ".75", *"––––––"]
    assert [label.get_text() for label in axes[0].get_xticklabels()] == list(LABELS)


def test_the_axes_given_are_drawn_on() -> None:
    _, (left, right) = plt.subplots(1, 2)
    assert list(plots.plot_expansion(SparseCHMMConfig(), 5, np.array([left, right]))) == [left, right]
    assert plots.plot_scaling(SparseCHMMConfig(), 4, left) is left
    with pytest.raises(DataError, match="2 panels, and 1 axes"):
        plots.plot_expansion(SparseCHMMConfig(), 5, left)


def test_h_and_g_go_where_the_paper_says() -> None:
    config = SparseCHMMConfig()
    own = plots.plot_scaling(config, 4).lines[-1]
    assert "this model" in own.get_label()
    y = own.get_ydata()
    assert (y[0], y[-1]) == pytest.approx((0, 1), abs=1e-6)
    assert (np.diff(y) >= 0).all()
    entries, exponents = plots.plot_expansion(config, 5)
    right, to_o, others = (line.get_ydata() for line in entries.lines)
    np.testing.assert_allclose(right + to_o + 3 * others, 1, atol=1e-9)
    assert (exponents.lines[-1].get_ydata()[0], exponents.lines[-1].get_ydata()[-1]) == pytest.approx((1, 0), abs=1e-6)


def test_expected_against_true_f1_names_the_correlations() -> None:
    reliability, f1 = np.array([[0.1, 0.2], [0.5, 0.6], [0.9, 0.8]]), np.array([[0.0, np.nan], [0.4, 0.5], [0.8, 0.7]])
    panel = plots.plot_expected_against_true_f1(reliability, f1, list("abc"), ["PER", "LOC"])
    assert panel.get_title() == "Pearson 1.00, Spearman 1.00"
    assert [text.get_text() for text in panel.get_legend().get_texts()] == ["PER", "LOC"]
    of_lfs = plots.plot_expected_against_true_f1(reliability[:, :1], f1[:, :1] * [[1], [1], [0.25]], list("abc"), ["PER"])
    assert [text.get_text() for text in of_lfs.get_legend().get_texts()] == ["a", "b", "c"]
    assert of_lfs.get_title() == "Pearson 0.50, Spearman 0.50"
    same = plots.plot_expected_against_true_f1(np.full((3, 1), 0.5), f1[:, :1], list("abc"), ["PER"])
    assert same.get_title() == "Too few points for a correlation"


def test_intervals_are_drawn_a_panel_a_label() -> None:
    found = diagonal_intervals(np.full((1, 2, 3, 3), 4.0))
    axes = plots.plot_reliabilities(found, ["one", "two"], LABELS)
    assert [panel.get_title() for panel in axes] == list(LABELS)
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["one", "two"]
    segments = axes[1].collections[0].get_segments()
    np.testing.assert_allclose(segments[0][:, 0], [found.low[0, 1], found.high[0, 1]])


def test_training_curves_of_a_history(tmp_path: Path) -> None:
    file = tmp_path / "history.csv"
    file.write_text("stage,epoch,evidence,valid_f1,valid_precision,valid_recall\n1,1,-2,50,40,60\n1,2,-1,60,,\n2,1,-0.5,70,70,70\n")
    history = plots.read_history(file)
    assert np.isnan(history[1]["valid_recall"])
    evidence, scores = plots.plot_training(history)
    assert evidence.lines[0].get_ydata().tolist() == [-2, -1, -0.5]
    assert scores.lines[0].get_ydata().tolist() == [50, 60, 70]
    assert [text.get_text() for text in evidence.texts] == ["stage 1", "stage 2"]
    with pytest.raises(DataError, match="no epoch"):
        plots.plot_training([])
    file.write_text("stage,epoch\none,two\n")
    with pytest.raises(DataError, match="cannot be read as the history of a run"):
        plots.read_history(file)


def test_calibration_says_the_error_and_tells_curves_apart() -> None:
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.4, 0.6]])
    found = calibration(probabilities, np.array([0, 1, 1, 1]))
    panel = plots.plot_calibration({"model": found, "vote": found}, "T")
    assert panel.get_title() == "T"
    assert [text.get_text() for text in panel.get_legend().get_texts()] == ["model, ECE 40.0 %", "vote, ECE 40.0 %"]
    assert [to_hex(points.get_facecolor()[0]) for points in panel.collections] == [plots.BLUE, plots.ORANGE]
    np.testing.assert_allclose(panel.collections[0].get_offsets(), [[0.6, 1.0], [0.9, 0.5]])
