"""The vector type by itself, in small kernels compiled here."""

from typing import Any

import numba
import numpy as np
import pytest

from pyro_chmm.chain.lanes import WIDTH, exp, gather, larger, load, scatter, spread, store, where_below


@numba.njit
def _exp_lanes(x: Any, out: Any) -> None:
    for k in range(0, len(x), WIDTH):
        store(out, k, exp(load(x, k)))


@numba.njit
def _exp_numbers(x: Any, out: Any) -> None:
    for k in range(len(x)):
        out[k] = exp(x[k])


@pytest.mark.parametrize("run", [_exp_lanes, _exp_numbers])
@pytest.mark.parametrize(("dtype", "least", "most", "tolerance"), [("f4", -87, 88, 2e-7), ("f8", -700, 700, 4e-16)])
def test_exp(run: Any, dtype: str, least: float, most: float, tolerance: float) -> None:
    x = np.concatenate([np.linspace(least, most, 79_992), np.linspace(-1, 1, 20_000), [0, -0.0] * 4]).astype(dtype)
    out = np.empty_like(x)
    run(x, out)
    expected = np.exp(x.astype(np.longdouble))
    assert np.abs(out / expected - 1).max() < tolerance
    assert (out[-8:] == 1).all()


@pytest.mark.parametrize("run", [_exp_lanes, _exp_numbers])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_exp_at_its_ends(run: Any, dtype: str) -> None:
    x = np.array([-np.inf, -1e30, -710, np.nan, -np.nan, 0, -np.inf, 0], dtype)
    out = np.empty_like(x)
    run(x, out)
    np.testing.assert_array_equal(out, np.array([0, 0, 0, np.nan, np.nan, 1, 0, 1], dtype))


@numba.njit
def _arithmetic(a: Any, b: Any, out: Any) -> None:
    x, y = load(a, 0), load(b, 0)
    store(out, 0, (x + y) * 2.0 - 1.0 / y)
    store(out, 8, larger(x, y))
    store(out, 16, where_below(x, y, x, 7.0))
    store(out, 24, spread(a, 3.5))
    store(out, 32, 4)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_arithmetic(dtype: str) -> None:
    a = np.array([1, 2, 3, 4, -5, 6, np.nan, 8], dtype)
    b = np.array([8, -7, 3, 5, 4, 3, 2, 0.5], dtype)
    out = np.empty(40, dtype)
    _arithmetic(a, b, out)
    np.testing.assert_allclose(out[:8], (a + b) * 2 - 1 / b, rtol=1e-6)
    np.testing.assert_array_equal(out[8:16], np.where(a > b, a, b))
    np.testing.assert_array_equal(out[16:24], np.where(a < b, a, 7))
    assert (out[24:32] == 3.5).all()
    assert (out[32:] == 4).all()


@numba.njit
def _there_and_back(source: Any, starts: Any, width: int, middle: Any, target: Any) -> None:
    gather(source, starts, width, middle, 8)
    scatter(middle, 8, width, target, starts)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("width", [1, 7, 8, 9, 25, 81])
def test_gather_and_scatter(dtype: str, width: int) -> None:
    rows = np.random.default_rng(0).normal(size=(20, width)).astype(dtype)
    starts = np.array([3, 0, 19, 7, 7, 12, 1, 5])
    middle = np.zeros(8 + 8 * width, dtype)
    target = np.zeros_like(rows)
    _there_and_back(rows.reshape(-1), starts, width, middle, target.reshape(-1))
    np.testing.assert_array_equal(middle[8:].reshape(width, 8), rows[starts].T)
    expected = np.zeros_like(rows)
    expected[starts] = rows[starts]
    np.testing.assert_array_equal(target, expected)
