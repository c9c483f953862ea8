"""The node's store of images: a directory of root's alone, which Podman manages."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moorage.common import files, job
from moorage.common.command import run
from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError, Taken, UserError
from moorage.linux import flock, mounts
from moorage.node.config.schema import Store as Settings
from moorage.node.config.values import shown_size
from moorage.root.images import catalog
from moorage.root.images.catalog import Image

LIMIT: Final = 60.0
# The timeout for several GB from a slow registry, or under emulation.
LONG: Final = 2 * 3600.0
# So long a command waits for jobs that copy images, one after the other.
COPYING: Final = 600.0
VIEW: Final = "images"
# The only variables of the administrator's shell that reach Podman: they tell how to reach a registry.
PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE")
# Without these options Podman 5 fetches chunked images in pieces, and never checks the digest of the whole.
CONFIGURATION: Final = """\
[storage]
driver = "overlay"
graphroot = "{graph}"
runroot = "{run}"

[storage.options]
pull_options = {{enable_partial_images = "false", use_hard_links = "false"}}
"""


@dataclass(frozen=True)
class Store:
    path: Path
    keep_free: int = 0

    @classmethod
    def configured(cls, settings: Settings) -> Store:
        return cls(settings.path, settings.keep_free)

    @property
    def graph(self) -> Path:
        """Podman's own directory, which jobs see."""
        return self.path / "images"

    @property
    def lock(self) -> Path:
        """The lock for commands that change the store, and for jobs that copy it."""
        return self.path / "lock"

    @property
    def copies(self) -> Path:
        """Copies for users whose jobs cannot see the store itself."""
        return self.path / "copies"

    @property
    def records(self) -> Path:
        return self.path / "prepared"

    @property
    def temporary(self) -> Path:
        return self.path / "tmp"

    @property
    def probes(self) -> Path:
        return self.path / "probes"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the store. It is made if needed, and remains of interrupted commands are removed."""
        self._make()
        with flock.opened(self.lock) as descriptor:
            _take(descriptor, self.path)
            files.replace(self.path / "storage.conf", CONFIGURATION.format(graph=self.graph, run=self.path / "run"))
            self._remove_temporary()
            try:
                yield
            finally:
                self._remove_temporary()

    @contextmanager
    def workshop(self) -> Iterator[Path]:
        """A temporary directory in the store."""
        with tempfile.TemporaryDirectory(dir=self.temporary) as place:
            yield Path(place)

    def podman(
        self,
        *words: str | Path,
        input: str | None = None,
        limit: float = LIMIT,
        watch: Callable[[], None] | None = None,
    ) -> str:
        """Run Podman, and return its output. It is stopped if `watch` raises."""
        environment = self._environment(os.environ)
        return run(["podman", *words], env=environment, input=input, limit=limit, watch=watch).stdout

    def images(self) -> list[Image]:
        return catalog.parse(self.podman("images", "--no-trunc", "--format", "json"))

    def viewers(self) -> list[int]:
        """The jobs that have a view of the store now."""
        views = (mount.point.parent for mount in mounts.table() if mount.point.parent.name == VIEW)
        return sorted({int(view.parent.name) for view in views if _of_a_job(view)})

    def insist_on_room(self) -> None:
        """Raise Taken if less space is left on the disk than the site wants free."""
        space = os.statvfs(self.path)
        free = space.f_bavail * space.f_frsize
        if free < self.keep_free:
            what = f"only {shown_size(free >> 20 << 20)} are left on the disk of {self.path}"
            raise Taken(what, "make room, add a smaller image, or make store.keep_free smaller", code="M-STORE-7")

    def _remove_temporary(self) -> None:
        """Remove what a killed Podman was unpacking."""
        for left in self.temporary.iterdir():
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()

    def _environment(self, ours: Mapping[str, str]) -> dict[str, str]:
        proxies = {name: ours[name] for name in PROXIES if name in ours}
        return proxies | {
            "HOME": "/root",
            "TMPDIR": str(self.temporary),
            "CONTAINERS_CONF": os.devnull,
            "CONTAINERS_STORAGE_CONF": str(self.path / "storage.conf"),
            # Without this it prints warnings on nodes with cgroup v1.
            "PODMAN_IGNORE_CGROUPSV1_WARNING": "1",
        }

    def _make(self) -> None:
        inner = (self.graph, self.copies, self.records, self.temporary, self.probes, self.path / "run")
        for place in (self.path, *inner):
            place.mkdir(mode=0o700, parents=place is self.path, exist_ok=True)
            _insist_on_ownership(place)
        lies_on = mounts.holding(self.path.resolve(), mounts.table())
        if lies_on.kind == "overlay":
            what = f"the store {self.path} lies on an overlay ({lies_on.point}), on which containers cannot run"
            raise UserError(what, "set store.path to a directory on a disk", code="M-STORE-8")


def _insist_on_ownership(place: Path) -> None:
    status = place.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise MoorageError(
            f"{place} is not a directory of root's alone: chown root {place}; chmod 700 {place}", code="M-STORE-9"
        )


def _take(descriptor: int, path: Path) -> None:
    """Take the lock of the store. Wait for jobs that copy images, but not for another command: it may take hours."""
    deadline = Deadline(COPYING)
    while not flock.try_lock(descriptor, flock.EXCLUSIVE):
        if not flock.try_lock(descriptor, flock.SHARED):
            raise UserError(f"another command is at work on {path}", "wait until it has ended", code="M-STORE-10")
        flock.unlock(descriptor)
        if deadline.passed:
            raise UserError(f"jobs are copying images from {path}", "wait until they have started", code="M-STORE-11")
        time.sleep(flock.RETRY)


def _of_a_job(view: Path) -> bool:
    return view.parent.parent == job.RUN and view.parent.name.isdecimal()
