"""A job's view of the node's images: read-only, with the owners that its user's containers need.

The view lies in the job's run directory, which only root and the job's user can enter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moorage.common.errors import UserError
from moorage.common.job import Job
from moorage.linux import idmap, mounts
from moorage.linux.idmap import Owners, Range
from moorage.node import subids
from moorage.node.config.schema import Store as Settings
from moorage.node.config.schema import ViewKind
from moorage.root.images import idmap_probe, user_copies
from moorage.root.images.store import VIEW, Store

FLAGS: Final = idmap.READ_ONLY | idmap.NOSUID | idmap.NODEV
# The directories that Podman's library reads. The others belong to root's Podman, and every reader could lock them.
SHOWN: Final = ("overlay", "overlay-images", "overlay-layers")
# The library locks these files while it reads. Each job has its own, so that no job can make root's Podman wait.
LOCKS: Final = ("overlay-images/images.lock", "overlay-layers/layers.lock")


@dataclass(frozen=True)
class Way:
    """How jobs on this node see images, and the reason for it."""

    kind: str
    reason: str


def owners(job: Job, given: Mapping[str, Sequence[Range]]) -> Owners:
    """The maps from the store's owners to those for a job's user; `given` is the result of subids.granted."""
    uids, gids = (given[kind.name] for kind in (subids.UIDS, subids.GIDS))
    return Owners(idmap.lines(job.uid, uids), idmap.lines(job.gid, gids))


def choose(wanted: ViewKind, trouble: str) -> Way:
    """Choose how jobs see images; `trouble` is the reason why mapped mounts do not work, if they do not."""
    if wanted == "copy":
        return Way("copy", "store.view says so")
    if not trouble:
        return Way("idmap", "an overlay over a mapped mount of the store works" if wanted == "auto" else "store.view")
    if wanted == "idmap":
        raise UserError(f"store.view is idmap, and {trouble}", "set it to auto or copy", code="M-STORE-13")
    return Way("copy", trouble)


def way(settings: Settings) -> Way | None:
    """How jobs see images; None if there are none, and a UserError if the configured way does not work."""
    store = Store.configured(settings)
    return choose(settings.view, _trouble(settings.view, store)) if exists(store) else None


def _trouble(wanted: ViewKind, store: Store) -> str:
    if wanted == "copy":
        return ""
    return idmap_probe.trouble(store) if store.probes.is_dir() else f"there is no {store.probes}"


def place(job: Job) -> Path:
    """The place of the job's view, which its Podman has in additionalimagestores."""
    return job.run / VIEW


def exists(store: Store) -> bool:
    """Whether the store has images."""
    return (store.graph / "overlay-images" / "images.json").exists()


def make(job: Job, store: Store, way: Way, whose: Owners, limit: float) -> Path:
    """Mount the job's view. A copy may take `limit` seconds. On failure nothing stays.

    `remove` removes it, and so does the removal of the run directory.
    """
    if not exists(store):
        raise UserError(
            f"the store {store.path} has no images", "ask the administrator for `moorage image add`", code="M-STORE-14"
        )
    point = place(job)
    with ExitStack() as undo:
        undo.callback(remove, job)
        _make_points(point)
        if way.kind == "idmap":
            with idmap.user_namespace(whose) as namespace:
                _show(store.graph, point, namespace)
        else:
            with user_copies.ready(store, job.uid, whose, limit) as graph:
                _show(graph, point)
        _own_locks(job, point)
        undo.pop_all()
    return point


def remove(job: Job) -> None:
    """Undo `make`, as far as there is something to undo."""
    _unmount_all(place(job))
    for own in _locks(job).values():
        own.unlink(missing_ok=True)
    for directory in (*(place(job) / name for name in SHOWN), place(job)):
        with suppress(FileNotFoundError):
            directory.rmdir()


def _make_points(point: Path) -> None:
    """Make the mount points, with modes that do not depend on the umask. Others cannot enter the run directory."""
    for directory in (point, *(point / name for name in SHOWN)):
        directory.mkdir()
        directory.chmod(0o755)


def _show(graph: Path, point: Path, namespace: int | None = None) -> None:
    for name in SHOWN:
        _mount(graph / name, point / name, namespace)


def _mount(tree: Path, point: Path, namespace: int | None = None, flags: int = FLAGS) -> None:
    with idmap.detached(tree) as mount:
        idmap.change(mount, tree, flags, namespace)
        idmap.attach(mount, point)


def _own_locks(job: Job, point: Path) -> None:
    for name, own in _locks(job).items():
        own.touch()
        own.chmod(0o444)
        # The lock files are empty, and root's. They would tell the job when images change, which it need not know.
        _mount(own, point / name)


def _locks(job: Job) -> dict[str, Path]:
    return {name: job.run / f"{VIEW}.{Path(name).name}" for name in LOCKS}


def _unmount_all(point: Path) -> None:
    for mounted in mounts.below(point):
        mounts.unmount(mounted, lazy=True)
