"""A real Podman for native tests: this node's own, or that of the lab's guests in their tree.

All of it is in the mount namespace of the test, and gone with it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from moorage.common.command import Completed, run
from moorage.linux.idmap import Range

CACHE: Final = Path(os.environ.get("MOORAGE_CACHE", "/var/cache/moorage"))
PACKAGE: Final = Path(__file__).parents[2] / "plugin"
LIMIT: Final = 120.0
# In a mere chroot the kernel makes no user namespace.
ENTER: Final = ("unshare", "--mount", "sh", "-c", 'cd "$0" && pivot_root . . && umount -l . && exec "$@"')
KERNELS: Final = ("proc", "sys", "dev")


@dataclass(frozen=True)
class Engine:
    """Where Podman is (`root`), and a directory that has the same name there and here."""

    root: Path
    place: Path

    def run(
        self,
        *argv: str | Path,
        env: dict[str, str] | None = None,
        input: str | None = None,
        ok: Sequence[int] = (0,),
        limit: float = LIMIT,
    ) -> Completed:
        words = argv if self.root == Path("/") else (*ENTER, self.root, *argv)
        return run(words, env=env, input=input, ok=ok, limit=limit)

    def user(self, name: str, uid: int, gid: int, subids: Range) -> None:
        """Somebody who may run Podman; only in a tree, where nobody else is asked."""
        for file, line in (
            ("passwd", f"{name}:x:{uid}:{gid}::/:/bin/sh"),
            ("group", f"{name}:x:{gid}:"),
            ("subuid", f"{name}:{subids.start}:{subids.count}"),
            ("subgid", f"{name}:{subids.start}:{subids.count}"),
        ):
            with (self.root / "etc" / file).open("a") as accounts:
                accounts.write(f"{line}\n")

    def moorage(self, *words: str | Path, input: str | None = None, ok: Sequence[int] = (0,)) -> Completed:
        """A command of the product; the configuration and the jobs in `place` are the node's."""
        python = "python3" if self.root != Path("/") else sys.executable
        code = "import sys; from pathlib import Path; from moorage.common import job; "
        code += "from moorage.node.config import load; from moorage.cli import main; "
        code += "place = Path(sys.argv[1]); load.PLACE, job.RUN = place / 'moorage.yaml', place / 'run'; "
        code += "main(sys.argv[2:])"
        environment = {"PYTHONPATH": str(PACKAGE), "PYTHONDONTWRITEBYTECODE": "1"}
        argv = (python, "-c", code, self.place, *words)
        return self.run(*argv, env=environment, input=input, ok=ok)


def trees() -> list[Path]:
    """Trees with a Podman in them, the latest first."""
    found = [tree for tree in CACHE.glob("guest-node-*/tree") if (tree / "usr/bin/podman").exists()]
    return sorted(found, key=lambda tree: tree.stat().st_mtime, reverse=True)


def busybox(engine: Engine) -> bytes:
    """A shell that needs nothing else, out of an image of the lab's."""
    for archive in sorted(CACHE.glob("test-images-*/shell.tar")):
        with tarfile.open(archive) as outer:
            for member in outer:
                if member.name.endswith("layer.tar") and (found := _shell(outer.extractfile(member))):
                    return found
    return (engine.root / "bin/busybox").read_bytes()


def _shell(packed: IO[bytes] | None) -> bytes | None:
    with tarfile.open(fileobj=packed) as layer:
        found = [member for member in layer if member.name == "bin/busybox"]
        file = layer.extractfile(found[0]) if found else None
        return file.read() if file else None


def entered(place: Path) -> Engine | None:
    """An engine in the test's own mount namespace, or None where there is no Podman for it."""
    if found := trees():
        return Engine(_assembled(found[0], place), place)
    return Engine(Path("/"), place) if shutil.which("podman") else None


def _assembled(tree: Path, place: Path) -> Path:
    root, layers = (place.with_name(f"{place.name}.{name}") for name in ("root", "layers"))
    for directory in (root, layers):
        directory.mkdir(exist_ok=True)
    run(["mount", "-t", "tmpfs", "layers", layers])
    for name in ("upper", "work"):
        (layers / name).mkdir()
    options = f"lowerdir={tree},upperdir={layers}/upper,workdir={layers}/work"
    run(["mount", "-t", "overlay", "engine", "-o", options, root])
    for name in KERNELS:
        run(["mount", "--rbind", f"/{name}", root / name])
    for name in ("run", "tmp"):
        run(["mount", "-t", "tmpfs", name, root / name])
    # What is mounted in there later is seen on both sides.
    run(["mount", "--bind", place, place])
    run(["mount", "--make-shared", place])
    for shared in (place, PACKAGE, CACHE):
        target = root / shared.relative_to("/")
        target.mkdir(parents=True, exist_ok=True)
        run(["mount", "--bind", shared, target])
    run(["umount", "--lazy", root / "sys/fs/cgroup"])
    run(["mount", "-t", "cgroup2", "cgroup", root / "sys/fs/cgroup"])
    return root
