"""What tests of clusters share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from virtual.cluster import Cluster

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`make test` has time for one cluster, and takes the one over two nodes."""
    if os.environ.get("MOORAGE_FULL") or config.getoption("--lab"):
        return
    left_out = [item for item in items if item.path.parent == HERE]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="module")
def alone(lab: Cluster) -> Iterator[Cluster]:
    """A cluster on an emulated guest needs all of this machine."""
    with lab.others_waiting():
        yield lab
