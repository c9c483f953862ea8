"""A node image in the shape of the published ones, which plain kind accepts: two layers, inner images packed."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from moorage.common.command import run
from moorage.common.errors import MoorageError

from . import oci
from .binaries import Binaries
from .cache import Input, cached
from .content_store import import_images
from .inner_images import NODE_FILES, Bakery, node_images
from .node_root import copy, node_root, programs
from .progress import phase
from .tools import PATH, tools

KUBERNETES = ("kubeadm", "kubectl", "kubelet")
RUNTIME = ("containerd", "containerd-shim-runc-v2", "ctr")
PLUGINS = ("host-local", "loopback", "portmap", "ptp")
ENABLED = ("containerd.service", "kubelet.service", "undo-mount-hacks.service")
SOURCES = ("content_store.py", "inner_images.py", "node_image.py", "node_root.py", "oci.py")
SETTINGS = {
    "Entrypoint": ["/usr/local/bin/entrypoint", "/sbin/init"],
    "Env": [f"PATH={PATH}", "container=docker", "HTTP_PROXY=", "HTTPS_PROXY=", "NO_PROXY="],
    "StopSignal": "SIGRTMIN+3",
}


def node_image(name: str, version: str, binaries: Binaries, kind_files: Path) -> Path:
    """The archive of the node image, as `docker save` would write it."""
    trees = [node_root().parent.name, programs().parent.name, binaries.place.name]
    sources = (Path(__file__).with_name(source) for source in SOURCES)
    inputs: tuple[Input, ...] = (name, version, *trees, kind_files, NODE_FILES, *sources)

    def build(place: Path) -> None:
        work = place / "work"
        work.mkdir()
        with phase("assembling the node image"):
            base = base_layer(work, binaries, kind_files)
            node = node_layer(work, binaries, kind_files, version)
            oci.write_docker_archive(place / "node-image.tar", oci.Image(name, [base, node], SETTINGS))
        shutil.rmtree(work)

    return cached("node-image", inputs, build) / "node-image.tar"


def base_layer(work: Path, binaries: Binaries, kind_files: Path) -> oci.Layer:
    """The system as kind's own files make it, with the container runtime."""
    root = work / "base"
    run(["cp", "-a", "--reflink=auto", node_root(), root])
    lay_kind_files(kind_files, root)
    for name in RUNTIME:
        copy(binaries.path(name), root / "usr/local/bin" / name)
    for name in PLUGINS:
        copy(binaries.path(name), root / "opt/cni/bin" / name)
    spec = tools().run([str(binaries.path("ctr")), "oci", "spec"]).stdout
    (root / "etc/containerd/cri-base.json").write_text(json.dumps(container_defaults(spec)))
    (root / "etc/kubernetes/manifests").mkdir(parents=True)
    configure_systemd(root)
    return oci.layer(work / "base.tar", root)


def node_layer(work: Path, binaries: Binaries, kind_files: Path, version: str) -> oci.Layer:
    """Kubernetes and the images it starts, as kind adds them to its base image."""
    root = work / "node"
    copy(binaries.path("kubernetes"), root / "usr/bin/kubernetes")
    for name in KUBERNETES:
        (root / "usr/bin" / name).symlink_to("kubernetes")
    (root / "kind/manifests").mkdir(parents=True)
    (root / "kind/version").write_text(version)
    for name in ("default-cni.yaml", "default-storage.yaml"):
        copy(NODE_FILES / name, root / "kind/manifests" / name)
    fill_store(work, root, binaries, version, sandbox_image(kind_files))
    (root / "var/log").mkdir()
    # A helper that only kind's own build calls, and the bootstrap's logs, disappear as in an image built in steps.
    return oci.layer(work / "node.tar", root, whiteouts=["usr/local/bin/clean-install"], opaque=["var/log"])


def fill_store(work: Path, root: Path, binaries: Binaries, version: str, pause: str) -> None:
    wanted: list[str | Path] = [root / "usr/bin/kubeadm", "config", "images", "list", "--kubernetes-version", version]
    (work / "inner").mkdir()
    images = node_images(Bakery(work / "inner", binaries), run(wanted).stdout.split(), pause)
    oci.write_oci_archive(work / "inner.tar", images)
    runtime = (binaries.path("containerd"), binaries.path("ctr"))
    import_images(tools(), *runtime, work / "inner.tar", root / "var/lib/containerd")


def lay_kind_files(source: Path, root: Path) -> None:
    """kind's own files for a node, which its module carries; the module cache has dropped their modes."""
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        relative = file.relative_to(source)
        run(["install", "-D", "-m", "755" if "bin" in relative.parts else "644", file, root / relative])


def sandbox_image(kind_files: Path) -> str:
    """The pause image that kind's containerd is configured for."""
    configuration = (kind_files / "etc/containerd/config.toml").read_text()
    found = re.search(r'^\s*sandbox_image\s*=\s*"(.+)"', configuration, re.MULTILINE)
    if not found:
        raise MoorageError("kind's containerd configuration names no sandbox_image: this kind is not one we know")
    return found[1]


def container_defaults(spec: str) -> dict[str, Any]:
    """containerd's own defaults for a container, with kind's hook and without limits on processes."""
    defaults: dict[str, Any] = json.loads(spec)
    del defaults["process"]["rlimits"]
    return defaults | {"hooks": {"createContainer": [{"path": "/kind/bin/mount-product-files.sh"}]}}


def configure_systemd(root: Path) -> None:
    (root / "usr/sbin/init").symlink_to("../lib/systemd/systemd")
    wants = root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir()
    for unit in ENABLED:
        (wants / unit).symlink_to(f"/etc/systemd/system/{unit}")
    with (root / "etc/systemd/journald.conf").open("a") as journal:
        journal.write("[Journal]\nReadKMsg=no\n")
