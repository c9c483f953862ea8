"""How a processor is named to the kernel."""

from __future__ import annotations

import os

import pytest

from moorage.root.net.bench import testbed


@pytest.mark.parametrize(
    ("number", "mask"),
    [
        (0, "00000001"),
        (1, "00000002"),
        (31, "80000000"),
        (32, "00000001,00000000"),
        (65, "00000002,00000000,00000000"),
    ],
)
def test_mask(number: int, mask: str) -> None:
    assert testbed.mask(number) == mask


@pytest.mark.parametrize(("there", "pair"), [({5, 3, 4}, (3, 4)), ({7}, (7, 7))])
def test_two_that_may_be_used(monkeypatch: pytest.MonkeyPatch, there: set[int], pair: tuple[int, int]) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: there)
    assert testbed.pair() == pair
