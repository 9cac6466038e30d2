"""Models saved by earlier versions: each folder of ``tests/golden`` says what its model must still say.

``format-1`` was fitted on the demo corpus, without a language model; ``expected.json`` has its labels and posterior of the first 20
test documents. A new format gets a new folder, and the old ones stay.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pyro_chmm import SparseCHMM, load_dataset

GOLDEN = sorted((Path(__file__).parents[1] / "golden").iterdir())


@pytest.mark.parametrize("folder", GOLDEN, ids=lambda folder: folder.name)
def test_a_saved_model_says_what_it_said(folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    corpus = load_dataset("demo").test.select_documents(range(20))
    model = SparseCHMM.load(folder)
    assert model.predict(corpus) == expected["labels"]
    assert any(label != "O" for document in expected["labels"] for label in document)
    for found, rows in zip(model.predict_proba(corpus), expected["posterior"], strict=True):
        np.testing.assert_allclose(found, rows, atol=1e-5)
