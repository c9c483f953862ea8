"""Tries whether an overlay works on an idmapped mount with this kernel; a version would not tell."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from moorage.linux import idmap, libc, mounts
from moorage.linux.idmap import Line, Owners
from moorage.root.images.store import Store

SOMEBODY: Final = 12345
_ALL_PRIVATE: Final = (1 << 14) | (1 << 18)
_LONGEST: Final = 4096


def trouble(store: Store) -> str:
    """The reason why that does not work in the store; empty if it works."""
    with tempfile.TemporaryDirectory(dir=store.probes) as place:
        said, tell = os.pipe()
        child = os.fork()
        if not child:
            _tell(tell, Path(place))
        os.close(tell)
        with os.fdopen(said, "rb") as answer:
            words = answer.read(_LONGEST)
        _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        return "the probe of mapped mounts died"
    return words.decode(errors="replace")


def _tell(to: int, place: Path) -> None:
    """Run in the child of a fork, which gets its own mount namespace: its mounts end with it."""
    code = 1
    try:
        os.write(to, _tried(place).encode()[:_LONGEST])
        code = 0
    finally:
        os._exit(code)


def _tried(place: Path) -> str:
    try:
        libc.unshare(libc.NEW_MOUNTS)
        mounts.mount("", "", Path("/"), _ALL_PRIVATE)
        return _seen(place)
    except OSError as error:
        return f"mapped mounts do not work here ({error.strerror or error})"


def _seen(place: Path) -> str:
    lower, mapped, own = (place / name for name in ("lower", "mapped", "own"))
    for directory in (lower, mapped, own):
        directory.mkdir()
    (lower / "file").touch()
    mounts.mount_tmpfs(own, size=1 << 20, inodes=100, uid=0, gid=0, mode=0o700)
    for name in ("upper", "work", "merged"):
        (own / name).mkdir()
    one = (Line(0, SOMEBODY, 1),)
    with idmap.user_namespace(Owners(one, one)) as namespace, idmap.detached(lower) as mount:
        idmap.change(mount, lower, idmap.READ_ONLY, namespace)
        idmap.attach(mount, mapped)
    options = f"lowerdir={mapped},upperdir={own}/upper,workdir={own}/work"
    mounts.mount("overlay", "overlay", own / "merged", options=options)
    owner = (own / "merged" / "file").stat().st_uid
    return "" if owner == SOMEBODY else f"an overlay shows owner {owner} where the mapped mount has {SOMEBODY}"
