"""Native tests: the real kernel, as root, in namespaces that the tests make."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.namespaces import MOUNT, NETWORK, fresh

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() != 0:
        reason = pytest.mark.skip(reason="needs root: namespaces, mounts and links are made for real")
        for item in items:
            if item.path.is_relative_to(HERE):
                item.add_marker(reason)


@pytest.fixture
def fresh_namespaces() -> Iterator[None]:
    """The test runs in a network and a mount namespace of its own."""
    with fresh(NETWORK, MOUNT):
        yield
