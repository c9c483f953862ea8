"""Ways to break a node as parameters of a test, each with what it needs of the guests' kernel."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from virtual.guest.needs import OF_BREAKAGES


def breakable(names: Iterable[str]) -> list[object]:
    """A way that needs a feature is marked with it."""
    return [
        pytest.param(name, marks=pytest.mark.needs(OF_BREAKAGES[name])) if name in OF_BREAKAGES else name
        for name in names
    ]
