"""Which layers there are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moorage.common.errors import MoorageError
from moorage.root.images import storage_layers

IMAGE, LOWER, UPPER = ("1" * 64, "a" * 64, "b" * 64)


def graph(place: Path, **upper: object) -> Path:
    known = {
        "overlay-layers/layers.json": [{"id": LOWER}, {"id": UPPER, "parent": LOWER, **upper}],
        "overlay-images/images.json": [{"id": IMAGE, "layer": UPPER}],
    }
    for name, content in known.items():
        (place / name).parent.mkdir()
        (place / name).write_text(json.dumps(content))
    return place


@pytest.mark.parametrize("upper", [{}, {"flags": None}, {"flags": {"diff-compression": "gzip"}}])
def test_the_lowest_comes_first(tmp_path: Path, upper: dict[str, object]) -> None:
    assert [layer.id for layer in storage_layers.chain(graph(tmp_path, **upper), IMAGE)] == [LOWER, UPPER]


def test_one_that_is_being_unpacked_is_none(tmp_path: Path) -> None:
    place = graph(tmp_path, flags={"incomplete": True})
    assert list(storage_layers.layers(place)) == [LOWER]
    with pytest.raises(MoorageError, match="lacks its layer bbbbbbbbbbbb"):
        storage_layers.chain(place, IMAGE)
