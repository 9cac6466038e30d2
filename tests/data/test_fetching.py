"""The downloader, against a server on loopback."""

from __future__ import annotations

import hashlib
import http.server
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyro_chmm.data import fetching
from pyro_chmm.data.datasets import fetch_dataset, find_dataset
from pyro_chmm.data.fetching import PUBLISHED, PublishedDataset, file_hash
from pyro_chmm.errors import DataError

NAME = "wrench/laptop"
FILES = {
    "meta.json": b'{"lf": ["a"], "entity_types": ["X"]}',
    "train.json": b'{"0": {"data": {"text": ["w"]}, "weak_labels": [[[0, 1, "X"]]]}}',
}


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@pytest.fixture
def served() -> Iterator[tuple[str, dict[str, Any]]]:
    """A server's address, and what it answers: path to bytes, or to (status, promised length, bytes)."""
    answers: dict[str, Any] = {f"/Folder/{name}": content for name, content in FILES.items()}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path, (404, 0, b""))
            status, length, content = answer if isinstance(answer, tuple) else (200, len(answer), answer)
            self.send_response(status)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", answers
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, a data set of two small files, and no proxy."""
    for name in ("PYRO_CHMM_DATA", "HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    hashes = {name: sha256(content) for name, content in FILES.items()}
    monkeypatch.setitem(
        PUBLISHED, NAME, PublishedDataset("Folder", "the text is under research terms", hashes)
    )
    return tmp_path / "pyro-chmm" / "data" / "wrench" / "laptop"


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_fetches_checks_and_names_the_terms(
    served: tuple[str, dict[str, Any]], cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert find_dataset(NAME) is None
    with caplog.at_level(logging.WARNING):
        assert fetch_dataset(NAME, served[0]) == cache == find_dataset(NAME)
    assert {name: (cache / name).read_bytes() for name in files_in(cache)} == FILES
    assert caplog.messages == [
        "Fetching wrench/laptop: the text is under research terms; you answer for your use of it."
    ]


def test_what_is_there_and_right_is_not_fetched_again(
    served: tuple[str, dict[str, Any]], cache: Path
) -> None:
    fetch_dataset(NAME, served[0])
    served[1].clear()
    assert fetch_dataset(NAME, served[0]) == cache


def test_a_file_that_was_changed_is_fetched_again(served: tuple[str, dict[str, Any]], cache: Path) -> None:
    fetch_dataset(NAME, served[0])
    (cache / "meta.json").write_text("{}")
    fetch_dataset(NAME, served[0])
    assert (cache / "meta.json").read_bytes() == FILES["meta.json"]


def test_a_wrong_file_is_an_error_with_both_hashes(served: tuple[str, dict[str, Any]], cache: Path) -> None:
    served[1]["/Folder/train.json"] = b"something else"
    with pytest.raises(DataError) as caught:
        fetch_dataset(NAME, served[0])
    assert sha256(b"something else") in str(caught.value)
    assert sha256(FILES["train.json"]) in str(caught.value)
    assert files_in(cache) == ["meta.json"]
    assert find_dataset(NAME) is None


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            (200, len(FILES["meta.json"]), FILES["meta.json"][:10]),
            "meta.json could not be fetched",
        ),  # cut short
        ((404, 0, b""), "Folder/meta.json answered with HTTP 404; nothing was saved"),
        ((500, 4, b"oops"), "answered with HTTP 500"),
    ],
)
def test_nothing_is_left_of_a_download_that_fails(
    served: tuple[str, dict[str, Any]], cache: Path, answer: Any, message: str
) -> None:
    served[1]["/Folder/meta.json"] = answer
    with pytest.raises(DataError, match=message):
        fetch_dataset(NAME, served[0])
    assert files_in(cache) == []


def test_a_server_that_is_gone(served: tuple[str, dict[str, Any]], cache: Path) -> None:
    with pytest.raises(DataError, match=r"could not be fetched: .*; check the connection, or name a folder"):
        fetch_dataset(NAME, "http://127.0.0.1:9")
    with pytest.raises(DataError, match="could not be fetched"):
        fetch_dataset(NAME, "no address at all")
    assert files_in(cache) == []


def test_a_server_that_is_silent(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_TIMEOUT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:  # accepts, and says nothing
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(DataError, match=r"did not answer within 0\.2 s"):
            fetch_dataset(NAME, address)
    assert files_in(cache) == []


def test_a_cache_that_cannot_be_written(served: tuple[str, dict[str, Any]], cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.touch()
    with pytest.raises(DataError, match="cannot be written"):
        fetch_dataset(NAME, served[0])


def test_hashes_are_those_of_the_tools(tmp_path: Path) -> None:
    """``printf hello | sha256sum`` and ``printf hello | git hash-object --stdin``."""
    file = tmp_path / "file"
    file.write_bytes(b"hello")
    assert file_hash(file, "sha256").endswith(
        "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    )
    assert file_hash(file, "git") == "git:b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0"


def test_the_published_files_have_the_hashes_that_are_checked(
    data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the real list of data sets
    checked = 0
    for name, published in PUBLISHED.items():
        for file, expected in published.hashes.items():
            path = data_root / name / file
            if path.is_file():
                assert file_hash(path, expected.partition(":")[0]) == expected, path
                checked += 1
    assert checked >= 15
