"""Which image of the store is meant by what the site has settled on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moorage.root.images import health
from moorage.root.images.store import Store


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("kindest/node:v1.36.3", "own"),
        ("docker.io/kindest/node:v1.36.3", "published"),
        ("kindest/node:v1.35.4", "older"),
        ("localhost/kindest/node:v1.35.4", None),
        ("kindest/node:v1.34.0", None),
    ],
)
def test_an_image_is_known_by_its_short_name(tmp_path: Path, wanted: str, found: str | None) -> None:
    listed = [
        {"id": "published", "names": ["docker.io/kindest/node:v1.36.3"]},
        {"id": "own", "names": ["localhost/kindest/node:v1.36.3"]},
        {"id": "older", "names": ["docker.io/kindest/node:v1.35.4"]},
        {"id": "nameless", "names": None},
        {"id": "foreign", "names": ["registry.example/kindest/node:v1.34.0"]},
    ]
    store = Store(tmp_path)
    (store.graph / "overlay-images").mkdir(parents=True)
    (store.graph / "overlay-images" / "images.json").write_text(json.dumps(listed))
    image = health.called(store, wanted)
    assert (image.id if image else None) == found
