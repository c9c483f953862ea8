"""One file, directory or link of a tar file, and where its content is."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, Protocol

from moorage.common.errors import MoorageError
from moorage.linux import beneath
from moorage.root.images import opaque
from moorage.root.images.storage_layers import Layer
from moorage.root.images.tar_split import plain, shown

LONGEST_PATH: Final = 4096
XATTR: Final = "SCHILY.xattr."
CAPABILITY: Final = "security.capability"
OVERLAYS: Final = "user.overlay."
USERS: Final = "user."


class Content(Protocol):
    """Where the bytes of a file are. Files with equal values are hard links."""

    def opened(self) -> IO[bytes]: ...


@dataclass(frozen=True)
class InLayer:
    """A file that Podman has unpacked."""

    layer: Layer
    path: str

    def opened(self) -> IO[bytes]:
        with beneath.opened(self.layer.files) as files:
            return os.fdopen(beneath.regular(files, self.path), "rb")


@dataclass(frozen=True)
class Slice:
    """A part of a file of ours. `owner` differs for contents that were in one place at different times."""

    file: Path
    offset: int = 0
    owner: object = None

    def opened(self) -> IO[bytes]:
        file = self.file.open("rb")
        file.seek(self.offset)
        return file


@dataclass(frozen=True)
class Entry:
    kind: bytes = tarfile.DIRTYPE
    mode: int = 0o755
    uid: int = 0
    gid: int = 0
    mtime: int = 0
    size: int = 0
    target: str = ""
    xattrs: Mapping[str, str] = field(default_factory=dict)
    content: Content | None = None

    @property
    def is_directory(self) -> bool:
        return self.kind == tarfile.DIRTYPE

    def header(self, name: str) -> tarfile.TarInfo:
        member = tarfile.TarInfo(name)
        member.type, member.mode, member.mtime = self.kind, self.mode, self.mtime
        member.uid, member.gid = self.uid, self.gid
        member.size, member.linkname = self.size, self.target
        member.pax_headers = {XATTR + key: value for key, value in self.xattrs.items()}
        return member


def parse(member: tarfile.TarInfo, content: Content | None) -> Entry | None:
    """The entry of a member, with what a container needs; None for a device, which no job's Podman can make."""
    kinds = (tarfile.DIRTYPE, tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE)
    kind = tarfile.REGTYPE if member.isreg() else member.type
    if kind not in kinds:
        return None
    if member.sparse is not None:
        raise MoorageError(f"{shown(member.name)} is written in a way (sparse) that cannot be followed")
    return Entry(
        kind=kind,
        mode=member.mode & 0o7777,
        uid=member.uid,
        gid=member.gid,
        mtime=int(member.mtime),
        size=member.size if kind == tarfile.REGTYPE else 0,
        target=member.linkname if kind == tarfile.SYMTYPE else "",
        xattrs={key: value for key, value in _attributes(member).items() if _kept(key)},
        content=content if kind == tarfile.REGTYPE else None,
    )


def is_opaque(member: tarfile.TarInfo) -> bool:
    """Whether the directory is marked as opaque: it hides what lower layers have in it."""
    return any(_attributes(member).get(key) == "y" for key in (opaque.ROOTS, opaque.USERS))


def is_whiteout(member: tarfile.TarInfo) -> bool:
    """Whether it is a whiteout as overlayfs writes it: a character device with the number 0/0."""
    return member.ischr() and (member.devmajor, member.devminor) == (0, 0)


def path(member: tarfile.TarInfo) -> str:
    """The path of a member; a MoorageError for names that no tool writes into a layer."""
    name = member.name
    if ".." in name.split("/") or "\0" in name or len(os.fsencode(name)) > LONGEST_PATH:
        raise MoorageError(f"{shown(name)} leads out of its layer, or is no path")
    return plain(name)


def _attributes(member: tarfile.TarInfo) -> dict[str, str]:
    headers = member.pax_headers.items()
    return {key.removeprefix(XATTR): value for key, value in headers if key.startswith(XATTR)}


def _kept(attribute: str) -> bool:
    return attribute == CAPABILITY or (attribute.startswith(USERS) and not attribute.startswith(OVERLAYS))
