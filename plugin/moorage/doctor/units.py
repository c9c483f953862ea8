"""Checks of Moorage's units on this node: installed, not masked, enabled, running."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from moorage.node.finding import Finding
from moorage.node.hostfiles import Node

WARDEN: Final = "moorage-warden@.service"
SWEEP: Final = "moorage-sweep.service"
TIMER: Final = "moorage-sweep.timer"
TRASH: Final = "moorage-trash.service"
# What starts each unit; the Prolog starts the warden.
STARTED_BY: Final = {WARDEN: "", SWEEP: "multi-user.target", TRASH: "multi-user.target", TIMER: "timers.target"}
# systemd takes the first place that has the file.
PLACES: Final = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
ASKED: Final = ("Id", "ActiveState", "NeedDaemonReload", "UnitFileState")
LIMIT: Final = 10.0


def check(node: Node) -> Iterator[Finding]:
    """The checks by the units' files, which are quick."""
    for name, target in STARTED_BY.items():
        found = next(
            (file for place in PLACES if (file := node.path(f"{place}/{name}")).is_symlink() or file.exists()), None
        )
        if found is None:
            yield Finding(
                "units", f"{name} is not installed", f"put config/{name} into {PLACES[0]}", code="M-SYSTEMD-2"
            )
        elif _masked(found):
            yield Finding("units", f"{name} is masked", f"systemctl unmask {name}", code="M-SYSTEMD-3")
        elif target and not any(_wanted(node, place, target, name) for place in PLACES):
            yield Finding("units", f"{name} is not enabled", f"systemctl enable --now {name}", code="M-SYSTEMD-4")


def states() -> Iterator[Finding]:
    """The checks that ask systemd."""
    from moorage.common.command import run

    asked = [name for name in STARTED_BY if "@" not in name]
    said = run(["systemctl", "show", f"--property={','.join(ASKED)}", *asked], limit=LIMIT).stdout
    yield from (finding for block in said.split("\n\n") for finding in _state(block))


def _state(block: str) -> Iterator[Finding]:
    known = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
    name = known.get("Id", "")
    if known.get("ActiveState") == "failed":
        yield Finding(
            "units",
            f"{name} has failed",
            f"see why: journalctl -u {name}; then systemctl restart {name}",
            code="M-SYSTEMD-5",
        )
    elif name == TIMER and known.get("ActiveState") == "inactive" and known.get("UnitFileState") == "enabled":
        yield Finding("units", f"{name} is enabled and not running", f"systemctl start {name}", code="M-SYSTEMD-6")
    if known.get("NeedDaemonReload") == "yes":
        yield Finding(
            "units", f"{name} has changed since systemd read it", "systemctl daemon-reload", code="M-SYSTEMD-7"
        )


def _masked(file: Path) -> bool:
    return (file.is_symlink() and str(file.readlink()) == "/dev/null") or (file.exists() and not file.stat().st_size)


def _wanted(node: Node, place: str, target: str, name: str) -> bool:
    link = node.path(f"{place}/{target}.wants/{name}")
    return link.is_symlink() or link.exists()
