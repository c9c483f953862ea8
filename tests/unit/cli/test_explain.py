"""`moorage explain`: lines by their codes."""

from __future__ import annotations

import pytest

from moorage.cli import explain
from moorage.common.codes import Catalogue
from moorage.common.errors import UsageError

CATALOGUE = Catalogue.of(
    """
[SHIM]
title = "The shim"

[SHIM.1]
line = "the shim … is missing on this node"
why = "The package was not installed here."
do = "Run the role on this node."

[SHIM.2]
line = "… is not Moorage's shim"
why = "plugstack.conf names another file."
do = "Correct the line."

[STORE]
title = "The store of images"
"""
)


@pytest.mark.parametrize("wanted", ["M-SHIM-1", "m-shim-1", "[M-SHIM-1]", "shim-1"])
def test_a_code_is_explained_however_it_is_written(wanted: str) -> None:
    assert explain.explain(CATALOGUE, wanted).split("\n\n") == [
        "M-SHIM-1: the shim … is missing on this node",
        "Why: The package was not installed here.",
        "What to do: Run the role on this node.",
    ]


def test_without_a_code_the_areas_are_listed() -> None:
    assert explain.explain(CATALOGUE, None).splitlines() == [
        "M-SHIM       The shim",
        "M-STORE      The store of images",
    ]


@pytest.mark.parametrize("wanted", ["SHIM", "m-shim"])
def test_an_area_lists_its_lines(wanted: str) -> None:
    title, _, *lines = explain.explain(CATALOGUE, wanted).splitlines()
    assert title == "The shim"
    assert [line.split()[0] for line in lines] == ["M-SHIM-1", "M-SHIM-2"]
    assert lines[1].endswith("… is not Moorage's shim")


@pytest.mark.parametrize(
    ("wanted", "remedy"),
    [
        ("M-SHIN-1", "the nearest is M-SHIM-1"),
        ("shim2", "the nearest is M-SHIM-2"),
        ("M-STOR", "the nearest is M-STORE"),
        ("xyz", "`moorage explain` lists the areas"),
    ],
)
def test_an_unknown_code_leads_to_the_nearest(wanted: str, remedy: str) -> None:
    with pytest.raises(UsageError) as failure:
        explain.explain(CATALOGUE, wanted)
    assert (failure.value.remedy, failure.value.code) == (remedy, "M-CODE-1")


def test_every_code_of_the_product_can_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    for entry in Catalogue.load():
        explain.main([entry.code])
        out, _ = capsys.readouterr()
        assert out.startswith(f"{entry.code}: ")
        assert " ".join(entry.do.split()) in " ".join(out.split())
