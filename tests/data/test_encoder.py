"""Words become vectors: right values, every token, long documents, the cache."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer

from pyro_chmm import progress
from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.encoder import EncoderSettings, Vectors, encode
from pyro_chmm.errors import ConfigError, EncoderError
from tests.data.encoder_models import WORDS, bert, corpus_of, gpt2, roberta

DOCUMENTS = [["Anna", "Lee", "sings"], ["in", "Oslo", "today"], ["quickest", "foxes", "the", "the", "oslofjord"], ["fox"]]
ODD = ["a", "\u200b", "\u02dc", "\\", "_", "", "\ud800", "[SEP]", "\u4e2d\u6587", "x" * 400]


@pytest.fixture(scope="module")
def small_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert(tmp_path_factory.mktemp("models") / "bert")


def run(corpus: Corpus, folder: Path | str, cache: Path, *, batch_tokens: int | None = None, **settings: Any) -> Vectors:
    return encode(corpus, EncoderSettings(str(folder), **settings), cache_dir=cache, batch_tokens=batch_tokens)


def word_by_word(folder: Path | str, document: list[str], layers: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The plain way: one document, all layers, a loop over its words; token vectors and the [CLS] state."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    ids = [tokenizer.cls_token_id]
    places: list[list[int]] = []
    for word in document:
        pieces = tokenizer(word, add_special_tokens=False)["input_ids"] or [tokenizer.unk_token_id]
        places.append(list(range(len(ids), len(ids) + len(pieces))))
        ids += pieces
    with torch.no_grad():
        result = model.eval()(torch.tensor([[*ids, tokenizer.sep_token_id]]), output_hidden_states=True)
    states = torch.cat([result.hidden_states[layer][0] for layer in layers], dim=-1).numpy()
    tokens = np.array([states[place].mean(axis=0) for place in places]).reshape(len(document), states.shape[1])
    return tokens, states[0]


@pytest.mark.parametrize("layers", [(-1,), (3, 1), (1,), (0, -2)], ids=str)
@pytest.mark.parametrize("batch_tokens", [None, 1])
def test_vectors_are_means_over_sub_tokens(
    small_bert: Path, tmp_path: Path, layers: tuple[int, ...], batch_tokens: int | None
) -> None:
    vectors = run(corpus_of(*DOCUMENTS), small_bert, tmp_path, layers=layers, batch_tokens=batch_tokens)
    expected = [word_by_word(small_bert, document, layers) for document in DOCUMENTS]
    assert vectors.tokens.shape == (12, 16 * len(layers))
    np.testing.assert_allclose(vectors.tokens, np.concatenate([tokens for tokens, _ in expected]), atol=3e-3)
    np.testing.assert_allclose(vectors.documents, np.array([first for _, first in expected]), atol=3e-3)


def test_mean_as_document_vector(small_bert: Path, tmp_path: Path) -> None:
    vectors = run(corpus_of(*DOCUMENTS, []), small_bert, tmp_path, document_vector="mean")
    for m, place in enumerate([slice(0, 3), slice(3, 6), slice(6, 11), slice(11, 12)]):
        np.testing.assert_allclose(vectors.documents[m], vectors.tokens[place].astype(float).mean(axis=0), atol=2e-3)
    assert np.isfinite(vectors.documents[4]).all()


def test_an_empty_document_is_a_text_without_words(small_bert: Path, tmp_path: Path) -> None:
    vectors = run(corpus_of([], ["anna"], []), small_bert, tmp_path)
    _, expected = word_by_word(small_bert, [], (-1,))
    np.testing.assert_allclose(vectors.documents[[0, 2]], [expected, expected], atol=3e-3)
    assert run(corpus_of([]), small_bert, tmp_path).tokens.shape == (0, 16)
    assert run(corpus_of(), small_bert, tmp_path).documents.shape == (0, 16)


@pytest.mark.parametrize("make", [bert, roberta, gpt2])
def test_every_token_gets_a_vector(make: Any, tmp_path: Path) -> None:
    folder = make(tmp_path / "model")
    vectors = run(corpus_of(["anna", *ODD, "anna"], ODD[1:2], [""]), folder, tmp_path / "cache", document_vector="mean")
    assert vectors.tokens.shape == (14, 16)
    assert np.isfinite(vectors.tokens).all()
    assert (np.abs(vectors.tokens).max(axis=1) > 0).all()


def test_a_word_without_sub_tokens_is_the_unknown_token(small_bert: Path, tmp_path: Path) -> None:
    zero_width = run(corpus_of(["anna", "\u200b", "", "lee"]), small_bert, tmp_path)
    unknown = run(corpus_of(["anna", "\u20ac", "\u20ac", "lee"]), small_bert, tmp_path)
    np.testing.assert_array_equal(zero_width.tokens, unknown.tokens)


def test_a_special_token_in_a_text_is_a_word(small_bert: Path, tmp_path: Path) -> None:
    special = run(corpus_of(["anna", "[MASK]"]), small_bert, tmp_path)
    text = run(corpus_of(["anna", "[mask]"]), small_bert, tmp_path)  # the model knows no upper case
    np.testing.assert_array_equal(special.tokens, text.tokens)


def no_context(model: Any) -> None:
    """Attention and positions add nothing: a sub-token's states depend on itself alone."""
    model.embeddings.position_embeddings.weight.zero_()
    for layer in model.encoder.layer:
        layer.attention.output.dense.weight.zero_()


@pytest.mark.parametrize("length", [61, 62, 63, 64, 130, 600])
def test_windows_give_each_word_its_own_vector(tmp_path: Path, length: int) -> None:
    folder = bert(tmp_path / "model", no_context)
    generator = np.random.default_rng(length)
    document = [str(word) for word in generator.choice([*WORDS, "singsin", "\u200b", "zz"], length)]
    vectors = run(corpus_of(["anna"], document), folder, tmp_path / "cache")
    alone = run(corpus_of(*([word] for word in document)), folder, tmp_path / "cache")
    np.testing.assert_allclose(vectors.tokens[1:], alone.tokens, atol=2e-3)
    np.testing.assert_allclose(vectors.documents[1], vectors.documents[0], atol=2e-3)


def test_windows_far_from_their_edges_agree_with_one_long_window(tmp_path: Path) -> None:
    """Two models of the same weights and windows of 64 and 512; only the near context matters to them, nearly."""

    def local(model: Any) -> None:
        model.embeddings.position_embeddings.weight.zero_()
        for layer in model.encoder.layer:
            layer.attention.output.dense.weight.mul_(0.05)

    short, long = bert(tmp_path / "short", local), bert(tmp_path / "long", local, max_position_embeddings=512)
    weights = load_file(short / "model.safetensors")
    weights["embeddings.position_embeddings.weight"] = torch.zeros(512, 16)
    save_file(weights, long / "model.safetensors", metadata={"format": "pt"})
    document = [WORDS[i % len(WORDS)] for i in range(300)]
    split, whole = (run(corpus_of(document), folder, tmp_path / "cache") for folder in (short, long))
    np.testing.assert_allclose(split.tokens, whole.tokens, atol=0.05)


@pytest.mark.parametrize("make", [roberta, gpt2])
def test_long_documents_fit_models_that_count_positions_in_their_own_way(make: Any, tmp_path: Path) -> None:
    folder = make(tmp_path / "model")
    document = ["anna", "sings"] * 100
    vectors = run(corpus_of(document), folder, tmp_path / "cache", document_vector="mean")
    assert vectors.tokens.shape == (200, 16)
    assert np.isfinite(vectors.tokens).all()


def test_layers_of_a_model_that_normalises_its_last_layer_once_more(tmp_path: Path) -> None:
    folder = gpt2(tmp_path / "model")
    ids = AutoTokenizer.from_pretrained(folder)(" anna")["input_ids"]
    with torch.no_grad():
        states = AutoModel.from_pretrained(folder).eval()(torch.tensor([ids]), output_hidden_states=True).hidden_states
    for layer in (1, 2, 3):
        vectors = run(corpus_of(["anna"]), folder, tmp_path / "cache", layers=(layer,), document_vector="mean")
        np.testing.assert_allclose(vectors.tokens[0], states[layer][0].mean(dim=0), atol=3e-3)


def test_a_model_without_cls_needs_the_mean(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=r"no \[CLS\] token; choose the document vector mean"):
        run(corpus_of(["anna"]), gpt2(tmp_path / "model"), tmp_path / "cache")


@pytest.mark.parametrize("make", [roberta, gpt2])
def test_sub_tokens_made_of_bytes_keep_the_space_before_a_word(make: Any, tmp_path: Path) -> None:
    folder = make(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(" sings today")["input_ids"]
    plain = [piece for piece in tokenizer.convert_ids_to_tokens(ids) if piece[0] not in "<|"]
    assert plain == ["\u0120sings", "\u0120today"]
    with torch.no_grad():
        states = AutoModel.from_pretrained(folder).eval()(torch.tensor([ids])).last_hidden_state[0]
    vectors = run(corpus_of(["sings", "today"]), folder, tmp_path / "cache", document_vector="mean")
    first = 1 if make is roberta else 0
    np.testing.assert_allclose(vectors.tokens, states[first : first + 2], atol=2e-3)


def test_none_is_a_constant_vector(tiny: Corpus, tmp_path: Path) -> None:
    vectors = run(tiny, "none", tmp_path)
    np.testing.assert_array_equal(vectors.tokens, np.ones((6, 1), np.float16))
    np.testing.assert_array_equal(vectors.documents, np.ones((3, 1), np.float16))
    assert list(tmp_path.iterdir()) == []


# the cache


def test_a_second_call_encodes_nothing(small_bert: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    corpus = corpus_of(*DOCUMENTS)
    with caplog.at_level(logging.INFO, "pyro_chmm"):
        first = run(corpus, small_bert, tmp_path)
        assert "Encoded 4 documents" in caplog.text
        assert "sub-tokens/s" in caplog.text
        caplog.clear()
        second = run(corpus_of(*DOCUMENTS), small_bert, tmp_path)
    assert "Encoded" not in caplog.text
    assert (first.cached, second.cached) == (False, True)
    np.testing.assert_array_equal(first.tokens, second.tokens)
    np.testing.assert_array_equal(first.documents, second.documents)
    assert isinstance(second.tokens, np.memmap)
    assert second.tokens.dtype == second.documents.dtype == np.float16


def test_model_text_and_settings_make_the_key(small_bert: Path, tmp_path: Path) -> None:
    corpus = corpus_of(["anna"])
    run(corpus, small_bert, tmp_path / "cache")
    other_weights = bert(tmp_path / "other", no_context)
    moved = bert(tmp_path / "moved")  # the same weights in another folder
    assert not run(corpus_of(["anna", "lee"]), small_bert, tmp_path / "cache").cached
    assert not run(corpus, small_bert, tmp_path / "cache", layers=(1,)).cached
    assert not run(corpus, small_bert, tmp_path / "cache", document_vector="mean").cached
    assert not run(corpus, other_weights, tmp_path / "cache").cached
    assert run(corpus, moved, tmp_path / "cache").cached


def test_a_damaged_entry_is_made_again(small_bert: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    corpus = corpus_of(*DOCUMENTS)
    expected = np.array(run(corpus, small_bert, tmp_path).tokens)
    file = next(tmp_path.glob("*/tokens.npy"))
    file.write_bytes(file.read_bytes()[:-100])
    again = run(corpus, small_bert, tmp_path)
    assert not again.cached
    assert "they are made again" in caplog.text
    np.testing.assert_array_equal(again.tokens, expected)


def test_a_cache_that_cannot_be_written(small_bert: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EncoderError, match=r"cannot be kept in .*file.*PYRO_CHMM_CACHE"):
        run(corpus_of(["anna"]), small_bert, tmp_path / "file")


def test_numbers_too_large_for_float16(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def large(model: Any) -> None:
        model.encoder.layer[-1].output.LayerNorm.weight.fill_(1e6)

    vectors = run(corpus_of(["anna"]), bert(tmp_path / "model", large), tmp_path / "cache")
    assert np.isfinite(vectors.tokens).all()
    assert np.abs(vectors.tokens).max() == np.finfo(np.float16).max
    assert "beyond what float16 holds" in caplog.text


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    def broken(model: Any) -> None:
        model.embeddings.word_embeddings.weight[5] = float("nan")  # "anna"

    folder = bert(tmp_path / "model", broken)
    assert run(corpus_of(["lee"]), folder, tmp_path / "cache").tokens.shape == (1, 16)
    with pytest.raises(EncoderError, match="not finite for document '1'"):
        run(corpus_of(["lee", "lee"], ["anna"]), folder, tmp_path / "cache")
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_progress_counts_sub_tokens(small_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int, str]] = []
    moved: list[int] = []

    class Task:
        def __init__(self, description: str, total: int, unit: str) -> None:
            seen.append((description, total, unit))

        def __enter__(self) -> Any:
            return lambda count=1, note="": moved.append(count)

        def __exit__(self, *exception: object) -> None:
            pass

    monkeypatch.setattr(progress, "task", Task)
    run(corpus_of(["anna", "lee"], ["foxx"]), small_bert, tmp_path, batch_tokens=4)
    assert seen == [("encoding", 8, "sub-tokens")]
    assert sum(moved) == 8
    assert len(moved) == 2


@pytest.mark.parametrize("settings", [{"layers": ()}, {"layers": (1.5,)}, {"document_vector": "max"}])
def test_settings_that_make_no_sense(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        EncoderSettings(**settings)


@pytest.mark.parametrize("layer", [4, -5])
def test_a_layer_that_the_model_lacks(small_bert: Path, tmp_path: Path, layer: int) -> None:
    with pytest.raises(EncoderError, match=f"has no layer {layer}: its layers are 0 .* to 3"):
        run(corpus_of(["anna"]), small_bert, tmp_path, layers=(layer,))


# minilm


@pytest.fixture(scope="module")
def minilm_folder() -> Path:
    from pyro_chmm.data.model_source import find_model

    return find_model("minilm")


def test_minilm_vectors(minilm_folder: Path, tmp_path: Path) -> None:
    document = ["The", "battery", "of", "my", "MacBook", "\u200b", "\u02dc", "\\", "_", ""]
    vectors = run(corpus_of(document, ["short"]), "minilm", tmp_path)
    tokens, first = word_by_word(minilm_folder, document, (-1,))
    np.testing.assert_allclose(vectors.tokens[:10], tokens, atol=2e-3)
    np.testing.assert_allclose(vectors.documents[0], first, atol=2e-3)


def test_minilm_sees_an_entity_at_word_590_of_600(minilm_folder: Path, tmp_path: Path) -> None:
    document = ["the", "patient", "was", "well", "."] * 120
    document[590] = "hypertension"
    vectors = run(corpus_of(document), "minilm", tmp_path)
    assert vectors.tokens.shape == (600, 384)
    near, _ = word_by_word(minilm_folder, document[350:], (-1,))

    found = vectors.tokens[590].astype(float)
    likeness = near @ found / np.linalg.norm(near, axis=1) / np.linalg.norm(found)
    assert likeness.argmax() == 240
    assert likeness[240] > 0.8


def test_loading_minilm_is_quiet_and_without_sentence_transformers(tmp_path: Path) -> None:
    code = (
        "import sys; from pyro_chmm.data.encoder import EncoderSettings, encode; from pyro_chmm.data.corpus import Corpus;"
        "corpus = Corpus.from_spans([['a']], [[[]]], ['X'], ['lf']);"
        f"first = encode(corpus, EncoderSettings(), cache_dir={str(tmp_path)!r});"
        "print(first.cached, 'sentence_transformers' in sys.modules)"
    )
    cached = code.replace("'sentence_transformers'", "'transformers'")
    for script, expected in ((code, "False False\n"), (cached, "True False\n")):
        result = subprocess.run([sys.executable, "-W", "default", "-c", script], capture_output=True, text=True, check=True)
        assert (result.stdout, result.stderr) == (expected, "")
