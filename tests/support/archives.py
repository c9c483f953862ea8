"""Images of a few bytes, as tests need them: good ones, and such as nobody should have written."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
PLATFORM = {"architecture": "amd64", "os": "linux"}


@dataclass
class Member:
    """One thing in a layer."""

    name: str
    kind: bytes = tarfile.REGTYPE
    data: bytes = b""
    target: str = ""
    mode: int = 0o644
    uid: int = 0
    device: tuple[int, int] = (0, 0)
    xattrs: Mapping[str, str] = field(default_factory=dict)
    size: int | None = None

    def header(self) -> tarfile.TarInfo:
        member = tarfile.TarInfo(self.name)
        member.type, member.mode, member.linkname = self.kind, self.mode, self.target
        member.uid = member.gid = self.uid
        member.size = len(self.data) if self.size is None else self.size
        member.devmajor, member.devminor = self.device
        member.pax_headers = {f"SCHILY.xattr.{name}": value for name, value in self.xattrs.items()}
        return member


def directory(name: str, mode: int = 0o755, **more: object) -> Member:
    return Member(name, tarfile.DIRTYPE, mode=mode, **more)  # type: ignore[arg-type]


def link(name: str, target: str) -> Member:
    return Member(name, tarfile.SYMTYPE, target=target, mode=0o777)


def hard_link(name: str, target: str, mode: int = 0o644) -> Member:
    return Member(name, tarfile.LNKTYPE, target=target, mode=mode)


def layer(*members: Member) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member in members:
            tar.addfile(member.header(), io.BytesIO(member.data) if member.data else None)
    return data.getvalue()


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def config(layers: Sequence[bytes], **settings: object) -> bytes:
    rootfs = {"type": "layers", "diff_ids": [digest(one) for one in layers]}
    return json.dumps({**PLATFORM, "created": "2026-01-01T00:00:00Z", "config": settings, "rootfs": rootfs}).encode()


def saved(target: Path, name: str, *layers: bytes, described: bytes | None = None) -> Path:
    """As `docker save` writes an image."""
    about = config(layers) if described is None else described
    paths = [f"{digest(one).removeprefix('sha256:')}/layer.tar" for one in layers]
    names = [name] if name else None
    manifest = [{"Config": "config.json", "RepoTags": names, "Layers": paths}]
    files = {"config.json": about, "manifest.json": json.dumps(manifest).encode()}
    with tarfile.open(target, "w") as tar:
        for path, data in (files | dict(zip(paths, layers, strict=True))).items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return target


def blobs(name: str, *layers: bytes) -> tuple[dict[str, bytes], dict[str, object]]:
    """An image's blobs by digest, and its line in an index."""
    about = config(layers)
    found = {digest(data): data for data in (about, *layers)}
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _line(CONFIG, about),
        "layers": [_line(LAYER, one) for one in layers],
    }
    data = json.dumps(manifest).encode()
    line = _line(MANIFEST, data) | {"platform": PLATFORM}
    line["annotations"] = {"org.opencontainers.image.ref.name": name, "io.containerd.image.name": name}
    return found | {digest(data): data}, line


def oci_directory(target: Path, name: str, *layers: bytes) -> Path:
    found, line = blobs(name, *layers)
    place = target / "blobs/sha256"
    place.mkdir(parents=True)
    for key, data in found.items():
        (place / key.removeprefix("sha256:")).write_bytes(data)
    (target / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
    (target / "index.json").write_text(json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [line]}))
    return target


def oci_archive(target: Path, directory: Path) -> Path:
    with tarfile.open(target, "w") as tar:
        for path in sorted(directory.iterdir()):
            tar.add(path, path.name)
    return target


def _line(kind: str, data: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": digest(data), "size": len(data)}
