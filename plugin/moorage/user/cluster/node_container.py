"""The container that is a cluster's node, and the images that it may be made of."""

from __future__ import annotations

import os
import shlex
from collections.abc import Container as Codes
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from moorage.common import node_image
from moorage.common.command import Completed, run
from moorage.common.description import Mooring
from moorage.common.errors import MoorageError, UserError
from moorage.common.podman import inside
from moorage.user.agent.delegated_cgroup import INIT
from moorage.user.cluster import kind_progress
from moorage.user.cluster.kind_progress import Course

CGROUPS: Final = Path("/sys/fs/cgroup")
# Where published node images have it.
KUBECTL: Final = "usr/bin/kubectl"
MOST_LINKS: Final = 8
# Podman takes a tenth of a second for whatever it is asked, and kind asks sixty times in a start. So what it has told
# once is not asked again, as long as nothing of that can change: of the node once that is there, and of itself. What
# kind has done in the node is done there without it: by the number of the node's first process, with that one's
# environment, as who is root in there. And what it runs gets more words than kind has for it.
WRAPPER: Final = """\
#!/bin/bash
{known}
look() {{ process=$(<"$place/process") && mapfile -d "" -t around <"/proc/$process/environ"; }} 2>/dev/null
tell() {{
    local answer=$place/${{*//"/"/-}}
    [ ${{#answer}} -lt 250 ] || exec "$podman" "$@"
    [ -e "$answer" ] || {{ "$podman" "$@" >"$answer.$$" && mv "$answer.$$" "$answer"; }} || exit
    exec cat "$answer"
}}

case $1 in
run) exec "$podman" run --pidfile="$place/process" {more} "${{@:2}}" ;;
info | --version) tell "$@" ;;
inspect | ps) [ ! -e "$place/process" ] || tell "$@" ;;
exec) words=("${{@:2}}") ;;
esac
while [[ ${{words[0]}} = --privileged || ${{words[0]}} = -i ]]; do words=("${{words[@]:1}}"); done
if [[ ${{words[0]-}} = [^-]* ]] && look; then
    enter=(nsenter --target="$process" --user --mount --uts --ipc --net --pid --cgroup)
    exec env --ignore-environment "${{around[@]}}" "${{enter[@]}}" -- "${{words[@]:1}}"
fi
exec "$podman" "$@"
"""
ADMINISTRATOR: Final = "tell the administrator of this node"


class Container:
    """Only for who is in the job's tree."""

    def __init__(self, mooring: Mooring, name: str) -> None:
        self.mooring = mooring
        self.name = name

    def podman(self, *words: str, limit: float, ok: Codes[int] = (0,)) -> Completed:
        return run([self.mooring.podman, *words], env=environment(self.mooring), cwd=Path("/"), limit=limit, ok=ok)

    def first_process(self, limit: float) -> int:
        words = ("inspect", "--type=container", "--format={{.State.Pid}}", self.name)
        text = self.podman(*words, limit=limit).stdout.strip()
        if not text.isdecimal() or text == "0":
            raise MoorageError(f"the node container {self.name} does not run")
        return int(text)

    def prove(self, process: int, tree: Path) -> None:
        """Nothing says so if it is not where the job's limits hold for it."""
        if astray(process, tree):
            raise MoorageError(f"the node container is not in a cgroup of its own below {tree}")


def write_wrapper(path: Path, podman: Path, words: Iterable[str]) -> None:
    """A podman for kind, which knows no more of it than its name."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o700)
    names = {"podman": podman, "place": path.parent}
    known = "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in names.items())
    path.write_text(WRAPPER.format(known=known, more=shlex.join(words)))


def environment(mooring: Mooring) -> dict[str, str]:
    """That of the tree, with the checked podman first in its PATH, for kind calls it by its name."""
    around = inside({"LC_ALL": "C.UTF-8", **os.environ}, mooring.places)
    return around | {"PATH": ":".join(filter(None, (str(mooring.podman.parent), around["PATH"])))}


def astray(process: int, tree: Path) -> bool:
    """The runtime has left it where Podman is, which it does without a word if it fails to make a cgroup."""
    return strayed(Path(f"/proc/{process}/cgroup").read_text(), tree)


def strayed(cgroups: str, tree: Path) -> bool:
    """As it is told of a process in /proc."""
    unified = next((line for line in cgroups.splitlines() if line.startswith("0::/")), "")
    place = CGROUPS / unified.removeprefix("0::/")
    return tree not in place.parents or tree / INIT in (place, *place.parents)


def link_kubectl(process: int, directory: Path) -> Path:
    """The cluster's own kubectl for the job's script, where it lies: nothing is copied.

    The container belongs to the user, so the kernel lets him pass by way of its first process; the link is good as
    long as that lives.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    link = directory / "kubectl"
    link.unlink(missing_ok=True)
    link.symlink_to(resolved(Path(f"/proc/{process}/root"), KUBECTL))
    if not os.access(link, os.X_OK):
        link.unlink()
        raise MoorageError(f"the node image has no {KUBECTL}, or this node's policy keeps it from you")
    return link


def resolved(root: Path, place: str) -> Path:
    """Where the file is, seen from outside: an absolute link in there would lead elsewhere."""
    path = root / place
    for _ in range(MOST_LINKS):
        with suppress(OSError):
            target = path.readlink()
            path = root / target.relative_to("/") if target.is_absolute() else path.parent / target
            continue
        break
    return path


def provide(node: Container, image: str, course: Course) -> str:
    """Its full name in the job's own storage or in a store that it sees; else out of an archive, which takes its time.

    kind takes a short name for one of Docker's registry alone, and would fetch what it does not find there.
    """
    if name := _name(node, image, course):
        return name
    archive = node.mooring.kubernetes.archive
    if not archive:
        raise UserError(f"there is no image {image} on this node", f"{ADMINISTRATOR}: `moorage image add`")
    course.begin(kind_progress.LOADING)
    node.podman("load", "--quiet", f"--input={archive}", limit=course.deadline.left)
    if name := _name(node, image, course):
        return name
    raise UserError(f"there is no image {image} in {archive}", f"{ADMINISTRATOR}: kubernetes.image")


def _name(node: Container, image: str, course: Course) -> str | None:
    return next((name for name in node_image.full_names(image) if _is_there(node, name, course)), None)


def _is_there(node: Container, name: str, course: Course) -> bool:
    return node.podman("image", "exists", name, limit=course.deadline.left, ok=(0, 1)).code == 0
