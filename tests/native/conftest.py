"""Native tests: the real kernel, as root, in namespaces that the tests make."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.hosts import Host, connected
from support.namespaces import MOUNT, NETWORK, fresh
from support.segments import Node, joined

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() != 0:
        reason = pytest.mark.skip(reason="needs root: namespaces, mounts and links are made for real")
        for item in items:
            if item.path.is_relative_to(HERE):
                item.add_marker(reason)


@pytest.fixture(scope="session", autouse=True)
def signals_of_a_terminal() -> None:
    """What a shell puts into the background ignores them, and so would every program that the tests start."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@pytest.fixture
def fresh_namespaces() -> Iterator[None]:
    """The test runs in a network and a mount namespace of its own."""
    with fresh(NETWORK, MOUNT):
        yield


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    """Three hosts as network namespaces; the third is of no job unless a test says so."""
    with connected(3) as hosts:
        yield hosts


@pytest.fixture
def nodes(hosts: list[Host]) -> Iterator[list[Node]]:
    """A job on the first two hosts."""
    with joined(hosts[:2]) as nodes:
        yield nodes
