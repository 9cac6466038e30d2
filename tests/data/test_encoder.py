"""Vectors: every token gets one, they are the mean of its sub-tokens' states, and they are kept."""

from __future__ import annotations

import importlib.util
import logging
import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pyro_chmm.data.corpus import Corpus
from pyro_chmm.data.encoder import EncoderSettings, encode, resolve_encoder
from pyro_chmm.data.model_source import find_model
from pyro_chmm.data.windows import cut_windows
from pyro_chmm.errors import ConfigError, EncoderError

if importlib.util.find_spec("transformers") is None and os.environ.get("CI") != "true":
    pytest.skip("transformers is not installed: pip install 'pyro-chmm[minilm]'", allow_module_level=True)

import huggingface_hub.constants
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

from pyro_chmm.data import language_model

ODD_WORDS = ["a", "\u200b", "\u02dc", "\\", "_", "", "\ud800", "x\udfff", "Müller", "β-catenin", "汉字", "[SEP]", " ", "\t", "🙂"]
SENTENCES = [["The", "keyboard", "of", "my", "laptop", "is", "unresponsive", "."], ["β-catenin", "binds", "Tcf"], ["Hi"]]
DEPTH, WIDTH, WINDOW = 3, 8, 66


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of minilm; skipped where it is not installed, but never in CI."""
    try:
        return find_model("minilm")
    except EncoderError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def small_model(minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a folder with minilm's tokenizer, a small BERT of random weights and a window of ``WINDOW`` sub-tokens."""

    def make(scale: float = 1.0, **settings: Any) -> Path:
        folder = tmp_path_factory.mktemp("small-model")
        tokenizer = AutoTokenizer.from_pretrained(minilm)
        tokenizer.save_pretrained(folder)
        sizes = {"num_hidden_layers": DEPTH, "hidden_size": WIDTH, "num_attention_heads": 2, "intermediate_size": 16}
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=len(tokenizer), max_position_embeddings=WINDOW, initializer_range=0.5, **{**sizes, **settings}
        )
        model = BertModel(config)
        model.encoder.layer[-1].output.LayerNorm.weight.data *= scale
        model.save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def small(small_model: Callable[..., Path]) -> Path:
    return small_model()


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def corpus_of(*documents: list[str]) -> Corpus:
    return Corpus.from_spans(documents, [[[]]] * len(documents), ["X"], ["lf"])


@cache
def load(folder: Path) -> Any:
    return AutoModel.from_pretrained(folder).eval()


def states(folder: Path, ids: list[int], layers: tuple[int, ...]) -> NDArray[np.float32]:
    """Hidden states, computed with all layers in place: ``(sub-tokens, width)``."""
    with torch.inference_mode():
        hidden = load(folder)(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
    found: NDArray[np.float32] = torch.cat([hidden[layer][0] for layer in layers], dim=-1).numpy()
    return found


def by_hand(folder: Path, words: list[str], layers: tuple[int, ...]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean states of each word, and the state of [CLS], of a text that fits the window."""
    encoding = AutoTokenizer.from_pretrained(folder)(words, is_split_into_words=True)
    found = states(folder, encoding["input_ids"], layers)
    places = np.array([-1 if word is None else word for word in encoding.word_ids()])
    return np.stack([found[places == word].mean(0) for word in range(len(words))]), found[0]


# one vector for each token


def test_every_token_gets_a_vector(small: Path, tmp_path: Path) -> None:
    """Field report 10."""
    corpus = corpus_of(ODD_WORDS, ["\u200b"], [""], *[[word] for word in ODD_WORDS])
    found = encode(corpus, EncoderSettings(str(small)), cache_dir=tmp_path)
    assert found.tokens.shape == (len(ODD_WORDS) * 2 + 2, WIDTH)
    assert found.documents.shape == (len(ODD_WORDS) + 3, WIDTH)
    assert found.tokens.dtype == found.documents.dtype == np.float16
    for vectors in (found.tokens, found.documents):
        assert np.isfinite(vectors).all()
        assert (np.abs(vectors).sum(-1) > 0).all()


def test_letters_beyond_ascii_are_read(minilm: Path, tmp_path: Path) -> None:
    found = encode(corpus_of(["Müller"], ["Mller"], ["汉字"], ["\u200b"]), EncoderSettings(), cache_dir=tmp_path).tokens
    for other in (1, 2, 3):
        assert not np.allclose(found[0], found[other], atol=0.05)


@pytest.mark.parametrize("layers", [(3,), (-1,), (3, 6), (6, 3), (0,), (-7, 1)])
def test_a_words_vector_is_the_mean_of_its_sub_tokens(layers: tuple[int, ...], minilm: Path, tmp_path: Path) -> None:
    found = encode(corpus_of(*SENTENCES), EncoderSettings(layers=layers), cache_dir=tmp_path)
    start = 0
    for m, words in enumerate(SENTENCES):
        tokens, first = by_hand(minilm, words, layers)
        np.testing.assert_allclose(found.tokens[start : start + len(words)], tokens, atol=2e-3, rtol=2e-3)
        np.testing.assert_allclose(found.documents[m], first, atol=2e-3, rtol=2e-3)
        start += len(words)
    assert found.tokens.shape == (start, 384 * len(layers))


def test_a_document_vector_may_be_the_mean(small: Path, tmp_path: Path) -> None:
    corpus = corpus_of(*SENTENCES, [])
    found = encode(corpus, EncoderSettings(str(small), document_vector="mean"), cache_dir=tmp_path)
    for m in range(3):
        mean = found.tokens[corpus.document_slice(m)].astype(np.float32).mean(0)
        np.testing.assert_allclose(found.documents[m], mean, atol=2e-3)
    assert np.isfinite(found.documents).all()


@pytest.mark.parametrize("document_vector", ["cls", "mean"])
def test_empty_documents_keep_their_place(document_vector: Any, small: Path, tmp_path: Path) -> None:
    settings = EncoderSettings(str(small), document_vector=document_vector)
    found = encode(corpus_of([], SENTENCES[0], [], SENTENCES[1], []), settings, cache_dir=tmp_path)
    alone = [encode(corpus_of(words), settings, cache_dir=tmp_path) for words in (SENTENCES[0], SENTENCES[1], [])]
    np.testing.assert_allclose(found.tokens, np.concatenate([part.tokens for part in alone]), atol=2e-3)
    for place, part in ((0, 2), (1, 0), (2, 2), (3, 1), (4, 2)):
        np.testing.assert_allclose(found.documents[place], alone[part].documents[0], atol=2e-3)


def test_no_documents_and_no_tokens(small: Path, tmp_path: Path) -> None:
    settings = EncoderSettings(str(small))
    for documents in ([], [[]], [[], []]):
        found = encode(corpus_of(*documents), settings, cache_dir=tmp_path)
        assert (found.tokens.shape, found.documents.shape) == ((0, WIDTH), (len(documents), WIDTH))
        assert encode(corpus_of(*documents), settings, cache_dir=tmp_path).cached


def test_vectors_do_not_depend_on_batches(small: Path, tmp_path: Path) -> None:
    documents = [[f"word{i}" for i in range(length)] for length in (3, 9, 1, 0, 14, 9)]
    whole, single = (
        encode(corpus_of(*documents), EncoderSettings(str(small)), cache_dir=tmp_path / str(size), batch_tokens=size)
        for size in (10_000, 1)
    )
    np.testing.assert_allclose(whole.tokens, single.tokens, atol=4e-3)
    np.testing.assert_allclose(whole.documents, single.documents, atol=4e-3)


# windows


def test_a_long_document_goes_through_windows(small: Path, tmp_path: Path) -> None:
    """Field report 11: each word's vector is that of its window, read alone."""
    words = [f"{'un' * (i % 3)}read{'able' * (i % 2)}" for i in range(600)]
    found = encode(corpus_of(words), EncoderSettings(str(small)), cache_dir=tmp_path)
    assert np.isfinite(found.tokens).all()
    encoding = AutoTokenizer.from_pretrained(small)(words, is_split_into_words=True, add_special_tokens=False)
    ids, places = np.array(encoding["input_ids"]), np.array(encoding.word_ids())
    boundaries = np.searchsorted(places, np.arange(601))
    windows = cut_windows(boundaries, WINDOW - 2)
    assert len(windows) > 10
    cls, sep = 101, 102
    for window in windows:
        alone = states(small, [cls, *ids[window.start : window.end].tolist(), sep], (-1,))[1:-1]
        inside = places[window.start : window.end]
        for word in range(window.first_word, window.last_word):
            np.testing.assert_allclose(found.tokens[word], alone[inside == word].mean(0), atol=4e-3)


def test_a_word_590_words_in_is_read(minilm: Path, tmp_path: Path) -> None:
    words = ["it", "works"] * 300
    words[590] = "Oslo"
    found = encode(corpus_of(words, ["it", "works", "Oslo"]), EncoderSettings(), cache_dir=tmp_path).tokens
    unit = found.astype(np.float32) / np.linalg.norm(found.astype(np.float32), axis=1, keepdims=True)
    similarity = unit @ unit[602]  # to Oslo in the short document
    assert similarity[:600].argmax() == 590


@pytest.mark.parametrize("length", [WINDOW - 3, WINDOW - 2])
def test_a_document_that_just_fits_is_read_at_once(length: int, small: Path, tmp_path: Path) -> None:
    words = [chr(ord("a") + i % 26) for i in range(length)]
    found = encode(corpus_of(words), EncoderSettings(str(small)), cache_dir=tmp_path)
    tokens, first = by_hand(small, words, (-1,))
    np.testing.assert_allclose(found.tokens, tokens, atol=4e-3)
    np.testing.assert_allclose(found.documents[0], first, atol=4e-3)


def test_a_word_longer_than_the_window_gets_a_vector(small: Path, tmp_path: Path) -> None:
    found = encode(corpus_of(["a", "x" * 90 + "1!" * 200, "b"]), EncoderSettings(str(small)), cache_dir=tmp_path)
    assert found.tokens.shape == (3, WIDTH)
    assert np.isfinite(found.tokens).all()


# numbers


def test_numbers_beyond_float16_are_held(
    small_model: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = encode(corpus_of(*SENTENCES), EncoderSettings(str(small_model(scale=1e6))), cache_dir=tmp_path)
    assert np.isfinite(found.tokens).all()
    assert np.isfinite(found.documents).all()
    assert np.abs(found.tokens).max() == np.finfo(np.float16).max
    assert [record.message for record in caplog.records if "float16" in record.message]


def test_weights_that_are_not_numbers_are_refused(small_model: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="not finite for document '0'"):
        encode(corpus_of(["a"]), EncoderSettings(str(small_model(scale=float("nan")))), cache_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_none_is_a_constant(tmp_path: Path) -> None:
    found = encode(corpus_of(*SENTENCES, []), EncoderSettings("none"), cache_dir=tmp_path)
    assert (found.tokens.shape, found.documents.shape) == ((12, 1), (4, 1))
    assert (found.tokens == 1).all()
    assert (found.documents == 1).all()
    assert not found.cached
    assert list(tmp_path.iterdir()) == []


# the cache


def test_a_second_call_encodes_nothing(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = EncoderSettings(str(small))
    first = encode(corpus_of(*SENTENCES), settings, cache_dir=tmp_path)

    def refused(*args: Any) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(language_model, "LanguageModel", refused)
    second = encode(corpus_of(*SENTENCES), settings, cache_dir=tmp_path)
    assert (first.cached, second.cached) == (False, True)
    np.testing.assert_array_equal(first.tokens, second.tokens)
    np.testing.assert_array_equal(first.documents, second.documents)
    assert isinstance(second.tokens, np.memmap)
    assert not second.tokens.flags.writeable


def test_other_text_layers_or_models_are_other_entries(small: Path, small_model: Callable[..., Path], tmp_path: Path) -> None:
    name = str(small)
    encode(corpus_of(["a", "b"]), EncoderSettings(name), cache_dir=tmp_path)
    others = [
        (corpus_of(["a", "c"]), EncoderSettings(name)),
        (corpus_of(["a"], ["b"]), EncoderSettings(name)),
        (corpus_of(["a", "b"]), EncoderSettings(name, layers=(1,))),
        (corpus_of(["a", "b"]), EncoderSettings(name, document_vector="mean")),
        (corpus_of(["a", "b"]), EncoderSettings(str(small_model(scale=2.0)))),
    ]
    assert not any(encode(corpus, settings, cache_dir=tmp_path).cached for corpus, settings in others)


def test_the_environment_names_the_cache(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYRO_CHMM_CACHE", str(tmp_path / "here"))
    encode(corpus_of(["a"]), EncoderSettings(str(small)))
    assert len(list((tmp_path / "here").iterdir())) == 1


@pytest.mark.parametrize("name", ["tokens.npy", "documents.npy", "entry.json"])
@pytest.mark.parametrize("kept", [None, 0, 60, -1])
def test_a_damaged_entry_is_made_again(
    name: str, kept: int | None, small: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = EncoderSettings(str(small))
    first = encode(corpus_of(*SENTENCES), settings, cache_dir=tmp_path)
    expected = np.array(first.tokens)
    file = next(tmp_path.glob(f"*/{name}"))
    content = file.read_bytes()
    file.unlink()
    if kept is not None:
        file.write_bytes(content[:kept] if name != "entry.json" or kept != -1 else content[:-5])
    again = encode(corpus_of(*SENTENCES), settings, cache_dir=tmp_path)
    assert not again.cached
    np.testing.assert_array_equal(again.tokens, expected)
    assert "damaged" in caplog.text
    assert encode(corpus_of(*SENTENCES), settings, cache_dir=tmp_path).cached


def test_a_cache_that_cannot_be_written(small: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EncoderError, match=r"cannot be kept in .*PYRO_CHMM_CACHE"):
        encode(corpus_of(["a"]), EncoderSettings(str(small)), cache_dir=tmp_path / "file")


# errors and fallbacks


@pytest.mark.parametrize("name", ["no/such-model-anywhere", "nosuchmodel", "./no-such-folder", "/no/such/folder", ""])
def test_an_unknown_encoder_is_one_sentence_at_once(name: str, tmp_path: Path) -> None:
    started = time.perf_counter()
    with pytest.raises(EncoderError, match=r"cannot be loaded|neither a folder") as caught:
        encode(corpus_of(["a"]), EncoderSettings(name), cache_dir=tmp_path)
    assert time.perf_counter() - started < 5
    message = str(caught.value)
    assert repr(name) in message
    assert "minilm" in message
    assert "\n" not in message


@pytest.mark.parametrize("layers", [(4,), (-5,), (0, 9)])
def test_a_layer_that_is_not_there(layers: tuple[int, ...], small: Path, tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=rf"has no layer {layers[-1]}: its layers are 0 \(embeddings\) to 3, or -1 .* to -4"):
        encode(corpus_of(["a"]), EncoderSettings(str(small), layers=layers), cache_dir=tmp_path)


def test_settings_that_make_no_sense() -> None:
    with pytest.raises(ConfigError, match="layers"):
        EncoderSettings(layers=())
    with pytest.raises(ConfigError, match="must be one of cls, mean"):
        EncoderSettings(document_vector="max")  # type: ignore[arg-type]


def test_damaged_weights_are_one_sentence(small_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = small_model()
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(EncoderError, match="cannot be loaded") as caught:
        encode(corpus_of(["a"]), EncoderSettings(str(folder)), cache_dir=tmp_path)
    assert "\n" not in str(caught.value)
    weights.unlink()
    with pytest.raises(EncoderError, match=r"lacks model.safetensors"):
        encode(corpus_of(["a"]), EncoderSettings(str(folder)), cache_dir=tmp_path)


def test_minilm_takes_the_place_of_what_cannot_be_had(minilm: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    assert resolve_encoder("no/such-model") == "minilm"
    assert [record.message for record in caplog.records] == [
        "The encoder no/such-model cannot be had here; minilm takes its place."
    ]


def test_what_can_be_had_is_taken(small: Path, minilm: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    for name in (str(small), "minilm", "none"):
        assert resolve_encoder(name) == name
    assert caplog.records == []


def test_nothing_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyro_chmm.data.model_source._MINILM_PACKAGE", "no_such_package")
    with pytest.raises(EncoderError, match=r"no/such-model.*Nor is there minilm in its place: .*pip install"):
        resolve_encoder("no/such-model")
    with pytest.raises(EncoderError, match="minilm is not installed: pip install"):
        resolve_encoder("minilm")
