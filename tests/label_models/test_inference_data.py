"""Draws as a tree for ArviZ, and as a file that another program reads with xarray alone."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyro_chmm
from pyro_chmm import Corpus, SparseCHMM
from pyro_chmm.errors import ConfigError
from pyro_chmm.label_models.inference_data import to_inference_data, write_inference_data
from pyro_chmm.label_models.posterior import Posterior

xarray = pytest.importorskip("xarray")


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    """20 draws for 6 documents."""
    demo = pyro_chmm.load_dataset("demo")
    few: dict[str, Any] = {"encoder": "none", "epochs_stage1": 1, "epochs_stage2": 1, "epochs_stage3": 1, "verify": False}
    model = SparseCHMM(**few).fit(demo.train.select_documents(range(40)))
    return model.posterior(demo.test.select_documents(range(6)), draws=20, seed=3)


def test_groups_dimensions_and_coordinates(posterior: Posterior) -> None:
    tree, corpus = posterior.to_inference_data(), posterior.corpus
    assert list(tree.children) == ["posterior", "posterior_predictive", "observed_data", "constant_data"]
    assert tree["posterior/emission"].dims == ("chain", "draw", "lf", "true_label", "observed_label")
    assert tree["posterior/reliability"].dims == ("chain", "draw", "lf", "entity_type")
    assert tree["posterior/label"].dims == ("chain", "draw", "token")
    assert tree["posterior_predictive/weak_label"].dims == ("chain", "draw", "token", "lf")
    assert tree["observed_data/weak_label"].dims == ("token", "lf")
    constant = tree["constant_data"]
    assert tree["posterior"].coords["true_label"].values.tolist() == list(corpus.label_set.names)
    assert constant.coords["document"].values.tolist() == list(corpus.document_ids)
    assert constant["text"].values.tolist() == [word for words in corpus.tokens for word in words]
    assert constant["token_place"].values[corpus.offsets[2] + 1] == 1
    assert constant["token_document"].values[corpus.offsets[2]] == corpus.document_ids[2]
    np.testing.assert_array_equal(constant["gold_label"], corpus.gold)
    np.testing.assert_array_equal(tree["observed_data/weak_label"], corpus.weak_labels)


def test_values_are_those_of_the_documents(posterior: Posterior) -> None:
    tree, corpus = posterior.to_inference_data(), posterior.corpus
    np.testing.assert_allclose(tree["posterior/emission"].values[0], posterior.emission())
    np.testing.assert_allclose(tree["posterior/reliability"].values[0], posterior.reliabilities())
    for document in posterior:
        place = corpus.document_slice(document.document)
        np.testing.assert_array_equal(tree["posterior/label"].values[0][:, place], document.labels)
        np.testing.assert_array_equal(tree["posterior_predictive/weak_label"].values[0][:, place], document.weak_labels)
        np.testing.assert_allclose(tree["constant_data/label_probability"].values[place], document.marginals, atol=1e-6)


def test_a_fresh_process_reads_the_file_with_xarray_alone(posterior: Posterior, tmp_path: Path) -> None:
    out = tmp_path / "posterior.nc"
    write_inference_data(posterior, out)
    program = (
        "import json, sys, xarray\n"
        "tree = xarray.open_datatree(sys.argv[1])\n"
        "lf = tree['posterior/emission'].sel(lf='title', true_label='B-PER', observed_label='O')\n"
        "assert not any(name.startswith(('pyro', 'torch', 'arviz')) for name in sys.modules)\n"
        "print(json.dumps([lf.values[0].tolist(), tree['constant_data/text'].values.tolist()]))\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program, str(out)], capture_output=True, text=True, check=True)
    emission, words = json.loads(done.stdout)
    corpus = posterior.corpus
    expected = posterior.emission()[:, corpus.lf_names.index("title"), corpus.label_set.id("B-PER"), 0]
    np.testing.assert_allclose(emission, expected)
    assert words == [word for document in corpus.tokens for word in document]


@pytest.mark.parametrize("word", ["a\0b", "half \ud83d of a pair", "\N{GRINNING FACE}", ""])
def test_any_text_can_be_written(word: str, posterior: Posterior, tmp_path: Path) -> None:
    corpus = posterior.corpus.select_documents([0])
    words = [word, *corpus.tokens[0][1:]]
    strange = Posterior(posterior.conditionals, posterior.packed, replace(corpus, tokens=[words]), draws=2, seed=0)
    write_inference_data(strange, tmp_path / "posterior.nc")
    with xarray.open_datatree(tmp_path / "posterior.nc") as tree:
        clean = word.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
        assert tree["constant_data/text"].values[0] == clean


def test_a_corpus_without_tokens(posterior: Posterior, tmp_path: Path) -> None:
    labels, lfs = posterior.corpus.label_set, posterior.corpus.lf_names
    nothing = Corpus.from_spans([[], []], [[[]] * len(lfs)] * 2, labels.entity_types, lfs)
    few: dict[str, Any] = {"encoder": "none", "epochs_stage1": 1, "epochs_stage2": 0, "epochs_stage3": 0, "verify": False}
    model = SparseCHMM(**few).fit(posterior.corpus)
    write_inference_data(model.posterior(nothing, draws=2), tmp_path / "posterior.nc")
    with xarray.open_datatree(tmp_path / "posterior.nc") as tree:
        assert tree["posterior/label"].shape == (1, 2, 0)
        assert "gold_label" not in tree["constant_data"]


def test_a_write_that_fails_leaves_the_old_file(posterior: Posterior, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "posterior.nc"
    out.write_bytes(b"old")

    def fails(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(xarray.DataTree, "to_netcdf", fails)
    with pytest.raises(ConfigError, match=r"posterior.nc cannot be written \(No space left on device\)"):
        write_inference_data(posterior, out)
    assert out.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("place", ["nowhere/posterior.nc", "."])
def test_a_place_where_nothing_can_be_written(place: str, posterior: Posterior, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a file's name in a folder that exists"):
        write_inference_data(posterior, tmp_path / place)


def test_without_arviz_base_it_says_what_to_install(posterior: Posterior, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "arviz_base", None)
    with pytest.raises(ConfigError, match=r"pip install 'pyro-chmm\[inspect\]'"):
        to_inference_data(posterior)
