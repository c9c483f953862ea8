"""Which image is meant, and whose name is taken."""

from __future__ import annotations

import json

import pytest

from moorage.common.errors import UserError
from moorage.common.node_image import full_names
from moorage.root.images.catalog import Image, find, moved, new, parse, unnamed

NODE = Image("a" * 64, ("registry.example/kindest/node:v1.35.0",), "sha256:1", 400, 5)
OWN = Image("ab" + "c" * 62, ("localhost/own:latest", "localhost/alias:2"), "", 1, 1)
NAMELESS = Image("d" * 64, (), "", 1, 1)
PUBLISHED = Image("0" * 64, ("docker.io/library/published:1",), "", 1, 1)
ALL = [NODE, OWN, NAMELESS, PUBLISHED]


def test_what_podman_says() -> None:
    said = json.dumps(
        [
            {"Id": OWN.id, "Names": ["localhost/own:latest"], "Size": 1, "Created": 1, "Digest": ""},
            {"Id": OWN.id, "Names": ["localhost/alias:2"], "Size": 1, "Created": 1},
            {"Id": NAMELESS.id, "Names": None, "Size": 1, "Created": 1},
        ]
    )
    assert parse(said) == [OWN, NAMELESS]
    assert parse("") == []


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("registry.example/kindest/node:v1.35.0", NODE),
        ("own", OWN),
        ("own:latest", OWN),
        ("localhost/alias:2", OWN),
        ("aaaaaa", NODE),
        ("d" * 64, NAMELESS),
        ("published:1", PUBLISHED),
    ],
)
def test_an_image_is_found_by_name_or_id(wanted: str, found: Image) -> None:
    assert find(ALL, wanted) == found


@pytest.mark.parametrize(
    ("wanted", "words"),
    [("node:v1.35.0", "has no image"), ("aaaaa", "has no image"), ("", "has no image"), ("dddddddx", "has no image")],
)
def test_what_is_not_there_is_named(wanted: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        find(ALL, wanted)


def test_an_id_of_two_is_no_id() -> None:
    twins = [Image("e" * 63 + "1", (), "", 1, 1), Image("e" * 63 + "2", (), "", 1, 1)]
    with pytest.raises(UserError, match="more than one"):
        find(twins, "eeeeee")


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("a", ("localhost/a:latest", "docker.io/library/a:latest")),
        ("a:1", ("localhost/a:1", "docker.io/library/a:1")),
        ("docker.io/a:1", ("docker.io/library/a:1",)),
        ("kindest/node:v1.36.3", ("localhost/kindest/node:v1.36.3", "docker.io/kindest/node:v1.36.3")),
        ("localhost/node:v1", ("localhost/node:v1",)),
        ("host:5000/a", ("host:5000/a:latest",)),
        ("host.example/a/node:v1", ("host.example/a/node:v1",)),
        ("host/a@sha256:00", ("localhost/host/a@sha256:00", "docker.io/host/a@sha256:00")),
        ("localhost:5000/node:v1.36.3@sha256:00", ("localhost:5000/node@sha256:00",)),
    ],
)
def test_short_names_stand_for_full_ones(name: str, full: tuple[str, ...]) -> None:
    assert full_names(name) == full


def test_a_name_that_moves_is_seen() -> None:
    taken = Image("f" * 64, ("localhost/alias:2", "localhost/new:1"), "", 1, 1)
    left = Image(OWN.id, ("localhost/own:latest",), "", 1, 1)
    after = [NODE, left, taken, NAMELESS, PUBLISHED]
    assert moved(ALL, after) == {"localhost/alias:2": OWN.id}
    assert moved(ALL, ALL) == {}
    assert moved(ALL, [NODE]) == {}
    assert new(ALL, after) == [taken]
    assert unnamed(after) == [NAMELESS]
