"""``pyro-chmm sample``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

import pyro_chmm

from .conftest import invoke, succeeded

xarray = pytest.importorskip("xarray")


def test_draws_of_a_run(demo_run: tuple[Path, Result], tmp_path: Path) -> None:
    out = tmp_path / "posterior.nc"
    result = succeeded("sample", "--model", demo_run[0], "--data", "demo", "--split", "valid", "--draws", 5, "--out", out)
    assert f"Wrote 5 draws for 100 documents to {out}." in result.output
    corpus = pyro_chmm.load_dataset("demo").valid
    posterior = pyro_chmm.SparseCHMM.load(demo_run[0]).posterior(corpus, draws=5)
    with xarray.open_datatree(out) as tree:
        np.testing.assert_allclose(tree["posterior/emission"].values[0], posterior.emission())
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"--model": "nowhere"}, "holds no saved model"),
        ({"--split": "tset"}, "has no tset split"),
        ({"--draws": "0"}, "0 is not in the range x>=1"),
        ({"--out": "no/folder/posterior.nc"}, "in a folder that exists"),
        ({"--device": "tpu"}, "expected cpu or cuda"),
    ],
)
def test_bad_input(changed: dict[str, str], message: str, demo_run: tuple[Path, Result], tmp_path: Path) -> None:
    options = {"--model": str(demo_run[0]), "--data": "demo", "--out": str(tmp_path / "posterior.nc"), **changed}
    result = invoke("sample", *(part for option in options.items() for part in option))
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert list(tmp_path.iterdir()) == []
