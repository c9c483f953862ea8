"""The mount table, also where users chose the names in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.linux import mounts
from moorage.linux.mounts import Mount, below, holding, table

TABLE = r"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
30 22 0:26 / /run rw,nosuid,nodev shared:5 - tmpfs tmpfs rw,size=800000k,mode=755
61 30 0:50 / /run/moorage/17 rw,nosuid,nodev shared:9 - tmpfs moorage rw,size=65536k,nr_inodes=16384
62 61 7:0 / /run/moorage/17/scratch rw,noatime shared:11 - ext4 /dev/loop0 rw,nobarrier
63 62 0:61 / /run/moorage/17/scratch/a\040b\134\011c rw,nosuid,nodev - fuse.evil evil\0121\0402 rw,user_id=1000
64 30 0:50 / /run/moorage/170 rw - tmpfs moorage rw
65 22 8:2 / /scratch ro,nosuid - xfs /dev/sdb1 rw,prjquota
66 22 0:70 / /scratch rw,nosuid - nfs4 server:/scratch rw,vers=4.2
"""


def test_a_line() -> None:
    assert table(TABLE)[0] == Mount(
        Path("/"), "8:1", "ext4", "/dev/sda1", frozenset({"rw", "relatime", "errors=remount-ro"})
    )


def test_names_are_unescaped() -> None:
    strange = table(TABLE)[4]
    assert (strange.point, strange.source) == (Path("/run/moorage/17/scratch/a b\\\tc"), "evil\n1 2")


@pytest.mark.parametrize("letter", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\r"])
def test_a_name_cannot_end_its_line(letter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = f"63 62 0:61 / /run/moorage/17/x{letter}1 2 3:4 / /etc rw - tmpfs evil rw"
    monkeypatch.setattr(mounts, "TABLE", tmp_path / "mountinfo")
    mounts.TABLE.write_bytes(f"{line}\n".encode())
    for (mount,) in (table(line), table()):
        assert mount.point == Path(f"/run/moorage/17/x{letter}1")


def test_below_is_what_can_be_unmounted_in_this_order() -> None:
    assert below(Path("/run/moorage/17"), table(TABLE)) == [
        Path("/run/moorage/17/scratch/a b\\\tc"),
        Path("/run/moorage/17/scratch"),
        Path("/run/moorage/17"),
    ]


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/", "ext4"),
        ("/var/lib", "ext4"),
        ("/run/moorage/17/user", "tmpfs"),
        ("/run/moorage/17/scratch/x", "ext4"),
        ("/scratch/moorage", "nfs4"),
    ],
)
def test_what_a_place_lies_on(place: str, kind: str) -> None:
    assert holding(Path(place), table(TABLE)).kind == kind


def test_the_kernels_own_table_can_be_read() -> None:
    assert Path("/proc") in [mount.point for mount in table()]
