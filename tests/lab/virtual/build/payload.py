"""What running guests are given on a read-only disk: the node image, kind and kubectl, test images, manifests."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import yaml

from . import oci
from .binaries import VERSION, Binaries, binaries
from .cache import Input, cached
from .inner_images import Bakery, test_images
from .node_image import SOURCES, node_image
from .node_root import copy, programs
from .progress import phase
from .tools import tools

# Podman gives an image loaded without a registry this one, and so must kind be asked for it.
IMAGE = f"localhost/kindest/node:{VERSION}"
LABEL = "lab-payload"
# Where guests find it.
CARRIED = "/srv/lab"
MANIFESTS = Path(__file__).resolve().parents[1] / "kubernetes/manifests"
CONFIGURATION = MANIFESTS.with_name("kind.yaml")
MEMORY = MANIFESTS.with_name("memory.yaml")
PATCHES = MANIFESTS.with_name("patches")


@dataclass(frozen=True)
class Payload:
    """`disk` is a file system labelled `lab-payload`; `archive` is the node image by itself.

    At the top of the disk: node-image.tar (its image is called `image`), kind, kubectl, kind.yaml and the patches it
    names, kind-memory.yaml, the test images shell.tar and web.tar, and the manifests of the checks.
    """

    disk: Path
    archive: Path
    image: str = IMAGE


def payload() -> Payload:
    built = binaries()
    archive = node_image(IMAGE, VERSION, built, built.kind_files)
    images = small_images(built)
    files = [archive, built.path("kind"), CONFIGURATION, *sorted(images.glob("*.tar")), *sorted(MANIFESTS.iterdir())]
    made = (archive.parent.name, images.name)
    inputs: tuple[Input, ...] = (*made, CONFIGURATION, MEMORY, MANIFESTS, PATCHES, Path(__file__))

    def build(place: Path) -> None:
        with phase("making the payload disk"):
            tree = place / "tree"
            for file in files:
                copy(file, tree / file.name)
            copy(built.path("kubernetes"), tree / "kubectl")
            copy(PATCHES, tree / PATCHES.name)
            (tree / "kind-memory.yaml").write_text(patched(CONFIGURATION.read_text(), MEMORY.read_text()))
            file_system(place / "disk", tree)
            shutil.rmtree(tree)

    return Payload(cached("payload", inputs, build) / "disk", archive)


def patched(configuration: str, patch: str) -> str:
    """A configuration of kind's with one more patch; as JSON, which YAML holds."""
    whole = yaml.safe_load(configuration)
    whole["kubeadmConfigPatches"].append(patch)
    return json.dumps(whole)


def small_images(built: Binaries) -> Path:
    """A directory of archives with an image each, for what tests bring into a cluster."""
    inputs: tuple[Input, ...] = (programs().parent.name, *(Path(__file__).with_name(source) for source in SOURCES))

    def build(place: Path) -> None:
        work = place / "work"
        work.mkdir()
        for name, image in test_images(Bakery(work, built)).items():
            oci.write_docker_archive(place / f"{name}.tar", image)
        shutil.rmtree(work)

    return cached("test-images", inputs, build)


def file_system(disk: Path, tree: Path) -> None:
    """Just large enough: mke2fs wants a number, and a file system that is only read needs no room."""
    content = sum(path.stat().st_size for path in tree.iterdir())
    size = f"{(content >> 20) * 101 // 100 + 16}M"
    lean = ["-t", "ext4", "-m", "0", "-N", "64", "-O", "^has_journal,^resize_inode", "-L", LABEL]
    tools().run(["mke2fs", "-q", *lean, "-d", str(tree), str(disk), size], binds=[tree.parent])
