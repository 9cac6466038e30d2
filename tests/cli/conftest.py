"""A finished run on the demo corpus, and a corpus of one's own in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyro_chmm.cli.main import main

#: Options that keep a run to a few seconds.
SHORT = [
    "--encoder",
    "none",
    "--epochs-stage1",
    "2",
    "--epochs-stage2",
    "1",
    "--epochs-stage3",
    "1",
    "--pretrain-steps",
    "2",
]


def invoke(*arguments: object) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="pyro-chmm")


def succeeded(*arguments: object) -> Result:
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """The folder of a finished run, and what the command printed; not to be changed."""
    directory = tmp_path_factory.mktemp("fit") / "runs" / "demo"
    return directory, succeeded("fit", "--data", "demo", "--out", directory, *SHORT)


def documents(*, gold: bool = True) -> list[dict[str, Any]]:
    """Four small documents of two LFs, as the file format jsonl has them."""
    texts = [["Anna", "sings"], ["in", "Oslo"], [], ["Anna", "lives", "in", "Oslo"]]
    names = {"Anna": "PER", "Oslo": "LOC"}
    result = []
    for number, tokens in enumerate(texts):
        spans = [[place, place + 1, names[token]] for place, token in enumerate(tokens) if token in names]
        document: dict[str, Any] = {
            "id": f"d{number}",
            "tokens": tokens,
            "weak_labels": {"a": spans, "b": spans[:1]},
        }
        if gold:
            document["labels"] = [f"B-{names[token]}" if token in names else "O" for token in tokens]
        result.append(document)
    return result


def write_jsonl(path: Path, records: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@pytest.fixture
def own_data(tmp_path: Path) -> Path:
    """A folder with train, valid and test."""
    folder = tmp_path / "corpus"
    for split in ("train", "valid", "test"):
        write_jsonl(folder / f"{split}.jsonl", documents())
    (folder / "meta.json").write_text(json.dumps({"entity_types": ["PER", "LOC"], "lf": ["a", "b"]}))
    return folder
