"""What the lab makes of what programs in its guests say of several nodes and the network between them."""

from __future__ import annotations

import json
from collections import Counter
from ipaddress import ip_address
from pathlib import Path

import pytest
import yaml

from moorage.common.errors import MoorageError
from support.frames import vxlan
from virtual.jobs import multi_node_job
from virtual.probes import fabric, open_ports
from virtual.probes.fabric import Fabric
from virtual.probes.open_ports import Open

OF_ANOTHER_KIND = {"ifname": "lo", "linkinfo": {"info_kind": "bridge", "info_data": {}}}
LINKS = json.dumps(
    [
        {},
        OF_ANOTHER_KIND,
        {"ifname": "moor171v", "linkinfo": {"info_kind": "vxlan", "info_data": {"id": 171, "port": 4789}}},
        {"ifname": "moor17v", "linkinfo": {"info_kind": "vxlan", "info_data": {"id": 17, "port": 339}}},
    ]
)
SOCKETS = """\
udp   UNCONN 0      0               0.0.0.0:339        0.0.0.0:*
udp   UNCONN 0      0         127.0.0.53%lo:53         0.0.0.0:*    users:(("systemd-resolve",pid=60,fd=13))
tcp   LISTEN 0      128           127.0.0.1:37463      0.0.0.0:*    users:(("python3",pid=7,fd=5),("conmon",pid=8,fd=5))
tcp   LISTEN 0      4096               [::]:22            [::]:*    users:(("sshd",pid=11,fd=4),("systemd",pid=1,fd=9))
tcp   LISTEN 0      4096                  *:9100             *:*    users:(("node exporter",pid=12,fd=3))
tcp   LISTEN 0      5    [::ffff:127.0.0.1]:8080             *:*    users:(("java",pid=13,fd=3))
"""
OUTPUT = """\
moorage:    0.0 s  starting the agents
moorage:    1.5 s  n1: preparing Podman
moorage:    2.0 s  n2: preparing Podman
n2: no phase
moorage:   30.5 s  n3: joining the cluster
moorage:   31.0 s  n2: joining the cluster
moorage:   31.0 s  n2: joining the cluster: waiting
moorage:   31.5 s  n1: waiting until all nodes are ready: n2 has not joined
moorage: n2: something to know
moorage: ready after 1:01
"""


def test_the_segment_of_a_job_is_known_by_its_number() -> None:
    assert fabric.parse(LINKS, "17") == Fabric(17, 339)
    assert fabric.parse(LINKS, str((1 << 24) + 17)) == Fabric(17, 339)
    with pytest.raises(MoorageError, match="there is no VXLAN of job 1"):
        fabric.parse(LINKS, "1")


def test_a_forged_packet_brings_a_datagram_to_a_container() -> None:
    packet = Fabric(17, 339).forged("forged", "10.89.1.9", "0a:00:00:11:00:02")
    assert packet[:8] == vxlan(17, b"")
    assert packet[8:14] == bytes.fromhex("0a0000110002")
    assert packet.endswith(b"forged")
    assert ip_address("10.89.1.9").packed + (4000).to_bytes(2, "big") + (fabric.PORT).to_bytes(2, "big") in packet


def test_open_ports_are_told_with_whose_they_are() -> None:
    found = open_ports.parse(SOCKETS)
    assert Open("udp", ip_address(0), 339, "") in found
    assert Open("tcp", ip_address("127.0.0.1"), 37463, "python3") in found
    assert Counter((one.port, one.local) for one in found) == Counter(
        {(339, False): 1, (53, True): 1, (37463, True): 1, (22, False): 1, (9100, False): 1, (8080, True): 1}
    )


def test_the_speed_is_what_has_arrived() -> None:
    report = {"end": {"sum_sent": {"bits_per_second": 9e9}, "sum_received": {"bits_per_second": 94.5e6}}}
    assert multi_node_job.speed(json.dumps(report)) == 94.5
    with pytest.raises(ValueError, match="unable to connect"):
        multi_node_job.speed('{"error": "unable to connect"}')


def test_a_job_over_several_nodes_tells_of_each() -> None:
    assert [*multi_node_job.stamps(OUTPUT)] == ["n1", "n2", "n3"]
    assert multi_node_job.stamps(OUTPUT)["n2"][0] == (2.0, "preparing Podman")
    assert multi_node_job.joining(OUTPUT) == {"n2": 31.0, "n3": 30.5}


def test_moments_of_the_api_are_compared_with_others() -> None:
    assert multi_node_job.created({"metadata": {"creationTimestamp": "1970-01-01T00:01:00Z"}}) == 60.0


def test_the_manifests_are_those_that_the_tests_speak_of() -> None:
    text = "---\n".join(path.read_text() for path in sorted(multi_node_job.MANIFESTS.iterdir()))
    objects = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text)}
    assert objects["StatefulSet", "crew"]["spec"]["replicas"] == multi_node_job.PODS
    assert objects["Service", "web"]["spec"]["ports"][0]["nodePort"] == multi_node_job.NODE_PORT
    assert {("DaemonSet", "web"), ("Pod", "near"), ("Pod", "far"), ("Service", "far")} <= {*objects}


@pytest.mark.parametrize("name", ["receive", "connect", "send"])
def test_programs_in_guests_share_no_code_with_what_they_watch(name: str) -> None:
    source = Path(fabric.PROGRAMS, f"{name}.py").read_text()
    assert "moorage" not in source
