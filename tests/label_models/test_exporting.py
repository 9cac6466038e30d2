"""What is exported trains a tagger: a spaCy pipe, and a transformers token classifier on soft labels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from pyro_chmm import Corpus, load_dataset
from pyro_chmm.data.labels import LabelSet
from pyro_chmm.errors import ConfigError
from pyro_chmm.label_models.exporting import export, unsure_tokens

NAMES = LabelSet(("PER", "LOC")).names


def labelled(tiny: Corpus) -> tuple[Corpus, np.ndarray, list[np.ndarray]]:
    """``Anna Lee`` is a PER with 0.95 and 0.7, ``Oslo`` a LOC with 0.99, all else O with 0.95."""
    assert tiny.gold is not None
    sure = np.array([0.95, 0.7, 0.95, 0.95, 0.99, 0.95])
    packed = np.repeat((1 - sure)[:, None] / 4, 5, axis=1)
    packed[np.arange(6), tiny.gold] = sure
    return tiny, tiny.gold, [packed[tiny.document_slice(m)] for m in range(3)]


def test_an_entity_is_left_out_as_a_whole(tiny: Corpus) -> None:
    assert unsure_tokens(*labelled(tiny), 0.9).tolist() == [True, True, False, False, False, False]
    assert unsure_tokens(*labelled(tiny), 0.0).sum() == 0
    assert unsure_tokens(*labelled(tiny), 0.96).tolist() == [True, True, True, True, False, True]


def test_other_targets_and_bounds_are_refused(tiny: Corpus, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected spacy, hf, conll"):
        export(tmp_path / "x", *labelled(tiny), "flair")
    with pytest.raises(ConfigError, match="from 0 to 1"):
        export(tmp_path / "x", *labelled(tiny), "conll", min_confidence=2)


def test_columns(tiny: Corpus, tmp_path: Path) -> None:
    assert export(tmp_path / "x.conll", *labelled(tiny), "conll", soft=True, min_confidence=0.9) == 2
    found = load_dataset(tmp_path / "x.conll").train
    assert found.weak_labels[:, 0].tolist() == [-1, -1, 0, 0, 3, 0]
    rows = [line.split("\t") for line in (tmp_path / "x.conll").read_text().splitlines() if "\t" in line]
    assert rows[4] == ["Oslo", "B-LOC", "0.002500", "0.002500", "0.002500", "0.990000", "0.002500"]


def test_a_spacy_pipe_learns_from_it(tiny: Corpus, tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy")
    path = tmp_path / "train.spacy"
    export(path, *labelled(tiny), "spacy", soft=True, min_confidence=0.9)
    nlp = spacy.blank("en")
    docs = list(spacy.tokens.DocBin(store_user_data=True).from_disk(path).get_docs(nlp.vocab))
    assert [token.ent_iob_ for token in docs[0]] == ["", "", "O"]
    assert [(ent.text, ent.label_) for ent in docs[2].ents] == [("Oslo", "LOC")]
    assert len(docs[2].user_data["pyro_chmm_posterior"]) == 3
    ner = nlp.add_pipe("ner")
    ner.add_label("LOC")
    examples = [
        spacy.training.Example(spacy.tokens.Doc(nlp.vocab, words=[token.text for token in doc]), doc) for doc in docs if len(doc)
    ]
    optimizer = nlp.initialize(lambda: examples)
    losses = [nlp.update(examples, sgd=optimizer)["ner"] for _ in range(30)]
    assert losses[-1] < losses[0] / 2
    assert [ent.text for ent in ner(spacy.tokens.Doc(nlp.vocab, words=["in", "Oslo", "today"])).ents] == ["Oslo"]


def test_a_token_classifier_learns_from_soft_labels(tiny: Corpus, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    transformers = pytest.importorskip("transformers")
    export(tmp_path / "hf", *labelled(tiny), "hf", soft=True, min_confidence=0.9)
    data = datasets.load_from_disk(str(tmp_path / "hf"))
    assert json.loads(data.info.description)["labels"] == list(NAMES)
    assert data["ner_tags"][0] == [-100, -100, 0]
    vocabulary = {word: number for number, word in enumerate(sorted({t for d in data["tokens"] for t in d}), start=1)}
    rows = [row for row in data if row["tokens"]]
    ids = torch.tensor([[vocabulary[token] for token in row["tokens"]] for row in rows])
    soft = torch.tensor([row["soft_labels"] for row in rows])
    counted = torch.tensor([row["ner_tags"] for row in rows]) != -100
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=10,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        num_labels=5,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    tagger = transformers.BertForTokenClassification(config)
    optimizer = torch.optim.Adam(tagger.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        loss = torch.nn.functional.cross_entropy(tagger(input_ids=ids).logits[counted], soft[counted])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.4 < losses[0]
    assert NAMES[int(tagger(input_ids=ids).logits[1, 1].argmax())] == "B-LOC"
