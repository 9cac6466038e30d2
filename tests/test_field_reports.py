"""What users of such tools report, each with the right value, where no test of the part concerned has it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyro_chmm import Corpus, MajorityVote, SparseCHMM, load_dataset
from pyro_chmm.errors import DataError

SHORT: dict[str, Any] = {"encoder": "none", "select": "evidence", "epochs_stage1": 3, "epochs_stage2": 1, "epochs_stage3": 1}
ORG = [(1, 2, "ORG")]


def test_a_document_nobody_labelled_is_all_o() -> None:
    """skweak#40."""
    data = Corpus.from_spans(
        [["at", "Acme"], ["no", "one"], ["at", "Acme"]] * 10, [[ORG, ORG], [[], []], [ORG, ORG]] * 10, ["ORG"], ["a", "b"]
    )
    model = SparseCHMM(**SHORT).fit(data)
    assert model.predict(data)[1] == ["O", "O"]
    assert all(np.isfinite(part).all() for part in model.predict_proba(data))


def test_a_single_lf_is_followed() -> None:
    """snorkel#1426."""
    data = Corpus.from_spans([["at", "Acme"], ["no", "one"]] * 20, [[ORG], [[]]] * 20, ["ORG"], ["a"])
    assert SparseCHMM(**SHORT).fit(data).predict(data)[:2] == [["O", "B-ORG"], ["O", "O"]]


def test_a_type_beyond_the_declared_set_is_refused_by_name(tmp_path: Path) -> None:
    """snorkel#1316."""
    line = {"id": "d7", "tokens": ["aspirin"], "weak_labels": {"chemist": [[0, 1, "DRUG"]]}}
    (tmp_path / "train.jsonl").write_text(json.dumps(line))
    (tmp_path / "meta.json").write_text('{"entity_types": ["Disease"]}')
    with pytest.raises(DataError, match=r"'d7', LF 'chemist'.*'DRUG'"):
        load_dataset(tmp_path)


def test_nested_spans_are_resolved_and_counted() -> None:
    """spaCy#2550: the longest span stays."""
    data = Corpus.from_spans([["a"] * 5], [[[(0, 4, "ORG"), (1, 2, "LOC")]]], ["ORG", "LOC"], ["x"])
    assert data.label_set.decode_spans(data.weak_labels[:, 0]) == [(0, 4, "ORG")]
    assert data.report.overlaps_dropped == {"x": 1}


def test_a_lone_vote_is_followed() -> None:
    """skweak#49: with default settings, the span that one LF alone saw stays."""
    documents, spans = [["at", "Acme"], ["at", "Acme"]] * 20, [[ORG, [], []], [ORG, ORG, ORG]] * 20
    data = Corpus.from_spans(documents, spans, ["ORG"], ["a", "b", "c"])
    assert SparseCHMM(**SHORT).fit(data).predict(data)[0] == ["O", "B-ORG"]
    assert MajorityVote().predict(data)[0] == ["O", "B-ORG"]


def test_a_reloaded_model_predicts_the_same_in_another_process_and_folder(tmp_path: Path) -> None:
    """snorkel#1460 and #1658, CellBender#266."""
    data = load_dataset("demo").valid
    model = SparseCHMM(**SHORT).fit(data)
    model.save(tmp_path / "here")
    shutil.move(tmp_path / "here", tmp_path / "there")
    code = (
        "import sys, numpy as np, pyro_chmm\n"
        "model = pyro_chmm.SparseCHMM.load(sys.argv[1])\n"
        "np.save(sys.argv[2], np.concatenate(model.predict_proba(pyro_chmm.load_dataset('demo').valid)))\n"
    )
    out = tmp_path / "posterior.npy"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "there"), str(out)], check=True, env=environment)
    np.testing.assert_array_equal(np.load(out, allow_pickle=False), np.concatenate(model.predict_proba(data)))
