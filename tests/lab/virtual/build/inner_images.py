"""The images that containerd finds in a new node, and the small ones that tests bring along."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .binaries import Binaries
from .node_root import LIBRARIES, copy, install_busybox, install_programs, programs
from .oci import Image, Layer, layer

NODE_FILES = Path(__file__).resolve().parents[1] / "kubernetes/node"
KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl")
NOBODY = "65535:65535"
LAB = "localhost/lab"
UNWINDER = "libgcc_s.so.1"


@dataclass(frozen=True)
class Bakery:
    """Makes layers in `place`; one that several images share is made, compressed and stored once."""

    place: Path
    binaries: Binaries

    @cached_property
    def kubernetes(self) -> Layer:
        return self._layer("kubernetes", self._kubernetes)

    @cached_property
    def busybox(self) -> Layer:
        return self._layer("busybox", _busybox)

    @cached_property
    def packet_filters(self) -> Layer:
        return self._layer("packet-filters", _packet_filters)

    @cached_property
    def cni_agent(self) -> Layer:
        return self._layer("cni-agent", lambda tree: copy(NODE_FILES / "cni-agent", tree / "usr/local/bin/cni-agent"))

    @cached_property
    def network_tools(self) -> Layer:
        return self._layer("network-tools", _network_tools)

    @cached_property
    def page(self) -> Layer:
        return self._layer("page", _page)

    def program(self, name: str, path: str) -> Layer:
        return self._layer(name, lambda tree: copy(self.binaries.path(name), tree / path))

    def _kubernetes(self, tree: Path) -> None:
        copy(self.binaries.path("kubernetes"), tree / "usr/local/bin/kubernetes")
        for name in KUBERNETES:
            (tree / "usr/local/bin" / name).symlink_to("kubernetes")

    def _layer(self, name: str, fill: Callable[[Path], None]) -> Layer:
        tree = self.place / name
        tree.mkdir()
        fill(tree)
        return layer(self.place / f"{name}.tar", tree)


def node_images(bakery: Bakery, released: Sequence[str], pause: str) -> list[Image]:
    """Everything a node runs without asking anybody: `released` are the names that kubeadm wants."""
    kubernetes = [bakery.kubernetes]
    network = [bakery.kubernetes, bakery.busybox, bakery.packet_filters]
    layers = {
        "kube-apiserver": kubernetes,
        "kube-controller-manager": kubernetes,
        "kube-scheduler": kubernetes,
        "kube-proxy": network,
        "coredns": [bakery.program("coredns", "coredns")],
        "etcd": [bakery.program("etcd", "usr/local/bin/etcd")],
    }
    provisioner = bakery.program("local-path-provisioner", "usr/local/bin/local-path-provisioner")
    known = [name for name in released if short(name) in layers]
    return [
        *(Image(name, layers[short(name)], {"Entrypoint": entrypoint(short(name))}) for name in known),
        Image(pause, [bakery.program("pause", "pause")], {"Entrypoint": ["/pause"], "User": NOBODY}),
        Image(f"{LAB}/cni:1", [*network, bakery.cni_agent], {"Entrypoint": ["cni-agent"]}),
        Image(f"{LAB}/local-path-provisioner:1", [provisioner], {"Entrypoint": ["local-path-provisioner"]}),
        Image(f"{LAB}/busybox:1", [bakery.busybox], {"Cmd": ["sh"]}),
    ]


def test_images(bakery: Bakery) -> dict[str, Image]:
    """A shell with network tools, and a web server with one page."""
    serve = {"Cmd": ["httpd", "-f", "-p", "8080", "-h", "/www"], "ExposedPorts": {"8080/tcp": {}}}
    return {
        "shell": Image(f"{LAB}/shell:1", [bakery.busybox, bakery.network_tools], {"Cmd": ["sh"]}),
        "web": Image(f"{LAB}/web:1", [bakery.busybox, bakery.page], serve),
    }


def short(name: str) -> str:
    """registry/coredns/coredns:v1 -> coredns"""
    return re.sub(r":[^/]*$", "", name).rpartition("/")[2]


def entrypoint(name: str) -> list[str]:
    # kubeadm gives CoreDNS arguments but no command.
    return ["/coredns"] if name == "coredns" else [name]


def _busybox(tree: Path) -> None:
    install_busybox(tree)
    for directory, mode in (("etc", 0o755), ("root", 0o700), ("tmp", 0o1777)):
        (tree / directory).mkdir()
        (tree / directory).chmod(mode)
    (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")
    (tree / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")


def _packet_filters(tree: Path) -> None:
    """What kube-proxy and the CNI agent call; iptables in the form whose kernel modules load by themselves."""
    install_programs(tree, ["usr/bin/jq", "usr/sbin/nft", "usr/sbin/xtables-nft-multi"])
    copy(programs() / LIBRARIES / "xtables", tree / LIBRARIES / "xtables")
    for name in ("iptables", "ip6tables"):
        for variant in ("", "-save", "-restore"):
            (tree / "usr/sbin" / f"{name}{variant}").symlink_to("xtables-nft-multi")


def _network_tools(tree: Path) -> None:
    install_programs(tree, ["usr/bin/getent", "usr/bin/iperf3", "usr/bin/ip"])
    # iperf3 ends its threads by it, and finds it only then.
    copy(programs() / LIBRARIES / UNWINDER, tree / LIBRARIES / UNWINDER)


def _page(tree: Path) -> None:
    (tree / "www").mkdir()
    (tree / "www/index.html").write_text("web answers\n")
