"""Podman of one job, as root and the user both know it: its directories, its environment, its hardware."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moorage.common.hardware import Bind, Hardware

# What containers.conf has unless told otherwise; an image's own comes before it.
DEFAULT_PATH: Final = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

KEEPER_SOCKET: Final = "keeper.sock"

RELEASE: Final = "release"

# Podman finds a user's bus without being told (by its usual place), but not where it is told of another one.
NO_BUS: Final = "no-bus"

# What a user may have in his environment that would make Podman another one, or tell it of a service manager.
FOREIGN: Final = ("CONTAINER_", "CONTAINERS_", "_CONTAINERS_", "PODMAN_", "STORAGE_DRIVER", "STORAGE_OPTS")

OF_SERVICES: Final = ("NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "INVOCATION_ID")


@dataclass(frozen=True)
class Places:
    """Where Podman keeps what: small and short-lived things in the run directory, in memory; the rest on scratch."""

    run: Path

    @property
    def user(self) -> Path:
        return self.run / "user"

    @property
    def scratch(self) -> Path:
        return self.run / "scratch"

    @property
    def graph(self) -> Path:
        return self.scratch / "storage"

    @property
    def socket(self) -> Path:
        return self.user / KEEPER_SOCKET

    @property
    def programs(self) -> Path:
        return self.run / "bin"

    @property
    def helpers(self) -> Path:
        """Programs of ours that Podman takes for its own; in nobody's PATH."""
        return self.run / "helpers"

    @property
    def release(self) -> Path:
        """The Python environment of the Moorage that serves the job on this node."""
        return self.run / RELEASE

    @property
    def temporary(self) -> Path:
        """Where Podman keeps its locks, and the number of the process that holds its namespaces: there by default."""
        return self.user / "libpod" / "tmp"

    @property
    def hardware(self) -> Path:
        """Podman reads it after containers.conf."""
        return self.user / "hardware.conf"

    @property
    def to_make(self) -> tuple[Path, ...]:
        """The directories that must be there before Podman is."""
        return (self.scratch / "tmp", self.scratch / "data", self.scratch / "cache", self.user / "config")


@dataclass(frozen=True)
class Key:
    name: str
    value: str | int | bool | list[str] | list[dict[str, str | int]]
    reason: str


def hardware_conf(given: Hardware) -> str:
    """What every container gets; one device among it that the job may not open, and Podman would start none."""
    return toml("Hardware of this node for the containers of this job.", {"containers": tuple(_hardware(given))})


def _hardware(given: Hardware) -> Iterator[Key]:
    if given.devices:
        yield Key("devices", [f"{one}:{one}:rw" for one in given.devices], "the site's: the job may open no others")
    if given.binds:
        yield Key("mounts", [_mount(bind) for bind in given.binds], "what goes with them")
    if given.environment:
        yield Key("env", [DEFAULT_PATH, *given.environment], "the same; Podman's default is replaced, not added to")


def _mount(bind: Bind) -> str:
    return f"type=bind,source={bind.source},destination={bind.target},ro={'false' if bind.writable else 'true'}"


def environment(places: Places) -> dict[str, str]:
    """What everything in the job's tree is told, over anything that a user has set."""
    return configuration(places) | {
        "XDG_CONFIG_HOME": str(places.user / "config"),
        "XDG_DATA_HOME": str(places.scratch / "data"),
        "XDG_CACHE_HOME": str(places.scratch / "cache"),
        "TMPDIR": str(places.scratch / "tmp"),
        "DBUS_SESSION_BUS_ADDRESS": f"unix:path={places.user / NO_BUS}",
    }


def configuration(places: Places) -> dict[str, str]:
    """What the job's script is told: other tools that know these files (skopeo, buildah) use the same images."""
    return {
        "CONTAINERS_CONF": str(places.run / "etc" / "containers.conf"),
        "CONTAINERS_CONF_OVERRIDE": str(places.hardware),
        "CONTAINERS_STORAGE_CONF": str(places.run / "etc" / "storage.conf"),
        "CONTAINERS_REGISTRIES_CONF": str(places.run / "etc" / "registries.conf"),
        "XDG_RUNTIME_DIR": str(places.user),
    }


def inside(environ: Mapping[str, str], places: Places) -> dict[str, str]:
    """The environment in which a program runs in the tree: its caller's, but Podman's own where it concerns that."""
    kept = _without(environ, FOREIGN + OF_SERVICES)
    path = [place for place in kept.get("PATH", "").split(":") if place != str(places.programs)]
    return {"HOME": str(places.user), **kept, **environment(places), "PATH": ":".join(path)}


def script(environ: Mapping[str, str], places: Places) -> dict[str, str]:
    """The environment in which a job's script runs: its own, with the tree's programs first in its PATH."""
    kept = _without(environ, FOREIGN)
    path = ":".join(filter(None, (str(places.programs), kept.get("PATH"))))
    return {**kept, **configuration(places), "PATH": path}


def _without(environ: Mapping[str, str], prefixes: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.startswith(prefixes)}


def toml(title: str, sections: Mapping[str, tuple[Key, ...]]) -> str:
    lines = [f"# {title}"]
    for section, keys in sections.items():
        lines += ["", f"[{section}]"]
        # Strings, lists, numbers and booleans are written in TOML as they are in JSON, tables all but.
        lines += [f"# {key.reason}\n{key.name} = {json.dumps(key.value, separators=(', ', ' = '))}" for key in keys]
    return "\n".join(lines) + "\n"
