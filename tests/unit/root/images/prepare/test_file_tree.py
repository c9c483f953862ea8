"""Layers over one another, as an overlay shows them; and members of tar files that nobody should have written."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moorage.common.errors import MoorageError
from moorage.root.images.prepare import file_tree, tar_entry, tar_headers
from moorage.root.images.prepare.file_tree import Tree
from moorage.root.images.prepare.tar_entry import Slice
from moorage.root.images.prepare.tar_writer import packed
from support.archives import Member, directory, hard_link, layer, link

AT = Path("/nowhere")


def unpacked(*members: Member) -> Tree:
    with tar_headers.members(io.BytesIO(layer(*members))) as found:
        return file_tree.layer(found, lambda member, path: Slice(AT, member.offset_data, path))


def stacked(*layers: list[Member]) -> Tree:
    top = Tree()
    for one in layers:
        top = file_tree.applied(unpacked(*one), top)
    return top


def paths(top: Tree) -> list[str]:
    return [path for path, _ in top.walk() if path]


BASE = [directory("a"), Member("a/x"), Member("a/y"), directory("a/d"), Member("a/d/z"), link("l", "a"), Member("f")]


@pytest.mark.parametrize(
    ("upper", "shown"),
    [
        ([], ["a", "a/d", "a/d/z", "a/x", "a/y", "f", "l"]),
        ([Member("a/.wh.x")], ["a", "a/d", "a/d/z", "a/y", "f", "l"]),
        ([Member(".wh.a")], ["f", "l"]),
        ([Member(".wh.a"), Member("a/new")], ["a", "a/new", "f", "l"]),
        ([directory("a"), Member("a/.wh..wh..opq"), Member("a/new")], ["a", "a/new", "f", "l"]),
        ([directory("a", xattrs={"trusted.overlay.opaque": "y"})], ["a", "f", "l"]),
        ([directory("a", xattrs={"user.overlay.opaque": "y"})], ["a", "f", "l"]),
        ([Member("a/x", tarfile.CHRTYPE)], ["a", "a/d", "a/d/z", "a/y", "f", "l"]),
        ([Member("a/x", tarfile.CHRTYPE, device=(1, 3))], ["a", "a/d", "a/d/z", "a/x", "a/y", "f", "l"]),
        ([Member("a")], ["a", "f", "l"]),
        ([directory("f")], ["a", "a/d", "a/d/z", "a/x", "a/y", "f", "l"]),
        ([Member("l/new")], ["a", "a/d", "a/d/z", "a/x", "a/y", "f", "l", "l/new"]),
        ([Member("f/new")], ["a", "a/d", "a/d/z", "a/x", "a/y", "f", "f/new", "l"]),
        ([Member("./a//x/./", data=b"n")], ["a", "a/d", "a/d/z", "a/x", "a/y", "f", "l"]),
        ([Member("/top")], ["a", "a/d", "a/d/z", "a/x", "a/y", "f", "l", "top"]),
        ([Member("a/.wh.missing"), Member(".wh."), Member(".wh...")], ["a", "a/d", "a/d/z", "a/x", "a/y", "f", "l"]),
        ([Member("null", tarfile.CHRTYPE, device=(1, 3)), Member("sda", tarfile.BLKTYPE)],
         ["a", "a/d", "a/d/z", "a/x", "a/y", "f", "l"]),
    ],
)  # fmt: skip
def test_what_is_seen_through_a_layer(upper: list[Member], shown: list[str]) -> None:
    assert paths(stacked(BASE, upper)) == shown


def test_a_directory_keeps_its_owner_where_the_upper_layer_only_implies_it() -> None:
    top = stacked([directory("a", mode=0o700, uid=7)], [Member("a/new")])
    assert [(top.children["a"].entry.mode, top.children["a"].entry.uid)] == [(0o700, 7)]


def test_three_layers_and_what_the_middle_one_hides() -> None:
    assert paths(stacked(BASE, [Member(".wh.a")], [Member("a/x")])) == ["a", "a/x", "f", "l"]
    assert unpacked(Member("a/.wh.x")).removes()
    assert unpacked(directory("a", xattrs={"trusted.overlay.opaque": "y"})).removes()
    assert not unpacked(*BASE).removes()


def test_a_whiteout_that_hides_nothing_is_an_inner_overlays() -> None:
    assert stacked([], [Member("snapshots/1/fs/.wh.x")]).find("snapshots/1/fs").whiteouts == {"x"}  # type: ignore[union-attr]
    assert stacked([Member("a/x")], [Member("a/.wh.x")]).find("a").whiteouts == set()  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["../x", "a/../../x", "a/..", "..", "/../etc/passwd"])
def test_names_that_lead_out_are_refused(name: str) -> None:
    with pytest.raises(MoorageError, match="leads out"):
        unpacked(Member(name))


@pytest.mark.parametrize("target", ["/etc/passwd", "missing", "d", "a/x"])
def test_a_hard_link_is_to_a_file_of_its_own_layer(target: str) -> None:
    with pytest.raises(MoorageError, match="which its layer has not"):
        unpacked(directory("d"), hard_link("l", target), Member("a/x"))
    with pytest.raises(MoorageError, match="leads out"):
        unpacked(hard_link("l", f"../{target}"))


def test_overlays_own_attributes_are_left_out() -> None:
    attributes = {"user.overlay.redirect": "/etc", "trusted.x": "1", "security.selinux": "s", "system.posix_acl": "p"}
    found = unpacked(Member("x", xattrs={**attributes, "user.note": "n", "security.capability": "\x01\x00"}))
    assert dict(found.children["x"].entry.xattrs) == {"user.note": "n", "security.capability": "\x01\x00"}


@pytest.mark.parametrize("data", [b"no tar at all" * 1000, layer(Member("x", data=b"x" * 9999))[:5000], b"\0" * 100])
def test_what_is_no_tar_file_is_one_line(data: bytes) -> None:
    with pytest.raises(MoorageError), tar_headers.members(io.BytesIO(data)) as found:
        for _ in found:
            pass


def test_nesting_without_end_needs_no_recursion(tmp_path: Path) -> None:
    deep = stacked([directory("d/" * 1900 + "d")])
    assert len(paths(deep)) == 1901
    with packed(tmp_path / "layer", lambda: None) as pack:
        assert pack.add(deep) == (1901, 0)


@contextmanager
def written(place: Path, **trees: Tree) -> Iterator[tarfile.TarFile]:
    with packed(place / "layer", lambda: None) as pack:
        for name, one in trees.items():
            pack.add(one, name)
    with tarfile.open(place / "layer") as tar:
        yield tar


def test_a_file_of_several_names_is_written_once(tmp_path: Path) -> None:
    data = layer(Member("x", data=b"content", mode=0o755), hard_link("y", "x"))
    (tmp_path / "data").write_bytes(data)
    with tar_headers.members(io.BytesIO(data)) as found:
        one = file_tree.layer(found, lambda member, _: Slice(tmp_path / "data", member.offset_data))
    with written(tmp_path, first=one, second=one) as tar:
        kinds = [(member.name, member.type, member.linkname) for member in tar if not member.isdir()]
        assert kinds == [
            ("first/x", tarfile.REGTYPE, ""),
            ("first/y", tarfile.LNKTYPE, "first/x"),
            ("second/x", tarfile.LNKTYPE, "first/x"),
            ("second/y", tarfile.LNKTYPE, "first/x"),
        ]
        file = tar.extractfile("first/x")
        assert file
        assert file.read() == b"content"


def test_attributes_and_strange_names_come_through(tmp_path: Path) -> None:
    capability = bytes(range(20)).decode("utf-8", "surrogateescape")
    strange = "a\nb \udcff"
    top = Tree()
    top.put("x", tar_entry.Entry(tarfile.FIFOTYPE, xattrs={"security.capability": capability}))
    top.put(strange, tar_entry.Entry(tarfile.SYMTYPE, target=strange))
    with written(tmp_path, top=top) as tar:
        members = {member.name: member for member in tar}
    assert members["top/x"].pax_headers["SCHILY.xattr.security.capability"] == capability
    assert members[f"top/{strange}"].linkname == strange
