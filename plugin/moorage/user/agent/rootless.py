"""The namespaces in which Podman runs without root, with the node's service manager hidden in them."""

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

# A program that finds a systemd there moves itself, or its helpers, to a scope of the user's systemd, outside the job:
# Podman 5.4, and netavark 1.14 with its name server, which fails where there is no such systemd.
SERVICE_MANAGER: Final = Path("/run/systemd")
HIDE: Final = Path(__file__).with_name("hide_service_manager.sh").read_text()


def prepare(mooring: Mooring, log: Path) -> None:
    """Have Podman make its namespaces; they last as long as the process that Podman leaves behind to hold them."""
    for place in mooring.places.to_make:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    # What the job may open is known only here: when the Prolog runs, there is no device cgroup yet. The node of a
    # cluster gets its hardware from kind.
    given = mooring.hardware.openable() if mooring.spec.cluster == "none" else Hardware()
    mooring.places.hardware.write_text(hardware_conf(given))
    hidden = SERVICE_MANAGER if SERVICE_MANAGER.is_dir() else None
    podman(mooring, log, ["unshare", *(("sh", "-euc", HIDE, "sh", str(hidden)) if hidden else ("true",))])
    if hidden and not _is_covered(hidden, _holder(mooring)):
        raise MoorageError(
            f"Podman still sees {hidden}, through which its helpers leave the job: see {log}", code="M-PODMAN-5"
        )


def podman(mooring: Mooring, log: Path, words: Sequence[str]) -> None:
    """Run Podman, with its output in the log; only a process in the delegated cgroup can use this."""
    environment = inside({"LC_ALL": "C.UTF-8", **os.environ}, mooring.places)
    run([mooring.podman, *words], env=environment, cwd=Path("/"), log=log, limit=mooring.waits.podman)


def _holder(mooring: Mooring) -> int:
    """The process that holds the namespaces."""
    try:
        return int((mooring.places.temporary / "pause.pid").read_text())
    except (OSError, ValueError) as error:
        raise MoorageError(f"Podman has left nobody to hold its namespaces: {error}", code="M-PODMAN-6") from error


def _is_covered(place: Path, pid: int) -> bool:
    mounts = (line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines())
    types = [fields[fields.index("-") + 1] for fields in mounts if fields[4] == str(place)]
    return types[-1:] == ["tmpfs"]
