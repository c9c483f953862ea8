"""How a job sees the node's images: read-only, and owned as its user's containers need it.

The view lies in the job's run directory, which passes root and the job's user alone.
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
# What Podman's library reads of such a store. The rest is root's Podman's own, which every reader could lock.
SHOWN: Final = ("overlay", "overlay-images", "overlay-layers")
# Of that it locks these while it reads. Each job has its own, or one could keep root's waiting.
LOCKS: Final = ("overlay-images/images.lock", "overlay-layers/layers.lock")


@dataclass(frozen=True)
class Way:
    """How jobs on this node see images, and why not otherwise."""

    kind: str
    reason: str


def owners(job: Job, given: Mapping[str, Sequence[Range]]) -> Owners:
    """Who the store's owners are for a job's user; `given` is what subids.granted says."""
    uids, gids = (given[kind.name] for kind in (subids.UIDS, subids.GIDS))
    return Owners(idmap.lines(job.uid, uids), idmap.lines(job.gid, gids))


def choose(wanted: ViewKind, trouble: str) -> Way:
    """`trouble` is what keeps mapped mounts from working."""
    if wanted == "copy":
        return Way("copy", "store.view says so")
    if not trouble:
        return Way("idmap", "an overlay over a mapped mount of the store works" if wanted == "auto" else "store.view")
    if wanted == "idmap":
        raise UserError(f"store.view is idmap, and {trouble}", "set it to auto or copy")
    return Way("copy", trouble)


def way(settings: Settings) -> Way | None:
    """How jobs see images; None where there is nothing to be seen, and a UserError where they cannot as they shall."""
    store = Store.configured(settings)
    return choose(settings.view, _trouble(settings.view, store)) if exists(store) else None


def _trouble(wanted: ViewKind, store: Store) -> str:
    if wanted == "copy":
        return ""
    return idmap_probe.trouble(store) if store.probes.is_dir() else f"there is no {store.probes}"


def place(job: Job) -> Path:
    """Where the job's view is: what its Podman has as additionalimagestores."""
    return job.run / VIEW


def exists(store: Store) -> bool:
    """Whether there are images to be seen."""
    return (store.graph / "overlay-images" / "images.json").exists()


def make(job: Job, store: Store, way: Way, whose: Owners, limit: float) -> Path:
    """Mount the job's view, for which a copy may take so long; on failure nothing of it is left.

    It goes with the job's run directory, or by `remove`.
    """
    if not exists(store):
        raise UserError(f"the store {store.path} has no images", "ask the administrator for `moorage image add`")
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
    """Undo `make`; it does no harm where there is nothing to undo."""
    _unmount_all(place(job))
    for own in _locks(job).values():
        own.unlink(missing_ok=True)
    for directory in (*(place(job) / name for name in SHOWN), place(job)):
        with suppress(FileNotFoundError):
            directory.rmdir()


def _make_points(point: Path) -> None:
    """Root's, whatever its umask: the directory around them passes the job's user alone."""
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
        # Empty, and root's: nobody can tell a job by it that images have changed, nor need they.
        _mount(own, point / name)


def _locks(job: Job) -> dict[str, Path]:
    return {name: job.run / f"{VIEW}.{Path(name).name}" for name in LOCKS}


def _unmount_all(point: Path) -> None:
    for mounted in mounts.below(point):
        mounts.unmount(mounted, lazy=True)
