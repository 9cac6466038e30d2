"""What is installed is complete, what is required is pinned, and the sources do nothing that the house forbids."""

import ast
import configparser
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
# folder of the repository -> where it is installed
INSTALLED = {"pyro_chmm": "pyro_chmm", "cli": "pyro_chmm/cli"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of the files in a wheel, built from a copy: an old build/ here would leak into it."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in INSTALLED:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    build = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    command = [sys.executable, "-c", build, str(folder)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("pyro_chmm-*.whl")
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_every_file_of_the_package(wheel: set[str]) -> None:
    expected = {
        f"{target}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, target in INSTALLED.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in wheel if ".dist-info/" not in name} == expected


@pytest.mark.parametrize(
    "name",
    [
        "py.typed",
        "chain/forward_backward.cu",
        "cli/main.py",
        "data/demo/meta.json",
        "data/demo/train.jsonl",
        "presets/default.toml",
    ],
)
def test_the_wheel_holds_one_of_each_kind(wheel: set[str], name: str) -> None:
    assert f"pyro_chmm/{name}" in wheel


def requirements() -> list[Requirement]:
    """Of the package and all of its extras, from setup.cfg."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    lists = [config["options"]["install_requires"], *config["options.extras_require"].values()]
    lines = [line.strip() for text in lists for line in text.splitlines()]
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return [requirement for requirement in found if requirement.name != "pyro-chmm"]


PIN = re.compile(r"([a-z0-9-]+)==([0-9][0-9a-z.]*)")


def constraints() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_constraints_are_nothing_but_pins() -> None:
    """No options, addresses or paths, and no local versions such as +cpu."""
    assert [line for line in constraints() if not PIN.fullmatch(line)] == []


def test_every_requirement_is_pinned_to_a_version_that_it_allows() -> None:
    pinned = dict(line.split("==") for line in constraints())
    wanted = {canonicalize_name(requirement.name): requirement.specifier for requirement in requirements()}
    assert len(wanted) > 15
    assert set(wanted) <= set(pinned)
    assert [name for name, allowed in wanted.items() if pinned[name] not in allowed] == []


def test_no_requirement_is_listed_twice() -> None:
    names = [canonicalize_name(requirement.name) for requirement in requirements()]
    assert sorted(names) == sorted(set(names))


_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
_NAMES = {"eval", "exec"}
_ATTRIBUTES = {"torch.load", "pyro.param", "pyro.module", "os.system"}
_ANYWHERE = {"clear_param_store", "get_param_store"}
_SWITCHES = {"shell", "trust_remote_code", "allow_pickle"}


def forbidden(tree: ast.AST) -> list[str]:
    """What may run code from a file or a string, or touches Pyro's global parameter store."""
    return [text for node in ast.walk(tree) for text in _forbidden(node)]


def _forbidden(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [name.name for name in names if name.name.partition(".")[0] in _MODULES]
        case ast.ImportFrom(module=str(module), names=names):
            whole = [f"{module}.{name.name}" for name in names]
            if module.partition(".")[0] in _MODULES:
                return whole
            return [name for name in whole if name in _ATTRIBUTES or name.rpartition(".")[2] in _ANYWHERE]
        case ast.Name(id=name):
            return [name] if name in _NAMES else []
        case ast.Attribute(attr=name):
            return [ast.unparse(node)] if ast.unparse(node) in _ATTRIBUTES or name in _ANYWHERE else []
        case ast.keyword(arg=str(name), value=value) if name in _SWITCHES:
            return [] if isinstance(value, ast.Constant) and value.value is False else [name]
        case ast.Dict(keys=keys, values=values):
            switches = zip(keys, values, strict=True)
            return [text for key, value in switches for text in _forbidden_entry(key, value)]
    return []


def _forbidden_entry(key: ast.expr | None, value: ast.expr) -> list[str]:
    """Keyword arguments kept in a dict."""
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        return _forbidden(ast.keyword(arg=key.value, value=value))
    return []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import pickle", ["pickle"]),
        ("from joblib import load", ["joblib.load"]),
        ("from torch import load", ["torch.load"]),
        ("torch.load(path, weights_only=True)", ["torch.load"]),
        ("eval(text)", ["eval"]),
        ("exec(text)", ["exec"]),
        ("model.eval()", []),
        ("subprocess.run(command, shell=True)", ["shell"]),
        ("np.load(path, allow_pickle=flag)", ["allow_pickle"]),
        ("np.load(path, allow_pickle=False)", []),
        ("options = {'trust_remote_code': True}", ["trust_remote_code"]),
        ("options = {'trust_remote_code': False, **others}", []),
        ("pyro.clear_param_store()", ["pyro.clear_param_store"]),
        ("pyro.param('weight')", ["pyro.param"]),
        ("'no pickle, no torch.load('", []),
    ],
)
def test_what_is_forbidden_is_found(code: str, found: list[str]) -> None:
    assert forbidden(ast.parse(code)) == found


def test_the_package_does_nothing_forbidden() -> None:
    paths = [path for folder in INSTALLED for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(paths) > 40
    found = {str(path.relative_to(ROOT)): forbidden(ast.parse(path.read_bytes())) for path in paths}
    assert {path: texts for path, texts in found.items() if texts} == {}


@pytest.mark.parametrize(("job", "command"), [("main job", "pyro-chmm fit"), ("tests", "pytest")])
def test_the_readme_says_what_ci_runs(job: str, command: str) -> None:
    """What .ci/run looks for."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(rf"^<!-- ci: {job} -->\n+```\w*\n(.*?)^```$", readme, flags=re.MULTILINE | re.DOTALL)
    assert block.startswith("pip install -c constraints.txt")
    assert block.rstrip().splitlines()[-1].split(" && ")[-1].startswith(command)
