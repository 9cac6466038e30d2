"""Mutates files of every format and reads them: whatever comes, a corpus or a DataError that names the file.

Run it by hand: ``python -m tests.fuzz_readers --files 100000 --seconds 600``. It prints each failure's seed and format.
"""

from __future__ import annotations

import argparse
import logging
import random
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

from pyro_chmm import Corpus, load_dataset
from pyro_chmm.data.formats.registry import FORMATS
from pyro_chmm.errors import DataError

NAMES = ("wrench", "wrench-bio", "conll", "docbin", "jsonl", "matrix")
_PIECES = (b"null", b"[]", b"{}", b"-1", b"1e999", b"\x00", b"\xff\xfe", b'"\\ud800"', b"\n", b"\t", b"# lfs: a", b"NaN", b"9" * 30)


def seeds(folder: Path) -> dict[str, bytes]:
    """A small valid file of each format."""
    corpus = Corpus.from_spans(
        [["Anna", "Lee", "sings"], [], ["in", "Oslo", "\U0001f600"]],
        [[[(0, 2, "PER")], []], [[], []], [[(1, 2, "LOC")], [(1, 2, "PER")]]],
        ["PER", "LOC"],
        ["a", "b"],
        gold_spans=[[(0, 2, "PER")], [], []],
        coarse_types=["ENT"],
    )
    found = {}
    for name in NAMES:
        path = folder / f"seed{FORMATS[name].suffix}"
        FORMATS[name].write(path, corpus, None)
        found[name] = path.read_bytes()
    return found


def mutated(content: bytes, rng: random.Random) -> bytes:
    """A file with a few bytes changed, cut, doubled or put in."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        place, length = rng.randrange(len(data) + 1), rng.randrange(1, 9)
        match rng.randrange(6):
            case 0 if data:
                data[min(place, len(data) - 1)] ^= 1 << rng.randrange(8)
            case 1:
                del data[place : place + length]
            case 2:
                data[place:place] = data[place : place + length * 4]
            case 3:
                data[place:place] = rng.choice(_PIECES)
            case 4:
                data[place : place + length] = rng.randbytes(length)
            case 5 if rng.random() < 0.2:
                del data[place:]
    return bytes(data)


def fuzz(files: int, seconds: float, seed: int, folder: Path) -> tuple[Counter[str], list[str]]:
    """Read mutated files; counts of what became of them, and a text for each failure."""
    originals, outcomes, failures = seeds(folder), Counter[str](), list[str]()
    end = time.monotonic() + seconds
    for number in range(files):
        if time.monotonic() > end:
            break
        rng = random.Random(seed * 1_000_003 + number)
        name = NAMES[number % len(NAMES)]
        path = folder / f"mutated{FORMATS[name].suffix}"
        path.write_bytes(mutated(originals[name], rng))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                load_dataset(path)
            outcomes["read"] += 1
        except DataError as error:
            outcomes["refused"] += 1
            if path.name not in str(error) or "\n" in str(error):
                failures.append(f"{name}, number {number}: a message without the file, or of several lines: {error}")
        except Exception:
            failures.append(f"{name}, number {number}: {traceback.format_exc(limit=-3)}")
    return outcomes, failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.getLogger("pyro_chmm").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        outcomes, failures = fuzz(options.files, options.seconds, options.seed, Path(folder))
    print(dict(outcomes), f"{len(failures)} failures")
    print("\n".join(failures[:20]))
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
