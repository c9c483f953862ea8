"""Hosts as network namespaces, and a job on the first two of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.hosts import Host, connected
from support.segments import Node, joined


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    """Three hosts; the third is of no job unless a test says so."""
    with connected(3) as hosts:
        yield hosts


@pytest.fixture
def nodes(hosts: list[Host]) -> Iterator[list[Node]]:
    with joined(hosts[:2]) as nodes:
        yield nodes
