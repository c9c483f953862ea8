"""The lock file of the development environment: what pyproject.toml demands, whole, exact and with hashes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[2]
PYTHONS: Final = ("3.11", "3.12", "3.13")
HASHES: Final = r"(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+"
HASHED: Final = re.compile(r"^(?P<requirement>[^ #\n].*?) \\\n" + HASHES, re.MULTILINE)


def demanded() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [Requirement(line) for line in (*project["dependencies"], *project["optional-dependencies"]["dev"])]


def locked(text: str) -> list[Requirement]:
    return [Requirement(found["requirement"]) for found in HASHED.finditer(text)]


def version(lock: list[Requirement], name: str, python: str) -> str:
    """The only version that a Python on Linux gets."""
    environment = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    pins = [
        str(pin.specifier)
        for pin in lock
        if canonicalize_name(pin.name) == canonicalize_name(name)
        and (pin.marker is None or pin.marker.evaluate(environment))
    ]
    assert len(pins) == 1, f"{name} for Python {python}: {pins}"
    assert re.fullmatch(r"==[^=,*]+", pins[0])
    return pins[0][2:]


def wrong(lock: list[Requirement], python: str) -> list[str]:
    """The demands that the lock file does not meet."""
    return [str(each) for each in demanded() if not each.specifier.contains(version(lock, each.name, python))]


@pytest.fixture
def text() -> str:
    return (ROOT / "requirements-dev.lock").read_text()


@pytest.mark.parametrize("python", PYTHONS)
def test_each_demand_is_met(text: str, python: str) -> None:
    assert wrong(locked(text), python) == []


def test_another_version_is_noticed(text: str) -> None:
    changed = re.sub(r"^pytest==\S+", "pytest==8.0.0", text, flags=re.MULTILINE)
    assert [demand.partition("~")[0] for demand in wrong(locked(changed), "3.11")] == ["pytest"]


def test_a_missing_package_is_noticed(text: str) -> None:
    with pytest.raises(AssertionError, match="pytest for Python"):
        wrong([pin for pin in locked(text) if pin.name != "pytest"], "3.11")


def test_every_line_belongs_to_a_package_with_hashes(text: str) -> None:
    assert re.sub(r"^#.*\n", "", HASHED.sub("", text), flags=re.MULTILINE) == ""


def test_no_host_is_named(text: str) -> None:
    assert not re.search(r"://|--(extra-)?index-url|--find-links", text)


def needed(roots: list[Requirement]) -> Iterator[str]:
    """The packages that the demands need here, each with its own demands."""
    seen = set()
    waiting = [(root, "") for root in roots]
    while waiting:
        requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in seen or not (requirement.marker is None or requirement.marker.evaluate({"extra": extra})):
            continue
        seen.add(name)
        yield name
        waiting += [(Requirement(line), "") for line in metadata.requires(name) or []]


def test_it_has_all_that_is_needed_and_nothing_else(text: str) -> None:
    here = {canonicalize_name(pin.name) for pin in locked(text) if pin.marker is None or pin.marker.evaluate()}
    assert here == set(needed(demanded()))
