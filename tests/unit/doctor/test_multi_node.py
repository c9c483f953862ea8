"""What a node lacks for jobs on several: told by the doctor, and no fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.doctor import multi_node
from moorage.node import routes
from moorage.node.checks import Scene, Surroundings
from moorage.node.config.schema import Config, Fabric
from moorage.node.factcache import Facts
from moorage.node.hostfiles import Node

HEADER = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
DEFAULT = "eth0 00000000 0102A8C0 0003 0 0 100 00000000 0 0 0\n"
SITES = "eth0 0000590A 00000000 0001 0 0 100 0000FFFF 0 0 0\n"
PART = "eth0 0007590A 00000000 0001 0 0 100 00FFFFFF 0 0 0\n"
WHOLE = "eth0 0000000A 00000000 0001 0 0 100 000000FF 0 0 0\n"
OTHER = "eth0 00005A0A 00000000 0001 0 0 100 0000FFFF 0 0 0\n"


def found(
    root: Path, files: dict[str, str], fabric: Fabric | None = None, settings: dict[str, list[str]] | None = None
) -> list[str]:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    settings = {"prologflags": ["Contain"]} if settings is None else settings
    around = Surroundings({}, None, None, Path("/etc/slurm/slurm.conf"), settings, {})
    advice = list(multi_node.check(Scene(Config(fabric=fabric or Fabric()), around, Facts(), Node(root))))
    assert {one.fault for one in advice} <= {"advice"}
    said = "jobs on several nodes are refused here: "
    assert all(one.cause.startswith(said) for one in advice)
    return [str(one).removeprefix(said) for one in advice]


def test_a_node_that_lacks_nothing(tmp_path: Path) -> None:
    files = {multi_node.FIRST_UNPRIVILEGED_PORT[1:]: "1024\n", routes.IPV4[1:]: HEADER + DEFAULT + OTHER}
    assert found(tmp_path, files) == []


@pytest.mark.parametrize(("route", "network"), [(SITES, "10.89.0.0/16"), (PART, "10.89.7.0/24"), (WHOLE, "10.0.0.0/8")])
def test_a_route_to_where_containers_would_be(tmp_path: Path, route: str, network: str) -> None:
    assert found(tmp_path, {routes.IPV4[1:]: HEADER + DEFAULT + route}) == [
        f"this node has a route to {network}, and containers would have 10.89.0.0/16: choose another fabric.subnet"
    ]


@pytest.mark.parametrize(("first", "fabric", "port"), [("1023", Fabric(), 339), ("1024", Fabric(port=1339), 1339)])
def test_ports_that_any_user_can_use(tmp_path: Path, first: str, fabric: Fabric, port: int) -> None:
    (line,) = found(tmp_path, {multi_node.FIRST_UNPRIVILEGED_PORT[1:]: first}, fabric)
    assert line.startswith(f"fabric.port is {port} and fabric.source_ports are 600-1023, and ports from {first} up ")


def test_a_prolog_that_comes_too_late(tmp_path: Path) -> None:
    (line,) = found(tmp_path, {}, settings={"prologflags": ["NoHold"]})
    assert line.startswith("/etc/slurm/slurm.conf lacks PrologFlags=Alloc")


def test_a_kernel_without_its_modules(tmp_path: Path) -> None:
    lines = found(tmp_path, {"proc/modules": "", "sys/module/vxlan/refcnt": "1"})
    assert lines == ["this kernel has no module nft_fwd_netdev: install the rest of the kernel's modules"]
