"""Sparse-CHMM as users have it: fit, predict, save, load, and what it says to bad input."""

from __future__ import annotations

import gc
import json
import shutil
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyro.distributions import Dirichlet, TorchDistribution

import pyro_chmm
from pyro_chmm import SparseCHMM
from pyro_chmm.data import batching
from pyro_chmm.data.corpus import Corpus, CorpusSplits
from pyro_chmm.data.labels import O
from pyro_chmm.errors import ConfigError, DataError, ModelFileError
from pyro_chmm.model.conditionals import Conditionals
from pyro_chmm.model.priors import Diagonal

FEW: dict[str, Any] = {
    "encoder": "none",
    "pretrain_steps": 2,
    "epochs_stage1": 2,
    "epochs_stage2": 2,
    "epochs_stage3": 2,
    "verify": False,
}


@pytest.fixture(scope="module")
def demo() -> CorpusSplits:
    """The demo corpus, a part of it: 60, 30 and 30 documents."""
    whole = pyro_chmm.load_dataset("demo")
    sizes = {"train": 60, "valid": 30, "test": 30}
    return CorpusSplits("demo", {name: whole[name].select_documents(range(size)) for name, size in sizes.items()})


@pytest.fixture(scope="module")
def fitted(demo: CorpusSplits) -> SparseCHMM:
    """Fitted, and changed by no test."""
    return SparseCHMM(**FEW).fit(demo.train, valid=demo.valid)


def finite(model: SparseCHMM, corpus: Corpus) -> bool:
    losses = [record.loss for record in model.history_]
    return bool(np.isfinite([*losses, *np.concatenate(model.predict_proba(corpus)).ravel()]).all())


# the way the README shows


def test_five_lines(tmp_path: Path, demo: CorpusSplits) -> None:
    corpus = demo
    model = pyro_chmm.SparseCHMM(**FEW)
    assert model.fit(corpus.train, valid=corpus.valid) is model
    labels = model.predict(corpus.test)
    model.save(tmp_path / "model")
    assert SparseCHMM.load(tmp_path / "model").predict(corpus.test) == labels
    assert model.stages_ == (1, 2, 3)
    assert model.best_stage_ in model.stages_
    assert set(model.seconds_per_epoch_) == {"1", "2", "3"}
    assert all(seconds > 0 for seconds in model.seconds_per_epoch_.values())
    assert [(record.stage, record.epoch) for record in model.history_] == [(s, e) for s in (1, 2, 3) for e in (1, 2)]
    scores = {record.valid_f1 for record in model.history_} | {model.score(corpus.valid).f1}
    assert model.score(corpus.valid).f1 == max(score for score in scores if score is not None)


def test_it_beats_majority_voting_on_the_demo() -> None:
    corpus = pyro_chmm.load_dataset("demo")
    model = SparseCHMM(**{**FEW, "epochs_stage1": 5}).fit(corpus.train, valid=corpus.valid)
    assert model.score(corpus.test).f1 > pyro_chmm.MajorityVote().score(corpus.test).f1


def test_posteriors_are_one_a_document_and_sum_to_1(fitted: SparseCHMM, demo: CorpusSplits) -> None:
    found = fitted.predict_proba(demo.test)
    assert [part.shape for part in found] == [(len(words), 7) for words in demo.test.tokens]
    packed = np.concatenate(found)
    np.testing.assert_allclose(packed.sum(-1), 1, atol=1e-6)
    assert (packed >= 0).all()


def test_means_over_documents(fitted: SparseCHMM, demo: CorpusSplits) -> None:
    reliabilities, emission = fitted.reliabilities(demo.test), fitted.emission(demo.test)
    assert reliabilities.shape == (6, 7)
    assert ((reliabilities > 0) & (reliabilities < 1)).all()
    assert emission.shape == (6, 7, 7)
    np.testing.assert_allclose(emission.sum(-1), 1, atol=1e-6)


# documents: order, emptiness, batches


def test_empty_documents_are_kept_in_order(fitted: SparseCHMM, demo: CorpusSplits) -> None:
    """Field report 3."""
    test = demo.test
    spans: list[list[Any]] = [[[] for _ in test.lf_names] for _ in range(3)]
    padded = Corpus.from_spans([[], ["Anna", "sings"], []], spans, test.label_set.entity_types, test.lf_names)
    both = Corpus.concatenate([padded, test.select_documents([4]), padded])
    labels, posteriors = fitted.predict(both), fitted.predict_proba(both)
    lengths = [0, 2, 0, len(test.tokens[4]), 0, 2, 0]
    assert [len(part) for part in labels] == lengths
    assert [part.shape for part in posteriors] == [(length, 7) for length in lengths]
    assert labels[3] == fitted.predict(test)[4]


def test_a_corpus_of_no_tokens_has_no_labels(fitted: SparseCHMM, demo: CorpusSplits) -> None:
    test = demo.test
    nothing = Corpus.from_spans([[], []], [[[]] * 6] * 2, test.label_set.entity_types, test.lf_names)
    assert fitted.predict(nothing) == [[], []]
    assert [part.shape for part in fitted.predict_proba(nothing)] == [(0, 7), (0, 7)]
    none_at_all = test.select_documents([])
    assert fitted.predict(none_at_all) == fitted.predict_proba(none_at_all) == []


def test_labels_do_not_depend_on_the_order_of_documents(fitted: SparseCHMM, demo: CorpusSplits) -> None:
    order = np.random.default_rng(0).permutation(demo.test.num_documents)
    shuffled = demo.test.select_documents(order)
    labels, posteriors = fitted.predict(demo.test), fitted.predict_proba(demo.test)
    assert fitted.predict(shuffled) == [labels[m] for m in order]
    for found, m in zip(fitted.predict_proba(shuffled), order, strict=True):
        np.testing.assert_allclose(found, posteriors[m], atol=1e-5)


@pytest.mark.parametrize("max_tokens", [1, 50])
def test_labels_do_not_depend_on_the_size_of_batches(
    max_tokens: int, fitted: SparseCHMM, demo: CorpusSplits, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, posteriors = fitted.predict(demo.test), fitted.predict_proba(demo.test)
    in_order = batching.PackedCorpus.in_order
    monkeypatch.setattr(batching.PackedCorpus, "in_order", lambda packed: in_order(packed, max_tokens))
    assert fitted.predict(demo.test) == labels
    for found, expected in zip(fitted.predict_proba(demo.test), posteriors, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_lfs_are_matched_by_name(fitted: SparseCHMM, demo: CorpusSplits) -> None:
    turned = demo.test.select_lfs(demo.test.lf_names[::-1])
    assert fitted.predict(turned) == fitted.predict(demo.test)


# field reports

WORDS = [["Anna", "Lee", "sings"], ["nobody", "is", "here"], ["Oslo", "hears", "Anna", "Lee"]]


def few_documents(*lfs: list[list[Any]]) -> Corpus:
    return Corpus.from_spans(
        WORDS, [list(spans) for spans in zip(*lfs, strict=True)], ["PER", "LOC"], [f"lf{k}" for k in range(len(lfs))]
    )


PEOPLE: list[list[Any]] = [[(0, 2, "PER")], [], [(2, 4, "PER")]]
PLACES: list[list[Any]] = [[], [], [(0, 1, "LOC")]]


def test_a_document_nobody_labelled_is_all_o() -> None:
    """Field report 1."""
    corpus = few_documents(PEOPLE, PEOPLE, PLACES)
    model = SparseCHMM(**FEW).fit(corpus)
    assert finite(model, corpus)
    assert model.predict(corpus)[1] == ["O", "O", "O"]


def test_a_document_where_all_abstain_is_all_o(demo: CorpusSplits) -> None:
    """Field report 1, where the source says that no LF looked: what follows is the transitions' word alone."""
    weak = demo.train.weak_labels.copy()
    weak[demo.train.document_slice(1)] = -1
    corpus = replace(demo.train, weak_labels=weak)
    model = SparseCHMM(**FEW).fit(corpus)
    assert finite(model, corpus)
    assert set(model.predict(corpus)[1]) == {"O"}


def test_one_span_in_all() -> None:
    """Field report 2."""
    silent: list[list[Any]] = [[], [], []]
    corpus = few_documents(*[silent] * 4, [[(0, 2, "PER")], [], []])
    model = SparseCHMM(**FEW).fit(corpus)
    assert finite(model, corpus)


@pytest.mark.parametrize("level", ["label", "entity"])
def test_a_single_lf_is_followed(level: str) -> None:
    """Field report 4."""
    corpus = few_documents(PEOPLE)
    model = SparseCHMM(**FEW, reliability_level=level).fit(corpus)
    assert finite(model, corpus)
    assert model.predict(corpus) == [["B-PER", "I-PER", "O"], ["O"] * 3, ["O", "O", "B-PER", "I-PER"]]
    assert finite(SparseCHMM(**FEW).fit(few_documents(PEOPLE, PLACES)), few_documents(PEOPLE, PLACES))


@pytest.mark.parametrize("quiet", [[], None])
def test_a_silent_lf_changes_nothing_finite(quiet: list[Any] | None) -> None:
    """Field report 5: in training, and in one split alone."""
    corpus = few_documents(PEOPLE, PLACES, [quiet] * 3)
    model = SparseCHMM(**FEW).fit(corpus)
    assert finite(model, corpus)
    assert model.predict(corpus) == [["B-PER", "I-PER", "O"], ["O"] * 3, ["B-LOC", "O", "B-PER", "I-PER"]]
    talkative = few_documents(PEOPLE, PLACES, PLACES)
    assert finite(SparseCHMM(**FEW).fit(talkative), corpus)


def test_a_saved_model_predicts_in_a_new_process_from_another_folder(
    fitted: SparseCHMM, demo: CorpusSplits, tmp_path: Path
) -> None:
    """Field reports 14 and 20."""
    fitted.save(tmp_path / "made")
    moved = shutil.move(tmp_path / "made", tmp_path / "moved here")
    script = (
        "import sys, numpy as np, pyro_chmm\n"
        "model = pyro_chmm.SparseCHMM.load(sys.argv[1])\n"
        "test = pyro_chmm.load_dataset('demo').test.select_documents(range(30))\n"
        "np.savez(sys.argv[2], posterior=np.concatenate(model.predict_proba(test)), labels=model.predict_ids(test))\n"
    )
    subprocess.run([sys.executable, "-c", script, moved, tmp_path / "found.npz"], check=True)
    with np.load(tmp_path / "found.npz") as found:
        np.testing.assert_array_equal(found["posterior"], np.concatenate(fitted.predict_proba(demo.test)))
        np.testing.assert_array_equal(found["labels"], fitted.predict_ids(demo.test))


def test_a_loaded_model_is_the_same_in_all_it_says(fitted: SparseCHMM, demo: CorpusSplits, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    loaded = SparseCHMM.load(tmp_path)
    assert loaded.config == fitted.config
    assert loaded.lf_names == fitted.lf_names
    np.testing.assert_array_equal(loaded.emission(demo.test), fitted.emission(demo.test))
    np.testing.assert_array_equal(loaded.reliabilities(demo.test), fitted.reliabilities(demo.test))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


# hyper-parameters


ABLATIONS: dict[str, dict[str, Any]] = {
    "naive emission": {"naive_emission": True},
    "no h": {"scale_reliability": False},
    "no SoftMax": {"softmax_reliability": False},
    "no Dirichlet": {"sample_emission": False},
    "no stage 2": {"stage2": "none"},
    "merged stages": {"stage2": "merged"},
    "entity level": {"reliability_level": "entity"},
    "majority vote LF": {"majority_vote_lf": True},
    "O as evidence": {"o_weight_contested": 1.0, "o_weight_silent": 1.0},
    "O as nothing": {"o_weight_contested": 0.0, "o_weight_silent": 0.0},
    "sharpened": {"posterior_sharpening": 1.0},
    "detached": {"detach_base_prior": True},
    "WXOR by sum": {"wxor_normalization": "sum"},
    "WXOR as rate": {"wxor_normalization": "rate"},
    "a true prior": {"emission_prior": "diagonal:50"},
    "full transition": {"shared_transition": False},
    "unconstrained": {"constrained_decoding": False},
    "no epochs after stage 1": {"epochs_stage2": 0, "epochs_stage3": 0, "pretrain_steps": 0},
}


@pytest.mark.parametrize("name", ABLATIONS)
def test_every_switch_trains_and_is_saved(name: str, demo: CorpusSplits, tmp_path: Path) -> None:
    short = {**FEW, **{f"epochs_stage{stage}": 1 for stage in (1, 2, 3)}, "verify": True}
    model = SparseCHMM(**{**short, **ABLATIONS[name]}).fit(demo.train, valid=demo.valid)
    assert finite(model, demo.test)
    assert model.reliabilities(demo.test).shape == (6, 7)
    model.save(tmp_path)
    loaded = SparseCHMM.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict_ids(demo.test), model.predict_ids(demo.test))


def starts_inside(corpus: Corpus, ids: np.ndarray) -> int:
    """Number of I-labels after another type, O or nothing."""
    repaired = [corpus.label_set.repair(ids[corpus.document_slice(m)]) for m in range(corpus.num_documents)]
    return int((np.concatenate(repaired) != ids).sum())


def test_constrained_decoding_gives_valid_bio_alone() -> None:
    """An LF that says I where a span starts, believed."""
    spans: list[list[Any]] = [[(0, 2, "PER")], [], [(2, 4, "PER")]]
    corpus = few_documents(spans, spans)
    weak = corpus.weak_labels.copy()
    weak[weak == 1] = 2
    corpus = replace(corpus, weak_labels=weak)
    found = {}
    for constrained in (True, False):
        model = SparseCHMM(**FEW, constrained_decoding=constrained).fit(corpus)
        found[constrained] = starts_inside(corpus, model.predict_ids(corpus))
        posteriors = np.concatenate(model.predict_proba(corpus))
        starts = corpus.offsets[:-1]
        assert (posteriors[starts][:, [2, 4]].max() == 0) == constrained
    assert found[True] == 0
    assert found[False] > 0


def test_enumeration_and_the_fast_path_give_the_same_labels(demo: CorpusSplits) -> None:
    tiny = demo.train.select_documents(range(8))
    labels, losses = [], []
    for marginalize in ("fast", "enum"):
        model = SparseCHMM(**FEW, marginalize=marginalize, seed=1).fit(tiny)
        labels.append(model.predict(demo.test))
        losses.append([record.loss for record in model.history_])
    assert labels[0] == labels[1]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


def test_two_fits_with_one_seed_are_equal_to_the_last_digit(fitted: SparseCHMM, demo: CorpusSplits) -> None:
    SparseCHMM(**FEW, seed=7).fit(demo.train, valid=demo.valid)  # another fit in between leaves no trace
    torch.manual_seed(99)
    again = SparseCHMM(**FEW).fit(demo.train, valid=demo.valid)
    assert [replace(record, seconds=0) for record in again.history_] == [replace(record, seconds=0) for record in fitted.history_]
    np.testing.assert_array_equal(again.predict_ids(demo.test), fitted.predict_ids(demo.test))
    other = SparseCHMM(**FEW, seed=1).fit(demo.train, valid=demo.valid)
    assert other.history_[0].loss != fitted.history_[0].loss


def test_a_fit_leaves_the_global_generator_alone(demo: CorpusSplits) -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    SparseCHMM(**FEW).fit(demo.train.select_documents(range(4)))
    assert torch.equal(torch.rand(1), expected)


def test_priors_are_objects_and_callables_too(demo: CorpusSplits, tmp_path: Path) -> None:
    def prior(document_vectors: torch.Tensor) -> TorchDistribution:
        return Dirichlet(torch.eye(7).mul(5).add(1).expand(len(document_vectors), 6, 7, 7)).to_event(2)

    for given, spec in ((Diagonal(20.0), "diagonal:20"), (prior, "callable")):
        model = SparseCHMM(**FEW, emission_prior=given).fit(demo.train)
        assert finite(model, demo.test)
        model.save(tmp_path)
        assert SparseCHMM.load(tmp_path).config.emission_prior == spec


# what gold labels are for


def test_by_evidence_no_gold_is_seen(demo: CorpusSplits) -> None:
    with_gold = SparseCHMM(**FEW, select="evidence").fit(demo.train, valid=demo.valid)
    without = SparseCHMM(**FEW, select="evidence").fit(demo.train.without_gold(), valid=demo.valid.without_gold())
    assert all(record.valid_f1 is None for record in with_gold.history_)
    assert [record.selection for record in with_gold.history_] == [record.selection for record in without.history_]
    np.testing.assert_array_equal(with_gold.predict_ids(demo.test), without.predict_ids(demo.test))


def test_silence_is_weighed_by_validation_f1(demo: CorpusSplits, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that is right at one weight alone: that one is chosen, and among equals the present one stays."""
    best = [0.7]

    def most_probable(conditionals: Conditionals, batch: batching.PackedBatch, logits: Any) -> Any:
        assert demo.valid.gold is not None  # and all of it is one batch
        right = conditionals.config.o_weight_prediction == best[0]
        return torch.tensor(demo.valid.gold if right else np.zeros_like(demo.valid.gold))

    with monkeypatch.context() as patch:
        patch.setattr("pyro_chmm.label_models.prediction.most_probable", most_probable)
        assert SparseCHMM(**FEW).fit(demo.train, valid=demo.valid).config.o_weight_prediction == 0.7
        best[0] = 0.1  # none of those that are tried
        assert SparseCHMM(**FEW).fit(demo.train, valid=demo.valid).config.o_weight_prediction == 0.5
        best[0] = 0.7
        chosen_by_the_user = SparseCHMM(**FEW, o_weight_prediction=0.3).fit(demo.train, valid=demo.valid)
        assert chosen_by_the_user.config.o_weight_prediction == 0.3
        by_evidence = SparseCHMM(**FEW, select="evidence").fit(demo.train, valid=demo.valid)
        assert by_evidence.config.o_weight_prediction == 0.5  # no gold label is looked at


def test_the_weight_of_silence_counts_in_prediction(demo: CorpusSplits) -> None:
    loud, quiet = (SparseCHMM(**FEW, select="evidence", o_weight_prediction=w).fit(demo.train, demo.valid) for w in (1.0, 0.1))
    silent = (demo.test.weak_labels <= O).all(axis=1)
    of_o = [np.concatenate(model.predict_proba(demo.test))[silent, 0].mean() for model in (loud, quiet)]
    assert of_o[0] > of_o[1] + 1e-4


def test_gold_labels_of_the_training_documents_are_never_seen(demo: CorpusSplits) -> None:
    """Without validation documents, the evidence of the training documents chooses epochs."""
    models = [SparseCHMM(**FEW).fit(corpus) for corpus in (demo.train, demo.train.without_gold())]
    assert all(record.valid_f1 is None for model in models for record in model.history_)
    assert models[0].history_[-1].selection == models[1].history_[-1].selection
    wrong = replace(demo.train, gold=np.zeros(demo.train.num_tokens, np.int16))
    misled = SparseCHMM(**FEW).fit(wrong, valid=demo.valid)
    right = SparseCHMM(**FEW).fit(demo.train, valid=demo.valid)
    np.testing.assert_array_equal(misled.predict_ids(demo.test), right.predict_ids(demo.test))


def test_stages_can_be_looked_at(demo: CorpusSplits) -> None:
    model = SparseCHMM(**FEW).fit(demo.train, valid=demo.valid)
    emissions = {stage: model.use_stage(stage).emission(demo.test) for stage in model.stages_}
    assert not np.allclose(emissions[1], emissions[2])
    model.use_stage(model.best_stage_)
    np.testing.assert_array_equal(model.emission(demo.test), emissions[model.best_stage_])
    with pytest.raises(ConfigError, match=r"Stage 9 is not at hand; stages trained in this process: 1, 2, 3"):
        model.use_stage(9)


# errors


def test_before_fit(demo: CorpusSplits, tmp_path: Path) -> None:
    model = SparseCHMM(encoder="none")
    for call in (model.predict, model.predict_ids, model.predict_proba, model.emission, model.reliabilities, model.score):
        with pytest.raises(ConfigError, match=r"has not been fitted; call fit\(train\) or SparseCHMM.load"):
            call(demo.test)
    with pytest.raises(ConfigError, match="has not been fitted"):
        model.save(tmp_path)
    with pytest.raises(ConfigError, match="stages trained in this process: none"):
        model.use_stage(1)


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"Unknown hyper-parameter 'batchsize'; known ones are .*batch_size"):
        SparseCHMM(batchsize=3)
    with pytest.raises(ConfigError, match=r"Unknown preset 'paper'; known ones are default, paper-bc5cdr"):
        SparseCHMM(preset="paper")
    with pytest.raises(ConfigError, match=r"batch_size is 0, expected 1 or more"):
        SparseCHMM(batch_size=0)
    with pytest.raises(ConfigError, match="emission_prior is 'diagonal:no'"):
        SparseCHMM(emission_prior="diagonal:no")


def test_corpora_that_do_not_fit(fitted: SparseCHMM, demo: CorpusSplits) -> None:
    fewer = demo.test.select_lfs(["gazetteer"])
    with pytest.raises(DataError, match="lacks the LF 'capitals'; the model was fitted with gazetteer, "):
        fitted.predict(fewer)
    with pytest.raises(DataError, match="differ in labeling functions"):
        SparseCHMM(**FEW).fit(demo.train, valid=fewer)
    other = few_documents(PEOPLE)
    with pytest.raises(DataError, match="has the entity types PER, LOC, the model was fitted with PER, ORG, LOC"):
        fitted.predict(other)
    with pytest.raises(DataError, match="has 0 tokens and 6 labeling functions"):
        SparseCHMM(**FEW).fit(demo.train.select_documents([]))


def test_validation_without_gold(demo: CorpusSplits) -> None:
    with pytest.raises(ConfigError, match=r"no gold labels; use --select evidence \(select='evidence'\)"):
        SparseCHMM(**FEW).fit(demo.train, valid=demo.valid.without_gold())


def test_a_failed_fit_keeps_the_best_weights(demo: CorpusSplits) -> None:
    model = SparseCHMM(**FEW, learning_rate_stage1=1e30)
    with pytest.raises(pyro_chmm.errors.TrainingError, match=r"stage 1, epoch \d, step 1"):
        model.fit(demo.train, valid=demo.valid)
    assert finite(model, demo.test)
    with pytest.raises(ConfigError, match="stages trained in this process: 1"):
        model.use_stage(2)


# files


@pytest.fixture
def saved(fitted: SparseCHMM, tmp_path: Path) -> Path:
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


def edit(folder: Path, change: Any) -> None:
    content = json.loads((folder / "config.json").read_text())
    change(content)
    (folder / "config.json").write_text(json.dumps(content))


def test_no_model_there(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"holds no saved model \(config.json is missing\); give a folder"):
        SparseCHMM.load(tmp_path / "nowhere")


def test_missing_weights(saved: Path) -> None:
    (saved / "model.safetensors").unlink()
    with pytest.raises(ModelFileError, match=r"model.safetensors is missing; the saved model is incomplete"):
        SparseCHMM.load(saved)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("kept", [0, 5, 200])
def test_truncated_files(name: str, kept: int, saved: Path) -> None:
    (saved / name).write_bytes((saved / name).read_bytes()[:kept])
    with pytest.raises(ModelFileError, match=rf"{name} cannot be read.*the saved model is damaged"):
        SparseCHMM.load(saved)


def test_foreign_files(saved: Path) -> None:
    (saved / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ModelFileError, match="does not describe a SparseCHMM model"):
        SparseCHMM.load(saved)
    (saved / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ModelFileError, match="cannot be read as JSON"):
        SparseCHMM.load(saved)


def test_a_newer_format(saved: Path) -> None:
    edit(saved, lambda content: content.update(format=99))
    with pytest.raises(ModelFileError, match=r"has format 99, this version .* reads format 1; update pyro-chmm"):
        SparseCHMM.load(saved)


@pytest.mark.parametrize(
    "change",
    [
        {"lf_names": ["only one"]},
        {"entity_types": ["PER"]},
        {"token_width": 9},
        {"token_width": "wide"},
        {"hyperparameters": {"no such": 1}},
        {"hyperparameters": {"batch_size": -1}},
        {"stage": None},
        {"lf_names": None},
    ],
)
def test_a_description_that_does_not_fit_the_weights(change: dict[str, Any], saved: Path) -> None:
    edit(saved, lambda content: content["model"].update(change))
    with pytest.raises(ModelFileError, match="damaged or of another version"):
        SparseCHMM.load(saved)


@pytest.mark.parametrize("failing", [1, 2])
def test_a_save_that_fails_leaves_the_old_model(
    failing: int, saved: Path, fitted: SparseCHMM, demo: CorpusSplits, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    expected = fitted.predict(demo.test)
    moves, move = 0, os.replace

    def fails(source: Any, target: Any) -> None:
        nonlocal moves
        moves += 1
        if moves == failing:
            raise OSError(28, "No space left on device")
        move(source, target)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="No space left"):
        fitted.save(saved)
    assert SparseCHMM.load(saved).predict(demo.test) == expected
    assert sorted(path.name for path in saved.iterdir()) == ["config.json", "model.safetensors"]


def test_the_vote_is_left_out_after_training(demo: CorpusSplits) -> None:
    model = SparseCHMM(**FEW, majority_vote_lf=True).fit(demo.train, valid=demo.valid)
    assert model.lf_names == demo.train.lf_names
    assert model.emission(demo.test).shape[0] == demo.test.num_lfs
    silent = replace(demo.test, weak_labels=np.zeros_like(demo.test.weak_labels))
    assert set(model.predict_ids(silent).tolist()) == {O}


def test_a_temperature_makes_posteriors_milder_and_changes_no_label(demo: CorpusSplits) -> None:
    cold = SparseCHMM(**FEW, o_weight_prediction=0.5, posterior_temperature=1.0).fit(demo.train, valid=demo.valid)
    warm = SparseCHMM(**FEW, o_weight_prediction=0.5, posterior_temperature=2.0).fit(demo.train, valid=demo.valid)
    assert cold.predict(demo.test) == warm.predict(demo.test)
    short = demo.test.select_documents([m for m, words in enumerate(demo.test.tokens) if len(words) == 1][:1] or [0])
    sharp, mild = np.concatenate(cold.predict_proba(demo.test)), np.concatenate(warm.predict_proba(demo.test))
    assert sharp.max(-1).mean() > mild.max(-1).mean()
    np.testing.assert_allclose(mild.sum(-1), 1, atol=1e-6)
    token = warm.explain(short, 0, 0)
    np.testing.assert_allclose(token.marginals, warm.predict_proba(short)[0][0], atol=1e-5)


def test_the_temperature_is_that_of_the_most_likely_gold_labels(demo: CorpusSplits, tmp_path: Path) -> None:
    model = SparseCHMM(**FEW, o_weight_prediction=0.5).fit(demo.train, valid=demo.valid)
    gold = demo.valid.gold
    assert gold is not None

    def likelihood(found: SparseCHMM) -> float:
        marginals = np.concatenate(found.predict_proba(demo.valid))
        return float(np.log(np.maximum(marginals[np.arange(len(gold)), gold], 1e-12)).mean())

    chosen = model.config.posterior_temperature
    assert chosen > 1.0
    others = {
        value: SparseCHMM(**FEW, o_weight_prediction=0.5, posterior_temperature=value).fit(demo.train, valid=demo.valid)
        for value in (1.0, 1.5, 3.0)
    }
    assert all(likelihood(model) >= likelihood(other) - 1e-6 for other in others.values())
    assert all(other.config.posterior_temperature == value for value, other in others.items())
    model.save(tmp_path / "model")
    loaded = SparseCHMM.load(tmp_path / "model")
    assert loaded.config.posterior_temperature == chosen
    np.testing.assert_allclose(likelihood(loaded), likelihood(model), rtol=1e-6)


def test_one_token_by_hand_at_a_temperature() -> None:
    """With one token and one LF the posterior is prior times emission, to the power of 1 / 2, normalised."""
    spans: list[list[Any]] = [[[(0, 1, "X")]] if m % 3 else [[]] for m in range(12)]
    corpus = Corpus.from_spans([[f"w{m}"] for m in range(12)], spans, ["X"], ["only"])
    settings = {**FEW, "select": "evidence"}
    plain = SparseCHMM(**settings).fit(corpus)
    warm = SparseCHMM(**settings, posterior_temperature=2.0).fit(corpus)
    for once, twice in zip(plain.predict_proba(corpus), warm.predict_proba(corpus), strict=True):
        expected = np.sqrt(once) / np.sqrt(once).sum(-1, keepdims=True)
        np.testing.assert_allclose(twice, expected, atol=1e-5)


def test_evidence_is_of_weak_labels_and_adds_up_over_documents(fitted: SparseCHMM, demo: CorpusSplits) -> None:
    whole = fitted.evidence(demo.test)
    parts = [fitted.evidence(demo.test.select_documents([m])) for m in range(demo.test.num_documents)]
    assert whole < 0
    assert sum(parts) == pytest.approx(whole, rel=1e-5)
    assert fitted.evidence(demo.test.without_gold()) == whole
    silent = replace(demo.test, weak_labels=np.full_like(demo.test.weak_labels, -1))
    assert fitted.evidence(silent) == pytest.approx(0, abs=1e-3)  # nothing observed


def test_a_fit_lets_go_of_the_vectors(demo: CorpusSplits, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the garbage collector: many fits in one process would pile up gigabytes before it runs."""
    made: list[weakref.ref[batching.PackedCorpus]] = []
    real = batching.PackedCorpus.__init__

    def watched(packed: batching.PackedCorpus, *arguments: Any) -> None:
        real(packed, *arguments)
        made.append(weakref.ref(packed))

    monkeypatch.setattr(batching.PackedCorpus, "__init__", watched)
    gc.disable()
    try:
        model = SparseCHMM(**FEW).fit(demo.train, valid=demo.valid)
        assert len(made) == 2
        assert [packed() for packed in made] == [None, None]
    finally:
        gc.enable()
    assert model.use_stage(1).predict(demo.test)
