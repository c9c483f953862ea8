"""The catalogue of seeded defects fits the tree, and the script counts nothing as caught but a failed test."""

from __future__ import annotations

import re
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
COMMIT: Final = re.compile(r"[0-9a-f]{7,40}")


def script() -> ModuleType:
    """It has no ending, so an import statement does not find it."""
    loader = SourceFileLoader("seeded_defects", str(ROOT / "tools/seeded-defects"))
    spec = spec_from_loader(loader.name, loader)
    assert spec
    # Its data classes look for the module by name.
    module = sys.modules[loader.name] = module_from_spec(spec)
    loader.exec_module(module)
    return module


seeded = script()
DEFECTS: Final[list[Any]] = seeded.catalogue()
each_defect: Final = pytest.mark.parametrize("defect", DEFECTS, ids=[one.id for one in DEFECTS])


def defect(**fields: object) -> Any:  # noqa: ANN401
    usual = {"id": "x", "part": "root", "origin": "seeded", "what": "x", "file": "module.py", "old": "a", "new": "b"}
    return seeded.Defect(**{**usual, "tests": ("tests/unit/test_x.py",), **fields})


@each_defect
def test_a_defect_fits_its_file_once_and_leaves_valid_python(defect: Any) -> None:  # noqa: ANN401
    text = (ROOT / defect.file).read_text()
    assert text.count(defect.old) == 1
    assert defect.applied(text) != text
    compile(defect.applied(text), defect.file, "exec")


@each_defect
def test_the_tests_of_a_defect_are_unit_or_native_ones(defect: Any) -> None:  # noqa: ANN401
    assert defect.tests
    for test in defect.tests:
        assert test.startswith(("tests/unit/", "tests/native/"))
        assert (ROOT / test).is_file()


def test_the_catalogue_is_as_large_and_as_wide_as_it_has_to_be() -> None:
    assert len(DEFECTS) == len({one.id for one in DEFECTS}) == 30
    assert sum(one.part == "root" for one in DEFECTS) >= 10
    assert sum(bool(COMMIT.fullmatch(one.origin)) for one in DEFECTS) >= 10
    assert all(one.origin == "seeded" or COMMIT.fullmatch(one.origin) for one in DEFECTS)


@pytest.mark.parametrize(("text", "count"), [("b", 0), ("a a", 2)])
def test_a_text_that_does_not_occur_exactly_once_is_refused(text: str, count: int) -> None:
    with pytest.raises(seeded.Unusable, match=rf"^x: the old text occurs {count} times in module\.py$"):
        defect().applied(text)


def test_an_unknown_defect_is_refused() -> None:
    with pytest.raises(seeded.Unusable, match=r"^there is no defect y: see --list$"):
        seeded.chosen([defect()], ["x", "y"])


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, "MISSED   x (1.0 s) "),
        (1, "caught   x (1.0 s) tests/unit/test_x.py::test_it[a b]"),
        (2, "INVALID (exit code 2) x (1.0 s) tests/unit/test_x.py::test_it[a b]"),
        (None, "TIMEOUT  x (1.0 s) "),
    ],
)
def test_only_a_failed_test_counts_and_the_file_is_whole_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int | None,
    said: str,
) -> None:
    module = tmp_path / "module.py"
    module.write_text("a = 1\n")
    seen: list[str] = []

    def run_tests(tree: Path, tests: tuple[str, ...], limit: float) -> object:
        assert tree == tmp_path
        assert tests == ("tests/unit/test_x.py",)
        seen.append(module.read_text())
        output = "FAILED tests/unit/test_x.py::test_it[a b] - assert\n" if code in (1, 2) else ""
        return seeded.Outcome(code, 1.0, output)

    monkeypatch.setattr(seeded, "run_tests", run_tests)
    assert seeded.caught(defect(), tmp_path) == (code == 1)
    assert seen == ["b = 1\n"]
    assert module.read_text() == "a = 1\n"
    assert capsys.readouterr().out == f"{said}\n"


def test_tests_that_fail_on_the_untouched_tree_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeded, "run_tests", lambda *_: seeded.Outcome(1, 1.0, "1 failed"))
    with pytest.raises(seeded.Unusable, match="1 failed"):
        seeded.check_untouched(tmp_path, [defect()])
