"""Archives made to do harm: whatever becomes of them, nothing outside the store changes, and the store works on."""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path

import pytest

from moorage.linux import mounts
from moorage.root.images.store import Store
from support.archives import Member, directory, hard_link, layer, link, saved
from support.engine import Engine

NAME = "localhost/test/evil:1"
GOOD = "localhost/test/good:1"
OUTSIDE = "OUTSIDE"
# Limits that only root's user namespace may raise, for a program of anybody's: cap_sys_admin.
CAPABILITY = "\x01\x00\x00\x02\x00\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
DISK = 256 << 20
ZEROS = bytes(DISK // 10)


def evil(place: str) -> dict[str, list[Member]]:
    """Members of a layer; `place` is the directory that they are after."""
    up = "../" * 40 + place.lstrip("/")
    return {
        "character device": [Member("null", tarfile.CHRTYPE, device=(1, 3), mode=0o666)],
        "block device": [Member("disk", tarfile.BLKTYPE, device=(8, 0), mode=0o666)],
        "setuid program": [Member("su", data=b"#!/bin/sh\n", mode=0o6755)],
        "file capabilities": [Member("su", data=b"x", mode=0o755, xattrs={"security.capability": CAPABILITY})],
        "absolute name": [Member(f"{place}/new", data=b"evil")],
        "name that leads up": [Member(f"{up}/new", data=b"evil")],
        "whiteout that leads up": [Member(f"{up}/.wh.kept")],
        "whiteout of ..": [directory("a"), Member("a/.wh..."), Member("a/.wh..wh.."), Member(".wh...")],
        "file through an absolute link": [link("a", place), Member("a/new", data=b"evil")],
        "file through a link that leads up": [link("a", up), Member("a/new", data=b"evil")],
        "file in place of a link": [link("a", f"{place}/kept"), Member("a", data=b"evil")],
        "directory in place of a link": [link("a", place), directory("a", mode=0o777), Member("a/new", data=b"evil")],
        "hard link to outside": [hard_link("a", f"{place}/kept"), Member("a", data=b"evil")],
        "hard link that leads up": [hard_link("a", f"{up}/kept"), Member("a", data=b"evil")],
        "hard link through a link": [link("l", place), hard_link("a", "l/kept"), Member("a", data=b"evil")],
        "attributes of overlays": [
            directory(
                "a",
                xattrs={
                    "trusted.overlay.redirect": place,
                    "user.overlay.redirect": place,
                    "user.overlay.metacopy": "",
                    "trusted.overlay.opaque": "y",
                },
            )
        ],
        "size without end": [Member("huge", size=1 << 60)],
        "negative owner": [Member("a", data=b"x", uid=(1 << 40) + 7)],
        "name of many parts": [directory("d/" * 1500 + "d")],
        "name like a command's option": [
            Member("--help", data=b"x"),
            Member("-rf", data=b"x"),
            Member("a\nb", data=b"x"),
        ],
    }


@pytest.fixture
def outside(engine: Engine) -> Path:
    place = engine.place / "outside"
    place.mkdir()
    (place / "kept").write_text(OUTSIDE)
    return place


def unharmed(place: Path) -> bool:
    kept = place / "kept"
    status = kept.lstat()
    same = (kept.read_text(), status.st_nlink, stat.S_IMODE(status.st_mode)) == (OUTSIDE, 1, 0o644)
    return (
        same and [entry.name for entry in place.iterdir()] == ["kept"] and stat.S_IMODE(place.stat().st_mode) == 0o755
    )


def names(engine: Engine) -> list[str]:
    return [
        name
        for image in json.loads(engine.moorage("image", "list", "--json").stdout)["images"]
        for name in image["names"]
    ]


def test_evil_layers_stay_in_the_store(engine: Engine, files: Path, store: Store, outside: Path) -> None:
    for number, (what, members) in enumerate(evil(str(outside)).items()):
        source = saved(files / f"{number}.tar", f"{NAME}.{number}", layer(*members))
        said = engine.moorage("image", "add", source, ok=(0, 1))
        assert unharmed(outside), what
        assert "Traceback" not in said.stderr, what
        assert (f"{NAME}.{number}" in names(engine)) == (said.code == 0), what
        engine.moorage("image", "verify", ok=(0, 1))
        assert unharmed(outside), what
    # All of it is behind a directory of root's.
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o700
    engine.moorage("image", "remove", *names(engine))
    assert names(engine) == []
    assert unharmed(outside)
    assert "added" in engine.moorage("image", "add", saved(files / "good.tar", GOOD, layer(Member("a")))).stderr


def test_an_archive_without_end_stops_before_the_disk_is_full(engine: Engine, files: Path, store: Store) -> None:
    store.path.mkdir()
    mounts.mount_tmpfs(store.path, size=DISK, inodes=10000, uid=0, gid=0, mode=0o700)
    (engine.place / "moorage.yaml").write_text(f"store: {{path: {store.path}, keep_free: {DISK // 2}}}\n")
    engine.moorage("image", "add", saved(files / "good.tar", GOOD, layer(Member("a"))))
    source = saved(files / "bomb.tar", NAME, layer(*(Member(f"zeros.{number}", data=ZEROS) for number in range(8))))
    said = engine.moorage("image", "add", source, ok=(1,)).stderr
    assert "are left on the disk of" in said
    assert names(engine) == [GOOD]
    weight = sum(file.lstat().st_blocks for file in store.path.rglob("*")) * 512
    assert weight < len(ZEROS)


@pytest.mark.parametrize(
    "content",
    [b"", b"no archive at all\n" * 100, b"\x1f\x8b" + bytes(1000), bytes(10240)],
    ids=["empty", "text", "half packed", "zeros"],
)
def test_what_is_no_archive_is_refused(engine: Engine, files: Path, content: bytes) -> None:
    source = files / "image.tar"
    source.write_bytes(content)
    said = engine.moorage("image", "add", source, ok=(1,)).stderr
    assert "Traceback" not in said
    assert names(engine) == []
