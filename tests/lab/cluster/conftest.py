"""What tests of clusters share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from virtual.cluster import Cluster

HERE = Path(__file__).parent
LONG = ("test_copies", "test_early_services", "test_failing")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`make test` has time for one cluster."""
    if os.environ.get("MOORAGE_FULL") or config.getoption("--lab"):
        return
    left_out = [item for item in items if item.path.parent == HERE and takes_long(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def takes_long(item: pytest.Item) -> bool:
    return item.path.stem in LONG or "[unstable" in item.name


@pytest.fixture(scope="module")
def alone(lab: Cluster) -> Iterator[Cluster]:
    """A cluster on an emulated guest needs all of this machine."""
    with lab.others_waiting():
        yield lab
