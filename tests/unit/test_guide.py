"""The manual has the page of every check, and the metrics have no other checks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moorage.doctor.examine import ALL
from moorage.node.checks import EACH_USER
from moorage.root.records import prometheus
from support.coded_lines import UNKNOWN, Module, matches, product_sites, texts
from support.pages import ROOT, anchors


@pytest.mark.parametrize("page", sorted({check.page for check in ALL} | {check.page for check in EACH_USER}))
def test_the_manual_has_the_page_of_every_check(page: str) -> None:
    name, _, anchor = page.partition("#")
    assert anchor in anchors(ROOT / "docs" / name)


def test_the_metrics_know_no_other_check() -> None:
    checks = set(_checks())
    assert [name for name in prometheus.USUAL if not any(matches(check, name) for check in checks)] == []


def _checks() -> Iterator[str]:
    """The first argument of each Finding in the product, unless it is a parameter."""
    for site in product_sites():
        if site.name == "Finding":
            yield from texts(site.call.args[0], Module.read(site.path).constants) - UNKNOWN
