"""What users of such tools report, each with the right value, where no test of the part concerned has it.

Those of odd characters and of texts longer than the language model's window (flair#1600, allennlp#2493) are in
``tests/data/test_encoder.py``, that of a loss that is not finite (CellBender#52) in ``tests/model/test_training.py``.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from pyro_chmm.cli.main import main

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


def test_a_posterior_that_overrides_the_votes_explains_itself() -> None:
    """snorkel#1555: whoever reads the explanation can add it up."""
    wrong, right = [(0, 1, "ORG")], [(1, 2, "ORG")]
    data = Corpus.from_spans([["at", "Acme"]] * 30, [[right, right, right]] * 29 + [[wrong, None, None]], ["ORG"], ["a", "b", "c"])
    found = SparseCHMM(**SHORT).fit(data).explain(data, 29, 0)
    assert [vote.label for vote in found.votes] == ["B-ORG", None, None]
    assert found.votes[0].reliability is not None
    product = np.array(found.evidence) * found.left * found.right
    np.testing.assert_allclose(product / product.sum(), found.marginals, atol=1e-4)
    np.testing.assert_allclose(sum(np.array(v.log_evidence) * 1 for v in found.votes if v.weight), found.log_evidence, atol=1e-5)
    assert found.label == ("O", "B-ORG", "I-ORG")[int(np.argmax(found.marginals))]


def test_enumeration_neither_runs_out_of_dimensions_nor_of_memory() -> None:
    """pyro#1575: a document of 70 tokens; pyro#3068: what 300 steps take, the last 250 do not add to."""
    long = Corpus.from_spans([["at", "Acme"] * 35], [[ORG, []]], ["ORG"], ["a", "b"])
    settings = SHORT | {"epochs_stage1": 1, "epochs_stage2": 0, "epochs_stage3": 0, "marginalize": "enum"}
    fast = SparseCHMM(**settings | {"marginalize": "fast"}).fit(long).predict_proba(long)[0]
    np.testing.assert_allclose(SparseCHMM(**settings).fit(long).predict_proba(long)[0], fast, atol=1e-4)

    data = Corpus.from_spans([["at", "Acme", "now"]] * 20, [[ORG, ORG]] * 20, ["ORG"], ["a", "b"])
    resident: list[float] = []
    model = SparseCHMM(**settings | {"epochs_stage1": 300, "patience": 300, "batch_size": 20})

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith("stage 1, epoch"):
                pages = int(Path("/proc/self/statm").read_text().split()[1])
                resident.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)

    logger, handler = logging.getLogger("pyro_chmm.model.training"), Watch()
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        model.fit(data)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    assert len(resident) == 300
    assert resident[-1] - resident[50] < 20  # megabytes


def test_the_vote_is_printed_beside_the_model(tmp_path: Path) -> None:
    """snorkel#1713."""
    options = [f"--{name.replace('_', '-')}={value}" for name, value in SHORT.items()]
    result = CliRunner().invoke(main, ["fit", "--data", "demo", "--out", str(tmp_path / "run"), *options])
    assert result.exit_code == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    line = next(line for line in result.stdout.splitlines() if "majority vote" in line)
    assert f"{metrics['majority_vote']['test']['f1']:.2f}" in line


def test_ten_thousand_documents_take_seconds_an_epoch() -> None:
    """skweak#49's neighbour, skweak#53: 10,000 documents of 25 tokens; epochs do not add up in memory."""
    documents = [["at", "Acme", *(f"w{(m * 7 + t) % 5000}" for t in range(23))] for m in range(10_000)]
    data = Corpus.from_spans(documents, [[ORG, ORG if m % 3 else [], [(3, 5, "ORG")] if m % 5 == 0 else []] for m in range(10_000)],
                             ["ORG"], ["a", "b", "c"])  # fmt: skip
    model = SparseCHMM(**SHORT | {"epochs_stage1": 2}).fit(data)
    assert model.seconds_per_epoch_["1"] < 30  # about 2 on one free core
