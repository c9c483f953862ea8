"""What tests of clusters share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from virtual.guest.cluster import Cluster


@pytest.fixture(scope="module")
def alone(lab: Cluster) -> Iterator[Cluster]:
    """A cluster on an emulated guest needs all of this machine."""
    with lab.others_waiting():
        yield lab
