"""The node container: a container that is a node of the cluster, and the image that it is made of."""

from __future__ import annotations

import os
import shlex
from collections.abc import Container as Codes
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from moorage.common import node_image, phases
from moorage.common.command import Completed, run
from moorage.common.description import Mooring
from moorage.common.errors import MoorageError, UserError
from moorage.common.podman import inside
from moorage.user.agent.delegated_cgroup import INIT
from moorage.user.cluster.kind_progress import CurrentPhase

CGROUPS: Final = Path("/sys/fs/cgroup")
# Where published node images have it.
KUBECTL: Final = "usr/bin/kubectl"
MOST_LINKS: Final = 8
WRAPPER: Final = Path(__file__).with_name("kind_podman.sh").read_text()
ADMINISTRATOR: Final = "tell the administrator of this node"


class Container:
    """A node container; only a process in the delegated cgroup can use this."""

    def __init__(self, mooring: Mooring, name: str) -> None:
        self.mooring = mooring
        self.name = name

    def podman(self, *words: str, limit: float, ok: Codes[int] = (0,)) -> Completed:
        return run([self.mooring.podman, *words], env=environment(self.mooring), cwd=Path("/"), limit=limit, ok=ok)

    def first_process(self, limit: float) -> int:
        words = ("inspect", "--type=container", "--format={{.State.Pid}}", self.name)
        text = self.podman(*words, limit=limit).stdout.strip()
        if not text.isdecimal() or text == "0":
            raise MoorageError(f"the node container {self.name} does not run", code="M-KUBE-16")
        return int(text)

    def prove(self, process: int, cgroup: Path) -> None:
        """Raise a MoorageError if the job's limits do not hold for the container: no program reports that."""
        if astray(process, cgroup):
            raise MoorageError(f"the node container is not in a cgroup of its own below {cgroup}", code="M-KUBE-17")


def write_wrapper(path: Path, podman: Path, words: Iterable[str]) -> None:
    """Write the podman that kind finds by this name, which adds the words to `podman run`; see kind_podman.sh."""
    settings = f"podman={shlex.quote(str(podman))}\nmore=({shlex.join(words)})\n"
    (path.parent / "settings").write_text(settings)
    path.unlink(missing_ok=True)
    path.touch(mode=0o700)
    path.write_text(WRAPPER)


def environment(mooring: Mooring) -> dict[str, str]:
    """The environment of the delegated cgroup, with the checked podman first in its PATH: kind calls it by its name."""
    around = inside({"LC_ALL": "C.UTF-8", **os.environ}, mooring.places)
    return around | {"PATH": ":".join(filter(None, (str(mooring.podman.parent), around["PATH"])))}


def astray(process: int, cgroup: Path) -> bool:
    """Whether the process is in Podman's own cgroup: a runtime that fails to make a cgroup leaves it there silently."""
    return strayed(Path(f"/proc/{process}/cgroup").read_text(), cgroup)


def strayed(cgroups: str, delegated: Path) -> bool:
    """The same, by the text of /proc/PID/cgroup."""
    unified = next((line for line in cgroups.splitlines() if line.startswith("0::/")), "")
    place = CGROUPS / unified.removeprefix("0::/")
    return delegated not in place.parents or delegated / INIT in (place, *place.parents)


def link_kubectl(process: int, directory: Path) -> Path:
    """Link the cluster's own kubectl into this directory of the job's script, without a copy.

    The user owns the container, so the kernel allows access through its first process, as long as that runs.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    link = directory / "kubectl"
    link.unlink(missing_ok=True)
    link.symlink_to(resolved(Path(f"/proc/{process}/root"), KUBECTL))
    if not os.access(link, os.X_OK):
        link.unlink()
        raise MoorageError(
            f"the node image has no {KUBECTL}, or this node's policy keeps it from you", code="M-KUBE-18"
        )
    return link


def resolved(root: Path, place: str) -> Path:
    """Where the file is, seen from outside: an absolute link in the container means the root of the container."""
    path = root / place
    for _ in range(MOST_LINKS):
        with suppress(OSError):
            target = path.readlink()
            path = root / target.relative_to("/") if target.is_absolute() else path.parent / target
            continue
        break
    return path


def provide(node: Container, image: str, phase: CurrentPhase) -> str:
    """Find the image on this node, or load it from the site's archive, which takes minutes; return its full name.

    kind takes a short name to mean Docker's registry, and would fetch an image that it does not find by that name.
    """
    if name := _name(node, image, phase):
        return name
    archive = node.mooring.kubernetes.archive
    if not archive:
        raise UserError(
            f"there is no image {image} on this node", f"{ADMINISTRATOR}: `moorage image add`", code="M-KUBE-19"
        )
    phase.begin(phases.LOAD)
    node.podman("load", "--quiet", f"--input={archive}", limit=phase.deadline.left)
    if name := _name(node, image, phase):
        return name
    raise UserError(f"there is no image {image} in {archive}", f"{ADMINISTRATOR}: kubernetes.image", code="M-KUBE-20")


def _name(node: Container, image: str, phase: CurrentPhase) -> str | None:
    return next((name for name in node_image.full_names(image) if _is_there(node, name, phase)), None)


def _is_there(node: Container, name: str, phase: CurrentPhase) -> bool:
    return node.podman("image", "exists", name, limit=phase.deadline.left, ok=(0, 1)).code == 0
