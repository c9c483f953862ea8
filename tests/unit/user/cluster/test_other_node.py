"""A node that joins: Podman is a stand-in, and the node's files are in a directory."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moorage.common import phases
from moorage.common.description import Kubernetes, Mooring, Segment
from moorage.common.errors import UserError
from moorage.common.events import Watch
from moorage.common.podman import Places
from moorage.user.cluster import node_container, node_resources, other_node
from moorage.user.cluster.api import Access
from moorage.user.cluster.failure import Failed
from moorage.user.cluster.invitation import Invitation
from moorage.user.cluster.node_resources import GIB, Share
from moorage.user.cluster.other_node import Network
from support.described import described

IMAGE = "kindest/node:v1.36.3"
FULL = f"docker.io/{IMAGE}"
TOKEN = "a1b2c3.a1b2c3d4e5f6g7h8"  # noqa: S105
INVITATION = Invitation.of("10.89.0.2", Access("", "the authority", "a certificate", "a key"), TOKEN)
PODMAN = """\
#!/bin/sh
echo "$@" >>{state}/podman
case "$1 $2" in
"image exists") grep -sqxF "$3" {state}/image || exit 1 ;;
"volume create") echo volume1 ;;
"run "*) mkdir -p {root}/run/containerd; touch {root}/run/containerd/containerd.sock ;;
"inspect --type=container") echo {pid} ;;
"exec --privileged") case "$4" in
    systemctl) cp {root}/etc/containerd/config.toml {state}/containerd ;;
    kubeadm) cp -p {root}/run/*.json {state}; {join} ;;
    esac ;;
"logs --tail=300") echo "the node says" ;;
exec*) echo "$3 says" ;;
*) exit 9 ;;
esac
"""


class Forwards:
    """Stands in for the holder of the job's network."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int]] = []

    def forward(self, address: str, port: int, process: int) -> int:
        self.asked.append((address, port, process))
        return 40001


class Node:
    def __init__(self, place: Path, fakes: Path) -> None:
        self.state, self.root = place / "state", place / "root"
        self.state.mkdir()
        (self.root / "etc/containerd").mkdir(parents=True)
        (self.root / "etc/containerd/config.toml").write_text("version = 2\n")
        (self.state / "image").write_text(f"{FULL}\n")
        self.fakes = fakes
        self.places = Places(place / "run")
        for directory in (self.places.user, self.places.scratch):
            directory.mkdir(parents=True)
        self.holder = Forwards()
        self.said: list[str] = []
        self.invited = [None, None, INVITATION]
        self.podman()

    def podman(self, pid: int = 0, join: str = "") -> None:
        text = PODMAN.format(state=self.state, root=self.root, pid=pid or os.getpid(), join=join or "true")
        (self.fakes / "podman").write_text(text)
        (self.fakes / "podman").chmod(0o755)

    def join(self) -> None:
        fields = described(node="n2", spec={"cluster": "kind"}, podman=str(self.fakes / "podman"))
        mooring = Mooring.from_dict(fields, self.places)
        segment = Segment("10.89.0.0/16", 1450, "0a:00:00:11:00:02", ("n1", "n2"))
        mooring = replace(mooring, kubernetes=Kubernetes(image=IMAGE), nodes=2, place=1, fabric=segment)
        holder: Any = self.holder
        with Watch() as watch:
            other_node.join(
                mooring,
                self.places.run / "k8s",
                lambda phase, text: self.said.append(text),
                watch,
                Network(segment, holder),
                lambda: self.invited.pop(0) if len(self.invited) > 1 else self.invited[0],
            )

    def noted(self, name: str) -> str:
        return (self.state / name).read_text()


@pytest.fixture
def node(tmp_path: Path, fakes: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    node = Node(tmp_path, fakes)
    monkeypatch.setattr(other_node, "_inside", lambda process, place: node.root / place)
    monkeypatch.setattr(node_container, "KUBECTL", "bin/sh")
    monkeypatch.setattr(node_container, "astray", lambda process, tree: False)
    monkeypatch.setattr(node_resources, "of_job", lambda tree, whole, environ: Share(2, 4 * GIB, 4 * GIB - 1))
    monkeypatch.setattr("moorage.user.cluster.node_resources.name", lambda node: "berth2")
    return node


class TestJoin:
    def test_its_phases(self, node: Node) -> None:
        node.join()
        assert node.said == [
            "looking for the node image",
            "creating the node container",
            "waiting for the first node's control plane",
            "joining the cluster",
        ]

    def test_kubeadm_finds_whom_to_believe_and_the_token(self, node: Node) -> None:
        node.join()
        assert "exec --privileged moorage-17-worker1 kubeadm join --config=/run/moorage-join.json" in node.noted(
            "podman"
        )
        assert json.loads(node.noted("moorage-join.json"))["nodeRegistration"]["name"] == "berth2"
        discovery = json.loads(node.noted("moorage-discovery.json"))
        assert discovery["users"][0]["user"]["token"] == TOKEN
        assert stat.S_IMODE((node.state / "moorage-discovery.json").stat().st_mode) == 0o600

    @pytest.mark.parametrize("join", ["true", "exit 1"])
    def test_the_token_does_not_stay(self, node: Node, join: str) -> None:
        node.podman(join=f"rm {node.state}/*.json; {join}")
        try:
            node.join()
        except Failed:
            assert join == "exit 1"
        places = (*node.root.rglob("*"), *node.places.run.rglob("*"))
        assert not [path for path in places if path.is_file() and TOKEN.encode() in path.read_bytes()]

    def test_its_users_get_in_by_its_own_loopback(self, node: Node) -> None:
        node.join()
        place = node.places.user / "kubeconfig"
        assert stat.S_IMODE(place.stat().st_mode) == 0o600
        assert Access.of(place).server == "https://127.0.0.1:40001"
        assert node.holder.asked == [("10.89.0.2", 6443, os.getpid())]
        assert os.access(node.places.user / "bin/kubectl", os.X_OK)

    def test_it_has_the_users_proxies(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
        node.join()
        (run,) = [line for line in node.noted("podman").splitlines() if line.startswith("run ")]
        assert "-e HTTPS_PROXY=http://proxy:3128 -e https_proxy=http://proxy:3128 -e NO_PROXY=10.89.0.0/16," in run

    def test_its_image_is_called_by_the_name_by_which_it_is_there(self, node: Node) -> None:
        (node.state / "image").write_text(f"localhost/{IMAGE}\n")
        node.join()
        (run,) = [line for line in node.noted("podman").splitlines() if line.startswith("run ")]
        assert run.split()[-1] == f"localhost/{IMAGE}"

    def test_its_runtime_is_set_as_on_the_first(self, node: Node) -> None:
        node.join()
        assert "stats_collect_period" in node.noted("containerd")
        patch = node.places.scratch / "kubernetes/patches/kubeletconfiguration+merge.json"
        assert "systemReserved" in json.loads(patch.read_text())


class TestFailure:
    def fails(self, node: Node) -> Failed:
        with pytest.raises(Failed) as failed:
            node.join()
        assert "\n" not in str(failed.value)
        return failed.value

    def test_no_image(self, node: Node) -> None:
        (node.state / "image").unlink()
        with pytest.raises(UserError, match="there is no image kindest/node"):
            node.join()

    def test_kubeadms_own_words_name_the_cause(self, node: Node) -> None:
        line = f"error execution phase kubelet-start: no luck with {TOKEN}"
        node.podman(join=f"echo '{line}' >&2; echo 'To see the stack trace' >&2; exit 1")
        failed = self.fails(node)
        assert str(failed).startswith("joining the cluster failed: error execution phase kubelet-start: no luck with")
        assert TOKEN not in str(failed)
        assert "no luck" in failed.logs["kubeadm"]
        assert failed.logs["node container"] == "the node says\n"

    def test_without_words_its_end_does(self, node: Node) -> None:
        node.podman(join="exit 7")
        assert str(self.fails(node)) == "joining the cluster failed: kubeadm has ended with 7"

    def test_a_join_that_takes_too_long(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(phases, "JOIN", replace(phases.JOIN, timeout=0.5))
        node.podman(join="sleep 60")
        assert str(self.fails(node)) == "joining the cluster: not done after 0.5 s"

    def test_no_invitation(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(phases, "INVITATION", replace(phases.INVITATION, timeout=0.1))
        node.invited = [None]
        assert str(self.fails(node)) == "waiting for the first node's control plane: not done after 0.1 s"

    def test_a_container_that_ends_meanwhile(self, node: Node) -> None:
        node.podman(pid=1 << 22)
        node.invited = [None]
        assert str(self.fails(node)) == "the node container moorage-17-worker1 has ended"


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("", ""),
        ("I1119 discovery.go: fine\n", ""),
        ("error: one\nerror execution phase x: two\nTo see the stack trace", "error execution phase x: two"),
        ("error: unable to read config", "unable to read config"),
    ],
)
def test_cause(said: str, cause: str) -> None:
    assert other_node.cause(said) == cause
