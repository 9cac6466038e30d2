"""Fetches published data sets: a pinned revision, checked hashes, files that appear whole or not at all."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyro_chmm.atomic import replacing
from pyro_chmm.errors import DataError
from pyro_chmm.progress import task

if TYPE_CHECKING:

    import httpx

_log = logging.getLogger(__name__)

SOURCE = (
    "https://raw.githubusercontent.com/Yinghao-Li/Sparse-CHMM/66c99985a1e94a2dce5f68bbab68d3183b830c6c/data"
)
"""The public source, at a pinned revision: what is fetched can only be what the hashes were taken of."""

_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class PublishedDataset:
    """A data set that can be fetched."""

    folder: str
    """Its folder at the source."""
    terms: str
    """What is known of the text's licence, as one sentence."""
    hashes: Mapping[str, str]
    """File name to ``sha256:...`` or, where only that is known, ``git:...``, the id of a git blob."""


PUBLISHED: dict[str, PublishedDataset] = {
    "wrench/laptop": PublishedDataset(
        "LaptopReview",
        "the SemEval-2014 laptop reviews are under research terms",
        {
            "meta.json": "sha256:4fe5c45ef333edaec7fdc00b073a5e8b719e3f5dc2f8efa30e40ae64688fd23f",
            "train.json": "sha256:b061707d162795184782f778cd642438afe773b2518ba19e13e80c0932653f3d",
            "valid.json": "sha256:c3ef86695343b753e820b207ef2892cbbc60fe811167f7d783bf842306237f0d",
            "test.json": "sha256:a614c9dda39ae9e0904ae6c4f346802097438df8d126503ac17d1304ef5497e6",
        },
    ),
    "wrench/ncbi": PublishedDataset(
        "NCBI-Disease",
        "the NCBI Disease corpus is a work of the US government",
        {
            "meta.json": "sha256:c678eb91237d5c2aa5f70c888102eaecbb79498da018f3e279fde6d4907c2fac",
            "train.json": "sha256:18806d24a3c196ae851be625884b68c385b8f3115c4fd7506db188abe58d97f2",
            "valid.json": "sha256:eaecbe4769808a8e7d3061adc48c880ac071d756364244e787da987781749de6",
            "test.json": "sha256:eacaf1fb50aab0f9eb601dd45a8140a4f4270fdbb4179365b2753b38aff59c6f",
        },
    ),
    "wrench/bc5cdr": PublishedDataset(
        "BC5CDR",
        "the BC5CDR corpus is in the public domain",
        {
            "meta.json": "sha256:a34f1fec7b16c6347694445034d9b6183adc7886232d6ee6a985a0f9e287d4e5",
            "train.json": "sha256:ba5eede0c891c6443892961272cc1a0dd48f8d6ed52c5de3f77d7948d0b5c3a7",
            "valid.json": "sha256:9e31020dca95c03e4e5efef5679b69712cffecd54499de1e7a72453553ddb1d0",
            "test.json": "sha256:55f5d0cd6dc74413b9140285e0eb0ff9e6260d3c71eb87162129cf25d2dabfcb",
        },
    ),
    "wrench/conll": PublishedDataset(
        "CoNLL",
        "CoNLL-2003 is made of the Reuters corpus and under that corpus's terms",
        {
            "meta.json": "sha256:4be365764e2ca5684bd97b2432b3a0db235bf4176580c782f63bafba38a3952c",
            "train.json": "git:d0bea8d962fee2f6cab0f7b24bfc5254281830ff",
            "valid.json": "sha256:32bdc8d13d7ec0aeb656fe2468ac54827aeb8ad1a95d95b43d303b0f65ec93a5",
            "test.json": "sha256:532c98ee86af6424cee5c60799648ef6b38834007fdc3415fe7f8ff62f51b5b9",
        },
    ),
    "wrench/ontonotes": PublishedDataset(
        "OntoNotes",
        "OntoNotes 5.0 is under the terms of the Linguistic Data Consortium (LDC)",
        {
            "meta.json": "sha256:af1ebede848b4ffe26980630c1fb22b3344090f696fc3a6047cef79b1fe3b718",
            "train.json": "git:b92d26387ee70ad331e8584f6410f08e93788de7",
            "valid.json": "sha256:d31955b865935a72fbc796997d09f2cf4f922cf5aa2b0e0bf5d1cab2fe4735ac",
            "test.json": "git:97f951c97195d1aa92b3d338905b9fa8f9b5b696",
        },
    ),
}


def fetch_files(name: str, folder: Path, base_url: str = SOURCE) -> None:
    """Fetch the files of a published data set that ``folder`` lacks or holds changed, and say what the text's
    terms of use are.

    :raises DataError: if the source cannot be reached, answers with an error, or sends another file than
        expected.
    """
    import httpx

    published = PUBLISHED[name]
    missing = [
        file
        for file, expected in published.hashes.items()
        if not (folder / file).is_file() or file_hash(folder / file, expected.partition(":")[0]) != expected
    ]
    if not missing:
        return
    _log.warning("Fetching %s: %s; you answer for your use of it.", name, published.terms)
    try:
        with (
            httpx.Client(timeout=_TIMEOUT_SECONDS, follow_redirects=True) as client,
            task(f"fetching {name}", len(missing), "files") as advance,
        ):
            for file in missing:
                _fetch_file(
                    client, f"{base_url}/{published.folder}/{file}", folder / file, published.hashes[file]
                )
                advance()
    except OSError as error:
        raise DataError(f"{folder} cannot be written: {error.strerror}.") from None


def _fetch_file(client: httpx.Client, url: str, target: Path, expected: str) -> None:
    import httpx

    with replacing(target) as temporary:
        try:
            with client.stream("GET", url) as response:
                if response.status_code != httpx.codes.OK:
                    raise DataError(f"{url} answered with HTTP {response.status_code}; nothing was saved.")
                with temporary.open("wb") as file:
                    for chunk in response.iter_bytes():
                        file.write(chunk)
        except httpx.TimeoutException:
            raise DataError(f"{url} did not answer within {_TIMEOUT_SECONDS:g} s; try again later.") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise DataError(
                f"{url} could not be fetched: {reason}; check the connection, or name a folder that "
                "has the files, by --data-root or $PYRO_CHMM_DATA."
            ) from None
        found = file_hash(temporary, expected.partition(":")[0])
        if found != expected:
            raise DataError(
                f"{url} is not the file that was expected: its hash is {found}, not {expected}; "
                "nothing was saved."
            )


def file_hash(file: Path, kind: str) -> str:
    """``sha256:...`` of a file's bytes, or for the kind ``git`` the id that git gives a blob of them."""
    content = file.read_bytes()
    if kind == "git":
        blob = b"blob %d\0" % len(content) + content
        return f"git:{hashlib.sha1(blob, usedforsecurity=False).hexdigest()}"
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
