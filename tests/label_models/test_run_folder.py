"""The run folder: complete or absent, and never in place of what it does not know."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyro_chmm.errors import ConfigError, TrainingError
from pyro_chmm.label_models.run_folder import RunFolder

logger = logging.getLogger("pyro_chmm.test")


def write_run(folder: Path, mark: str) -> None:
    (folder / "config.json").write_text(json.dumps({"format": 1, "model": {"mark": mark}, "run": {}}))
    (folder / "model.safetensors").write_text(mark)
    (folder / "predictions").mkdir()
    (folder / "predictions" / "test.jsonl").write_text(mark)


def finished_run(directory: Path, mark: str, **options: bool) -> None:
    with RunFolder(directory, **options) as folder:
        logger.info("run %s", mark)
        write_run(folder.path, mark)
        folder.commit()


def contents(directory: Path) -> dict[str, str]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_text() for path in files}


def test_a_run_appears_as_a_whole(tmp_path: Path) -> None:
    directory = tmp_path / "runs" / "demo"
    with RunFolder(directory) as folder:
        logger.debug("said in between")
        write_run(folder.path, "a")
        assert not directory.exists()
        folder.commit()
    found = contents(directory)
    assert set(found) == {"config.json", "model.safetensors", "predictions/test.jsonl", "run.log"}
    assert "said in between" in found["run.log"]
    assert [path.name for path in directory.parent.iterdir()] == ["demo"]


def test_another_run_is_refused_and_untouched(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    finished_run(directory, "a")
    before = contents(directory)
    with pytest.raises(ConfigError, match=r"holds another run: .*--overwrite"):
        RunFolder(directory)
    assert contents(directory) == before


def test_overwrite_replaces_the_run_and_nothing_else(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    finished_run(directory, "a")
    (directory / "notes.txt").write_text("mine")
    (directory / "metrics.json").write_text("{}")
    finished_run(directory, "b", overwrite=True)
    found = contents(directory)
    assert found["model.safetensors"] == found["predictions/test.jsonl"] == "b"
    assert found["notes.txt"] == "mine"
    assert "metrics.json" not in found, "a file of the earlier run is left beside the new ones"
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("bug"), TrainingError("diverged")])
def test_an_error_leaves_the_earlier_run_and_a_log(tmp_path: Path, error: BaseException) -> None:
    directory = tmp_path / "demo"
    finished_run(directory, "a")
    before = contents(directory)

    def fail_in_training() -> None:
        with RunFolder(directory, overwrite=True) as folder:
            write_run(folder.path, "b")
            raise error

    with pytest.raises(type(error)) as caught:
        fail_in_training()
    after = contents(directory)
    log = after.pop("failed.log")
    assert after == before
    assert type(error).__name__ in log
    assert caught.value.__notes__ == [f"The log is in {directory / 'failed.log'}."]
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]
    finished_run(directory, "c", overwrite=True)
    assert "failed.log" not in contents(directory)


def test_a_user_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError), RunFolder(tmp_path / "demo"):
        raise ConfigError("no such data set")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_run_is_no_obstacle(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    with pytest.raises(RuntimeError), RunFolder(directory):
        raise RuntimeError
    assert set(contents(directory)) == {"failed.log"}
    finished_run(directory, "a")
    assert "failed.log" not in contents(directory)


def test_foreign_files_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"editor": "mine"}')
    with pytest.raises(ConfigError, match=r"holds config\.json, which no run of pyro-chmm wrote"):
        RunFolder(tmp_path, overwrite=True)
    (tmp_path / "config.json").write_text("not json")
    with pytest.raises(ConfigError, match="no run of pyro-chmm"):
        RunFolder(tmp_path, overwrite=True)


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("")
    with pytest.raises(ConfigError, match="demo is a file"):
        RunFolder(tmp_path / "demo")


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ConfigError, match=r"cannot be made \(Not a directory\)"),
        RunFolder(tmp_path / "file" / "demo"),
    ):
        pass


def test_a_move_that_fails_puts_everything_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "demo"
    finished_run(directory, "a")
    before = contents(directory)
    rename = os.rename

    def failing(source: Path, target: Path) -> None:
        if Path(source).name == "predictions" and "complete" in str(source):
            raise OSError("disk trouble")
        rename(source, target)

    monkeypatch.setattr("pyro_chmm.label_models.run_folder.os.rename", failing)
    with RunFolder(directory, overwrite=True) as folder:
        write_run(folder.path, "b")
        with pytest.raises(OSError, match="disk trouble") as caught:
            folder.commit()
    assert contents(directory) == before
    assert str(folder.path) in caught.value.__notes__[0]
    assert contents(folder.path)["model.safetensors"] == "b"


def test_two_runs_at_once_lose_neither(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    with RunFolder(directory) as folder:
        write_run(folder.path, "a")
        finished_run(directory, "b")
        with pytest.raises(ConfigError, match="holds another run") as caught:
            folder.commit()
    assert "is complete; its files are in" in caught.value.__notes__[0]
    assert contents(directory)["model.safetensors"] == "b"
    assert contents(folder.path)["model.safetensors"] == "a"


def test_what_a_killed_run_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    killed = f"RunFolder({str(tmp_path / 'demo')!r}).__enter__(); os._exit(9)"
    code = f"import os; from {RunFolder.__module__} import RunFolder; {killed}"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    left = [path.name for path in tmp_path.iterdir()]
    assert len(left) == 1
    assert left[0].startswith(".demo.unfinished-")
    with RunFolder(tmp_path / "demo") as mine, RunFolder(tmp_path / "demo") as other:
        assert {path.name for path in tmp_path.iterdir()} == {mine.path.name, other.path.name}  # those of the living stay
        write_run(mine.path, "a")
        mine.commit()
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]
