"""Calibration by hand, and of probabilities that are known to be right."""

import numpy as np
import pytest

from pyro_chmm.errors import DataError
from pyro_chmm.inspection.calibration import calibration


def test_four_tokens_by_hand() -> None:
    """At 0.9, one of two is right; at 0.6, both are: |0.5 - 0.9| / 2 + |1 - 0.6| / 2 = 0.4."""
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.4, 0.6]])
    found = calibration(probabilities, np.array([0, 1, 1, 1]), bins=10)
    assert found.error == pytest.approx(0.4)
    assert found.counts.tolist() == [0, 0, 0, 0, 0, 2, 0, 0, 2, 0]
    assert found.accuracy[[5, 8]].tolist() == [1.0, 0.5]
    assert found.confidence[[5, 8]] == pytest.approx([0.6, 0.9])
    assert np.isnan(found.accuracy[[0, 9]]).all()


def test_a_certain_label_is_in_the_last_bin() -> None:
    found = calibration(np.array([[1.0, 0.0], [0.0, 1.0]], np.float32), np.array([0, 1]), bins=5)
    assert found.counts.tolist() == [0, 0, 0, 0, 2]
    assert found.error == 0


def test_labels_drawn_from_their_probabilities_are_calibrated() -> None:
    """In one bin the error is |mean of 50,000 draws less their expectation|, standard deviation below 0.0021; 5 of them."""
    generator = np.random.default_rng(0)
    probabilities = generator.dirichlet(np.ones(3), size=50_000)
    gold = (generator.random((50_000, 1)) > probabilities.cumsum(axis=1)[:, :2]).sum(axis=1)
    assert calibration(probabilities, gold, bins=1).error < 0.011
    sharper = probabilities**3 / (probabilities**3).sum(axis=1, keepdims=True)
    assert calibration(sharper, gold, bins=15).error > 0.1


@pytest.mark.parametrize(("shape", "tokens"), [((3, 2), 4), ((3,), 3), ((0, 2), 0)])
def test_what_does_not_fit_is_refused(shape: tuple[int, ...], tokens: int) -> None:
    with pytest.raises(DataError, match="give no calibration"):
        calibration(np.zeros(shape), np.zeros(tokens, np.int64))
