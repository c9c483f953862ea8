"""Lab tests: real Slurm, Podman and Kubernetes in guests. Tests that share guests share one boot."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common.errors import MoorageError
from support.figures import Figures
from virtual.build.cache import CACHE
from virtual.cli import SUITES
from virtual.guest import builds, cluster, needs
from virtual.guest.cluster import Cluster
from virtual.guest.record import Request

DIRECTORY = CACHE / "test-lab"
PORT = 22300
BOOT_LIMITS = {1: 90, 2: 150}
FULL = "MOORAGE_FULL"
# Of the second release several nodes have their turn in the full tests alone.
NODES = {"trixie": 2, "unstable": 2 if os.environ.get(FULL) else 1}

not_run = pytest.StashKey[str]()
measured = pytest.StashKey[Figures]()
kept_away = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "use the guests that `lab --directory DIRECTORY up` has started, whatever their suite"
    parser.addoption("--lab", metavar="DIRECTORY", type=Path, help=text)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its suite; on the second suite only tests marked `both_suites` are short."""
    for item in (item for item in items if isinstance(item, pytest.Function)):
        suite = str(item.callspec.params.get("lab", "")) if hasattr(item, "callspec") else ""
        if suite:
            item.add_marker(suite)
        if suite == "unstable" and not item.get_closest_marker("both_suites"):
            item.add_marker("long")


@pytest.fixture(scope="session", params=SUITES)
def lab(request: pytest.FixtureRequest, figures: Figures) -> Iterator[Cluster]:
    """Guests of each suite in turn."""
    suite: str = request.param
    if directory := request.config.getoption("--lab"):
        yield _running(directory, suite)
        return
    _built(suite, request.config)
    began = time.monotonic()
    with builds.own(DIRECTORY, Request(NODES[suite], suite, PORT)) as guests:
        boot = f"{NODES[suite]} guest(s) of {suite} to an idle Slurm, {guests.hardware.acceleration.name}"
        figures.add(boot, time.monotonic() - began, "s", at_most=BOOT_LIMITS[NODES[suite]])
        yield guests


@pytest.fixture(autouse=True)
def needs_met(request: pytest.FixtureRequest) -> None:
    """A test whose guests lack what it needs of a kernel is skipped, and counted."""
    marker = request.node.get_closest_marker("needs")
    for name in marker.args if marker else ():
        if reason := needs.lacking(request.getfixturevalue("lab"), name):
            request.config.stash.setdefault(kept_away, Counter())[name] += 1
            pytest.skip(reason)


def _running(directory: Path, suite: str) -> Cluster:
    guests = cluster.running(directory)
    if guests.request.suite != suite:
        pytest.skip(f"the running guests are of {guests.request.suite}")
    return guests


@pytest.fixture(scope="session")
def figures(request: pytest.FixtureRequest) -> Figures:
    return request.config.stash.setdefault(measured, Figures())


def _built(suite: str, config: pytest.Config) -> None:
    """Unstable may be broken today and nobody here to blame: said aloud, and a failure only of the full tests."""
    try:
        builds.build(suite)
    except MoorageError as error:
        if suite != "unstable" or os.environ.get(FULL):
            raise
        config.stash[not_run] = str(error)
        pytest.skip(f"unstable suite not run: {error}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for figure in config.stash.get(measured, Figures()).all:
        terminalreporter.write_line(f"measured: {figure}")
    if kept := config.stash.get(kept_away, Counter()):
        counts = ", ".join(f"{name} {count}" for name, count in sorted(kept.items()))
        terminalreporter.write_line(f"kept from these guests' kernel: {kept.total()} tests ({counts})")
    if not_run in config.stash:
        terminalreporter.write_line(f"unstable suite not run: {config.stash[not_run]}")
