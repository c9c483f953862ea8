"""The house rules: who may import whom, what hooks may load, and how large a folder, a file and a function may be."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[2] / "plugin"
PACKAGE = PLUGIN / "moorage"
# Each package, and those that it may import. Everybody may import `moorage.__version__`.
MAY_IMPORT = {
    "common": {"common"},
    "linux": {"common", "linux"},
    "node": {"common", "linux", "node"},
    "root": {"common", "linux", "node", "root"},
    "doctor": {"common", "linux", "node", "root", "doctor"},
    "user": {"common", "linux", "user"},
    "cli": {"common", "linux", "node", "root", "doctor", "user", "cli"},
}
# Names that hooks and units of other releases start, and the command itself. Nobody imports them.
ENTRANCES = {"prolog": {"root"}, "epilog": {"root"}, "warden": {"root"}, "trash": {"root"}, "__main__": {"cli"}}
# A hook has no time for these: PyYAML takes 20 ms, pyroute2 200 ms, argparse 6 ms, psutil 28 ms.
TOO_SLOW = {"yaml", "pyroute2", "argparse", "psutil", "grpc"}
# What runs at every `podman` of a script, and what sbatch waits for: no other module of ours than these.
SMALL = {
    "moorage.user.agent.exec_client": {"moorage.user.agent.exec_client"},
    "moorage.cli.check_spec": {"moorage.cli.check_spec", "moorage.common.errors", "moorage.common.spec"},
}
MOST_MODULES, MOST_LINES, LONGEST_FUNCTION = 18, 400, 40

SOURCES = sorted(PACKAGE.rglob("*.py"))
FOLDERS = sorted({source.parent for source in SOURCES})


def named(path: Path) -> str:
    return str(path.relative_to(PLUGIN))


def imported(source: str) -> Iterator[str]:
    """Full names of all that a module of ours imports of the package."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                yield from (one.name for one in node.names if one.name.startswith("moorage"))
            case ast.ImportFrom(level=0, module=str(module)) if module.split(".")[0] == "moorage":
                yield from (f"{module}.{one.name}" for one in node.names)
            case ast.ImportFrom(level=level) if level:
                raise AssertionError("imports are absolute: the package of each is seen at once")


def forbidden(place: Path, source: str) -> list[str]:
    """What this module imports and may not."""
    room = place.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if room == "__init__":
        return list(imported(source))
    allowed = MAY_IMPORT.get(room) or ENTRANCES[room]
    return [name for name in imported(source) if not _may(name, allowed)]


def _may(name: str, allowed: set[str]) -> bool:
    _, _, inner = name.partition(".")
    room = inner.split(".")[0]
    return not room or room.startswith("__") or room in allowed


@pytest.mark.parametrize("source", SOURCES, ids=named)
def test_imports_keep_to_the_table(source: Path) -> None:
    assert forbidden(source, source.read_text()) == []


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("root", "from moorage.user import channel"),
        ("user", "def look() -> None:\n    from moorage.root.net import names"),
        ("linux", "import moorage.node.routes"),
        ("common", "from moorage.linux import process"),
        ("doctor", "from moorage import cli"),
        ("root", "from moorage import prolog"),
    ],
)
def test_an_import_beyond_the_table_is_noticed(room: str, line: str) -> None:
    assert len(forbidden(PACKAGE / room / "new.py", line)) == 1


def test_the_page_of_the_architecture_has_the_same_table() -> None:
    page = (PLUGIN.parent / "docs/understand/architecture.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([\w, ]+) \|$", page, re.MULTILINE)
    told = {name: set(MAY_IMPORT) if may == "everything" else set(may.split(", ")) for name, may in rows}
    assert told == MAY_IMPORT


def test_every_package_has_its_row() -> None:
    assert {place.name for place in PACKAGE.iterdir() if place.is_dir() and place.name != "__pycache__"} == {
        *MAY_IMPORT
    }
    assert {place.stem for place in PACKAGE.glob("*.py")} == {*ENTRANCES, "__init__"}


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_packages_have_no_code_of_their_own(folder: Path) -> None:
    """Only the top one (version, summary) and the command have."""
    if folder not in (PACKAGE, PACKAGE / "cli"):
        assert (folder / "__init__.py").read_text() == ""


def loaded(module: str) -> set[str]:
    """All modules that a fresh interpreter has after it has imported this one."""
    code = f"import sys; sys.path.insert(0, {str(PLUGIN)!r}); import {module}; print(*sys.modules)"
    return {
        *subprocess.run([sys.executable, "-I", "-c", code], check=True, text=True, capture_output=True).stdout.split()
    }


def python() -> str:
    return Path(sys.executable).name


@pytest.mark.commands(python())
@pytest.mark.parametrize("entrance", ["prolog", "epilog", "warden", "trash"])
def test_what_root_starts_loads_nothing_slow_and_nothing_of_the_users(entrance: str) -> None:
    found = loaded(f"moorage.{entrance}")
    assert "moorage.common.job" in found
    assert TOO_SLOW & found == set()
    assert [name for name in found if name.split(".")[:2] in (["moorage", "user"], ["moorage", "cli"])] == []


@pytest.mark.commands(python())
@pytest.mark.parametrize("module", SMALL)
def test_what_users_wait_for_loads_little(module: str) -> None:
    """Packages do not count: all but the command's are empty files."""
    packages = {".".join(folder.relative_to(PLUGIN).parts) for folder in FOLDERS}
    ours = {name for name in loaded(module) if name.split(".")[0] == "moorage"}
    assert ours - packages == SMALL[module]


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_a_folder_can_be_looked_over(folder: Path) -> None:
    assert len([place for place in folder.glob("*.py") if place.name != "__init__.py"]) <= MOST_MODULES


@pytest.mark.parametrize("source", SOURCES, ids=named)
def test_files_and_functions_are_short(source: Path) -> None:
    text = source.read_text()
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert text.count("\n") <= MOST_LINES
    assert [one.name for one in functions if (one.end_lineno or 0) - one.lineno + 1 > LONGEST_FUNCTION] == []
