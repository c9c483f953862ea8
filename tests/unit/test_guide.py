"""The guide says of every check what to do about its lines."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import moorage
from moorage.doctor.examine import ALL
from moorage.node.checks import EACH_USER
from moorage.root.records import prometheus
from support.guide import explained, lines, section
from support.pages import ROOT, anchors

PACKAGE = Path(moorage.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("name", sorted({check.name for check in ALL}))
def test_every_look_is_named(name: str) -> None:
    assert f"`{name}`" in section()


@pytest.mark.parametrize("page", sorted({check.page for check in ALL} | {check.page for check in EACH_USER}))
def test_the_manual_has_the_page_of_every_check(page: str) -> None:
    name, _, anchor = page.partition("#")
    assert anchor in anchors(ROOT / "docs" / name)


def test_the_metrics_know_no_other_check() -> None:
    assert set(prometheus.USUAL) <= {line.partition(": ")[0] for line in lines()}


def test_every_check_has_a_line() -> None:
    """Whatever stands first in a Finding, anywhere in the product."""
    told = {line.partition(": ")[0] for line in lines()}
    assert set(_checks()) <= told


def _checks() -> Iterator[str]:
    for module in MODULES:
        tree = ast.parse(module.read_text())
        constants = {
            node.target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "Finding"
                and node.args
            ):
                yield from _named(node.args[0], constants)


def _named(word: ast.expr, constants: Mapping[str, object]) -> Iterator[str]:
    """By a literal or a constant of the module; what is a parameter has its literal elsewhere."""
    match word:
        case ast.Constant(value=str(name)):
            yield name
        case ast.Name(id=name) if isinstance(constants.get(name), str):
            yield str(constants[name])


@pytest.mark.parametrize(
    ("check", "cause", "known"),
    [
        ("sysctl", "kernel.keys.maxkeys is 200", True),
        ("sysctl", "kernel.keys.maxkeys was 200", False),
        ("modules", "this kernel has no module veth", True),
        ("modules", "this kernel has no module ", False),
        ("clock", "this kernel has no module veth", False),
    ],
)
def test_a_line_is_found_by_what_does_not_differ(check: str, cause: str, known: bool) -> None:
    assert explained(check, cause) == known
