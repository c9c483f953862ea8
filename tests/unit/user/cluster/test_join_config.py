"""What Podman and kubeadm are told of a node that joins: as kind would tell them, and what kind cannot know."""

from __future__ import annotations

import itertools
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from moorage.common.description import Segment
from moorage.common.hardware import Hardware
from moorage.user.cluster import control_plane, join_config, kind_config
from moorage.user.cluster.kind_config import Plan

SEGMENT = Segment("10.89.0.0/16", 1450, "0a:00:00:11:00:02", ("n1", "n2"))
PLAN = Plan(
    job=17,
    image="docker.io/kindest/node:v1.36.3",
    version=(1, 36, 3),
    token="a1b2c3.a1b2c3d4e5f6g7h8",  # noqa: S106
    etcd="memory",
    patience=2.0,
    reserved={"cpu": "6100m", "memory": "1024Ki"},
    files=Path("/run/moorage/17/scratch/kubernetes"),
    name="berth2",
    labels={"moorage/node": "n2", "moorage/cpus": "4"},
)


def words(plan: Plan = PLAN, environ: dict[str, str] | None = None) -> list[str]:
    return join_config.container(plan, SEGMENT, 1, "volume1", environ or {})


class TestContainer:
    @pytest.mark.parametrize(
        "pair",
        [
            ("--name", "moorage-17-worker1"),
            ("--hostname", "moorage-17-worker1"),
            ("--label", "io.x-k8s.kind.role=worker"),
            ("--label", "io.x-k8s.kind.cluster=moorage-17"),
            ("--net", "moorage"),
            ("--tmpfs", "/tmp"),
            ("--tmpfs", "/run"),
            ("--volume", "volume1:/var:suid,exec,dev"),
            ("--volume", "/lib/modules:/lib/modules:ro"),
            ("-e", "container=podman"),
            ("--device", "/dev/fuse"),
        ],
    )
    def test_as_kind_has_it(self, pair: tuple[str, str]) -> None:
        found = words()
        assert pair in list(itertools.pairwise(found))
        assert {"--privileged", "--detach", "--tty", "--cgroupns=private"} < set(found)

    def test_all_nodes_know_its_addresses_and_it_knows_the_first(self) -> None:
        wanted = {"--ip=10.89.1.2", "--mac-address=0a:00:00:11:00:02", "--add-host=moorage-17-control-plane:10.89.0.2"}
        assert wanted < set(words())

    def test_its_files_and_devices_are_mounted(self) -> None:
        mounts = [
            word for word in words(replace(PLAN, hardware=Hardware(("/dev/tape0",)))) if word.startswith("--volume=")
        ]
        assert "--volume=/run/moorage/17/scratch/kubernetes:/kind/moorage:ro" in mounts
        unit = "/etc/systemd/system/kubelet.service.d/20-moorage.conf"
        assert f"--volume=/run/moorage/17/scratch/kubernetes/kubelet.conf:{unit}:ro" in mounts
        assert "--volume=/dev/tape0:/dev/tape0" in mounts

    def test_nothing_is_fetched(self) -> None:
        found = words()
        assert found[-1] == PLAN.image
        assert "--pull=never" in found

    @pytest.mark.parametrize(("file_system", "mapped"), [("xfs", True), ("btrfs", True), ("ext4", False), ("", False)])
    def test_devices_are_shown_where_kind_shows_them(self, file_system: str, mapped: bool) -> None:
        found = join_config.container(PLAN, SEGMENT, 1, "volume1", {}, file_system)
        assert ("--volume=/dev/mapper:/dev/mapper" in found) is mapped

    def test_no_proxy_is_asked_for_what_is_inside(self) -> None:
        found = join_config.proxies({"https_proxy": "http://proxy:3128", "NO_PROXY": "here"}, PLAN, SEGMENT)
        assert found["HTTPS_PROXY"] == found["https_proxy"] == "http://proxy:3128"
        inside = {"here", "10.89.0.0/16", kind_config.node(17), "10.96.0.0/16", "10.244.0.0/16", ".svc"}
        assert inside < set(found["no_proxy"].split(","))
        assert not [word for word in words() if "PROXY" in word]


class TestKubeadm:
    def test_the_authority_is_known_beforehand(self) -> None:
        """Looking for it by the token alone would mean to ask as a stranger, who is told nothing."""
        found = join_config.configuration(PLAN, SEGMENT, 1)
        assert (found["apiVersion"], found["kind"]) == ("kubeadm.k8s.io/v1beta4", "JoinConfiguration")
        assert found["discovery"] == {"file": {"kubeConfigPath": "/run/moorage-discovery.json"}}
        assert "unsafe" not in str(found)
        assert PLAN.token not in str(found)

    def test_it_is_registered_as_what_it_is(self) -> None:
        registration = join_config.configuration(PLAN, SEGMENT, 1)["nodeRegistration"]
        assert registration["name"] == "berth2"
        arguments = {one["name"]: one["value"] for one in registration["kubeletExtraArgs"]}
        assert arguments == {
            "node-ip": "10.89.1.2",
            "provider-id": "kind://podman/moorage-17/moorage-17-worker1",
            "node-labels": "moorage/node=n2,moorage/cpus=4",
        }

    def test_it_offers_no_more_than_its_own_share(self) -> None:
        (name, patch), *_ = join_config.files(PLAN).items()
        directory = join_config.configuration(PLAN, SEGMENT, 1)["patches"]["directory"]
        assert directory == f"/kind/moorage/{Path(name).parent}"
        # How kubeadm 1.36 recognizes one.
        assert re.fullmatch(r"kubeletconfiguration\+merge\.json", Path(name).name)
        assert patch == {"systemReserved": {"cpu": "6100m", "memory": "1024Ki"}}

    def test_it_is_as_patient_as_the_first(self) -> None:
        assert join_config.configuration(PLAN, SEGMENT, 1)["timeouts"] == control_plane.timeouts(2.0)


@pytest.mark.parametrize(
    "text",
    [
        "version = 2\n",
        'version = 3\n[plugins."io.containerd.cri.v1.runtime"]\n  snapshotter = "overlayfs"\n[other]\nx = 1\n',
        'version = 3\n[plugins."io.containerd.cri.v1.runtime".containerd]\n  x = 1\n',
    ],
)
def test_containerd_counts_as_seldom_as_on_the_first(text: str) -> None:
    before, after = tomllib.loads(text), tomllib.loads(join_config.containerd(text))
    assert after["plugins"]["io.containerd.cri.v1.runtime"].pop("stats_collect_period") == "10s"
    before.setdefault("plugins", {}).setdefault("io.containerd.cri.v1.runtime", {})
    assert after == before
