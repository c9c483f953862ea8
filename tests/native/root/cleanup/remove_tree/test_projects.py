"""Trees in which a user has given directories to other projects, on a file system that counts projects."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common.command import run
from moorage.linux import loop
from moorage.root.cleanup import trash
from support.namespaces import MOUNT, fresh
from support.trees import USER, removed

GET, SET, INHERIT = 0x801C581F, 0x401C5820, 0x200
ATTRIBUTES = struct.Struct("=IIIII8x")
# A kernel without quotas refuses this feature of ext4, and XFS without them has projects all the same.
KINDS = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-O", "project,quota"),
    "xfs": ("mkfs.xfs", "-q", "-f", "-s", f"size={loop.BLOCK}"),
}


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    program, *options = KINDS[request.param]
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    image, point = tmp_path / "image", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(512 << 20)
    run([program, *options, image], limit=60)
    point.mkdir()
    with fresh(MOUNT):
        with loop.attached(image) as device:
            if run(["mount", "-t", request.param, device, point], ok=(0, 32)).code:
                pytest.skip(f"this kernel mounts no {request.param} that counts projects")
        yield point
        run(["umount", "--lazy", point])


def count_as(directory: Path, project: int) -> None:
    """As its owner may."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        flags, extent, extents, _, cow = ATTRIBUTES.unpack(fcntl.ioctl(descriptor, GET, bytes(ATTRIBUTES.size)))
        fcntl.ioctl(descriptor, SET, ATTRIBUTES.pack(flags | INHERIT, extent, extents, project, cow))
    finally:
        os.close(descriptor)


def test_one_deep_in_the_tree(place: Path) -> None:
    inner = place / "tree/a/b"
    (inner / "c").mkdir(parents=True)
    for number, directory in enumerate((place / "tree", place / "tree/a", inner, inner / "c")):
        os.chown(directory, USER, USER)
        count_as(directory, 1000 + number)
    assert removed(place / "tree") == {}
    assert not (place / "tree").exists()


def test_the_way_into_the_trash(place: Path) -> None:
    """Both where the site counts all scratch as one project and where a job's is one of its own."""
    count_as(place, 5)
    for _ in range(2):
        (place / "17/a").mkdir(parents=True)
        count_as(place / "17", 6)
        assert trash.put(place / "17")
