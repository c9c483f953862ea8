"""The namespaces in which Podman runs without root: made once for the job, with the node's service manager hidden."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from moorage.common.command import run
from moorage.common.description import Mooring
from moorage.common.errors import MoorageError
from moorage.common.hardware import Hardware
from moorage.common.podman import hardware_conf, inside

# Whoever finds it there moves himself, or his helpers, to a scope of the user's own systemd, outside the job: Podman
# 5.4, and netavark 1.14 with its name server, which fails altogether where there is no such systemd.
SERVICE_MANAGER: Final = Path("/run/systemd")
# But for what the resolver of the same name has there: /etc/resolv.conf may lead to it, which Podman reads, and whoever
# carries the containers' packets. Flags that are locked on a user's mounts must be named again to be kept.
COVER: Final = """\
[ ! -d "$1/resolve" ] || { exec 3<"$1/resolve" && kept=yes; }
mount -t tmpfs -o mode=755,size=4k,nr_inodes=2 tmpfs "$1"
if [ "${kept-}" ]; then
    mkdir "$1/resolve"
    mount --no-canonicalize -o rbind,ro,nosuid,nodev,noexec /proc/self/fd/3 "$1/resolve"
fi
mount -o remount,bind,ro "$1"
"""


def prepare(mooring: Mooring, log: Path) -> None:
    """Have Podman make its namespaces, which last as long as the process that it leaves behind to hold them."""
    for place in mooring.places.to_make:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Only here is known what the job may open: the Prolog is over before there is a device cgroup. A cluster's node
    # gets its hardware from kind.
    given = mooring.hardware.openable() if mooring.spec.cluster == "none" else Hardware()
    mooring.places.hardware.write_text(hardware_conf(given))
    hidden = SERVICE_MANAGER if SERVICE_MANAGER.is_dir() else None
    podman(mooring, log, ["unshare", *(("sh", "-euc", COVER, "sh", str(hidden)) if hidden else ("true",))])
    if hidden and not _is_covered(hidden, _holder(mooring)):
        raise MoorageError(f"Podman still sees {hidden}, through which its helpers leave the job: see {log}")


def podman(mooring: Mooring, log: Path, words: Sequence[str]) -> None:
    """For who is in the tree; what it says goes to the log."""
    environment = inside({"LC_ALL": "C.UTF-8", **os.environ}, mooring.places)
    run([mooring.podman, *words], env=environment, cwd=Path("/"), log=log, limit=mooring.waits.podman)


def _holder(mooring: Mooring) -> int:
    """The process that holds the namespaces."""
    try:
        return int((mooring.places.temporary / "pause.pid").read_text())
    except (OSError, ValueError) as error:
        raise MoorageError(f"Podman has left nobody to hold its namespaces: {error}") from error


def _is_covered(place: Path, pid: int) -> bool:
    mounts = (line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines())
    types = [fields[fields.index("-") + 1] for fields in mounts if fields[4] == str(place)]
    return types[-1:] == ["tmpfs"]
