"""Podman's configuration for one job: nothing is shared with other jobs, and nothing runs outside the job's cgroup."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import moorage
from moorage.common.job import Job
from moorage.common.podman import Key, Places, toml
from moorage.node.programs import HELPERS

# The prefix length of new networks, as in Podman's own defaults.
SIZE: Final = 24
PASTA: Final = "pasta"
KNOWN_TO_PODMAN: Final = (PASTA, "slirp4netns")
# Podman starts pasta for the network namespace that all its bridges share, and expects a file with the number of the
# process that carries the packets: it checks that this process lives, and ends it with the namespace (5.0 to 6.1). This
# stand-in writes the file and makes no network. Podman reads its output to the end, so nothing may keep that open.
STAND_IN: Final = """\
#!/bin/sh
# In place of pasta, where the job's way out is another or none.
PATH=/usr/bin:/bin
for word; do
    case $before in
        --pid) kept_in=$word ;;
        --netns) namespace=$word ;;
    esac
    before=$word
done
case $namespace in
    */rootless-netns) ;;
    *) {others} ;;
esac
[ -n "$kept_in" ] || exit 0
cd /
setsid sleep infinity </dev/null >/dev/null 2>&1 &
echo $! >"$kept_in"
"""
# For single containers and steps of builds, which Podman connects to no bridge.
NO_PASTA: Final = "echo 'there is no pasta on this node: leave --network away, or name a network' >&2; exit 1"


@dataclass(frozen=True)
class Tools:
    """The parts of this node that a job's Podman uses."""

    podman: Path
    runtime: Path
    driver: str
    registries: str | None = None
    # The name servers of containers, unless Podman finds them itself.
    resolvers: tuple[str, ...] = ()
    # The node's pasta, for single containers if the uplink is none of Podman's.
    pasta: Path | None = None
    # The network between containers and slirp4netns, if its default would hide addresses that the node can reach.
    between: str | None = None
    # Podman's networks: the first is that of the default one, the others are pools for new ones.
    networks: tuple[str, ...] = ()
    # The job's view of the node's images, if there are any.
    images: Path | None = None
    python: Path = Path(sys.executable)


def files(job: Job, tools: Tools) -> dict[str, tuple[str, int]]:
    """All files of Podman in the run directory: path, text and mode."""
    places = Places(job.run)
    return {
        "etc/containers.conf": (containers_conf(places, tools), 0o644),
        "etc/storage.conf": (storage_conf(places, tools.images), 0o644),
        "etc/registries.conf": (tools.registries or "", 0o644),
        "bin/podman": (wrapper(places, tools), 0o755),
        **({f"helpers/{PASTA}": (stand_in(tools), 0o755)} if tools.driver not in KNOWN_TO_PODMAN else {}),
    }


def containers_conf(places: Places, tools: Tools) -> str:
    return toml(
        "Podman of this job. Seen with Podman 5.4 and 5.8.",
        {
            "containers": (
                Key("log_driver", "k8s-file", "journald is the default where its files can be read: beyond the job"),
                Key("pids_limit", 0, "the job's tree has a limit of its own"),
                Key("keyring", False, "each container would take one of the 200 keys that a user has on a node"),
                *_bridged(tools.driver),
                *_resolvers(tools.resolvers),
            ),
            "engine": (
                *_helpers(places, tools.driver),
                Key("cgroup_manager", "cgroupfs", "systemd would put containers outside the job"),
                Key("events_logger", "file", "as log_driver"),
                Key("lock_type", "file", "the default is in /dev/shm, one for all jobs of a user on a node"),
                Key("runtime", tools.runtime.name, "an older one may stay in Podman's own cgroup without a word"),
                Key("remote", False, "there is no service to be asked"),
                Key("tmp_dir", str(places.temporary), "the job's own"),
                Key("static_dir", str(places.graph / "libpod"), "the job's own, so that its database is, too"),
                Key("volume_path", str(places.graph / "volumes"), "the job's own"),
                Key("image_copy_tmp_dir", str(places.scratch / "tmp"), "the default has no bounds"),
                Key("network_cmd_options", _slirp4netns(tools), "slirp4netns with small packets is eight times slower"),
            ),
            "engine.runtimes": (Key(tools.runtime.name, [str(tools.runtime)], "the one that was checked"),),
            "network": (
                Key("default_rootless_network_cmd", _command(tools.driver), "chosen for this node"),
                Key("pasta_options", ["--mtu", "65520"], "as network_cmd_options"),
                Key("network_config_dir", str(places.graph / "networks"), "the job's own"),
                *_subnets(tools.networks),
            ),
        },
    )


def stand_in(tools: Tools) -> str:
    """The program that stands in for pasta. Single containers get no network either if there is no uplink."""
    if tools.driver == "none":
        return STAND_IN.format(others=":")
    return STAND_IN.format(others=f'exec {tools.pasta} "$@"' if tools.pasta else NO_PASTA)


def _command(driver: str) -> str:
    """The driver that Podman starts: it knows only two."""
    return driver if driver in KNOWN_TO_PODMAN else PASTA


def _slirp4netns(tools: Tools) -> list[str]:
    return ["mtu=65520", *([f"cidr={tools.between}"] if tools.between else [])]


def _helpers(places: Places, driver: str) -> Iterator[Key]:
    if driver not in KNOWN_TO_PODMAN:
        where = [str(places.helpers), *HELPERS, "$BINDIR"]
        yield Key("helper_binaries_dir", where, f"the first has a {PASTA} that makes no network; the rest as always")


def _bridged(driver: str) -> Iterator[Key]:
    if driver not in KNOWN_TO_PODMAN:
        yield Key("netns", "bridge", "by default each container would get a pasta of its own")


def _resolvers(given: tuple[str, ...]) -> Iterator[Key]:
    if given:
        yield Key("dns_servers", list(given), "Podman would ask somebody on the Internet where the node's are its own")


def _subnets(networks: tuple[str, ...]) -> Iterator[Key]:
    if networks:
        first, *others = networks
        pools: list[dict[str, str | int]] = [{"base": one, "size": SIZE} for one in others]
        yield Key("default_subnet", first, "of the site's pool, and none that this node has a route to")
        yield Key("default_subnet_pools", pools, "the same")


def storage_conf(places: Places, images: Path | None = None) -> str:
    more = (Key("additionalimagestores", [str(images)], "the node's own, which nobody copies"),) if images else ()
    return toml(
        "Images and containers of this job.",
        {
            "storage": (
                Key("driver", "overlay", "the kernel's own, as the user"),
                Key("rootless_storage_path", str(places.graph), "5.4 does not heed graphroot, and 5.8 wants no two"),
                Key("runroot", str(places.user / "containers"), "where 5.4 has it in any case"),
            ),
            **({"storage.options": more} if more else {}),
        },
    )


def wrapper(places: Places, tools: Tools) -> str:
    """The program `podman` of the job's script.

    Podman started from the script would run outside the delegated cgroup, where it can neither make nor enter a cgroup
    (crun 1.21). In another job, which may inherit the script's environment, this program runs the node's own Podman.
    """
    release = Path(moorage.__file__).resolve().parents[1]
    return (
        f"#!{tools.python} -IS\n"
        "import sys\n"
        f"sys.path.append({str(release)!r})\n"
        "from moorage.user.agent.exec_client import main\n"
        f"main({str(places.run)!r}, {str(places.socket)!r}, {str(tools.podman)!r})\n"
    )
