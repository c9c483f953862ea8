"""What a job sees of the store, by both ways: a real rootless Podman starts from it, and can do nothing else."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from moorage.common import job as jobs
from moorage.common.command import Completed, run
from moorage.common.deadline import Deadline
from moorage.common.errors import Taken, UserError
from moorage.common.job import Job
from moorage.linux import flock, mounts
from moorage.linux.idmap import Range
from moorage.root import rundir
from moorage.root.images import idmap_probe, user_copies, view
from moorage.root.images import store as stores
from moorage.root.images.storage_layers import Layer
from moorage.root.images.store import Store
from moorage.root.images.user_copies import Copier
from moorage.root.images.view import Way
from support.archives import Member, directory, layer, link, saved
from support.engine import Engine, busybox

NAME = "localhost/test/shell:1"
UID, GID, SUBIDS = 4711, 4712, Range(3000000, 65536)
USER = "boatman"
ELSE = 4800
LIMIT = 60.0
OWNERS = view.owners(Job(1, 0, UID, GID, USER, "n", frozenset()), {"uid": [SUBIDS], "gid": [SUBIDS]})


@pytest.fixture(params=["idmap", "copy"])
def way(request: pytest.FixtureRequest) -> Way:
    return Way(request.param, "")


@pytest.fixture
def filled(engine: Engine, files: Path, store: Store) -> Store:
    """A store with one image: a shell, a file that only root may read, a set-uid program, somebody's file."""
    shell = busybox(engine)
    base = layer(
        directory("bin"),
        Member("bin/sh", data=shell, mode=0o755),
        *(link(f"bin/{name}", "sh") for name in ("cat", "id", "ls", "stat")),
        Member("bin/su", data=shell, mode=0o4755),
        Member("secret", data=b"for root\n", mode=0o600),
        Member("somebodys", data=b"x", uid=1000),
        Member("strangers", data=b"x", uid=70000, mode=0o4644),
        directory("data"),
        Member("data/gone", data=b"x"),
    )
    upper = layer(directory("data"), Member("data/.wh..wh..opq"))
    engine.moorage("image", "add", saved(files / "image.tar", NAME, base, upper))
    return store


@dataclass
class Aboard:
    """A job with a view."""

    engine: Engine
    job: Job
    point: Path

    def run(self, *argv: str | Path, uid: int = UID, gid: int = GID, ok: tuple[int, ...] = (0,)) -> Completed:
        own = self.job.run / "user"
        env = {
            "HOME": str(own),
            "XDG_RUNTIME_DIR": str(own),
            "CONTAINERS_STORAGE_CONF": str(self.job.run / "storage.conf"),
            "CONTAINERS_CONF": "/dev/null",
            "PODMAN_IGNORE_CGROUPSV1_WARNING": "1",
        }
        words = ("setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--", *argv)
        return self.engine.run(*words, env=env, ok=ok)

    def shell(self, script: str) -> str:
        options = ("--rm", "--net=none", "--cgroups=disabled", "--log-driver=none")
        return self.run("podman", "run", *options, NAME, "/bin/sh", "-c", script).stdout


def boarded(engine: Engine, store: Store, way: Way, number: int) -> Aboard:
    job = Job(id=number, restart=0, uid=UID, gid=GID, user=USER, node="n", names=frozenset())
    job.run.mkdir(mode=0o700)
    # It is this that keeps others out: Podman's own directories pass everybody in some releases (5.8).
    rundir.let_through(job.run, UID)
    own = job.run / "user"
    own.mkdir(mode=0o700)
    os.chown(own, UID, GID)
    given = {"uid": [SUBIDS], "gid": [SUBIDS]}
    point = view.make(job, store, way, view.owners(job, given), LIMIT)
    (job.run / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\nrootless_storage_path = "{own}/graph"\nrunroot = "{own}/run"\n'
        f'[storage.options]\nadditionalimagestores = ["{point}"]\n'
    )
    return Aboard(engine, job, point)


@pytest.fixture
def aboard(engine: Engine, filled: Store, way: Way, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aboard]:
    monkeypatch.setattr(jobs, "RUN", engine.place / "run")
    jobs.RUN.mkdir(mode=0o755)
    engine.user(USER, UID, GID, SUBIDS)
    made = boarded(engine, filled, way, 7)
    yield made
    end_all(UID)
    view.remove(made.job)


def end_all(uid: int) -> None:
    """Podman leaves processes that hold its namespaces, and clean up when they please."""
    theirs = [process for process in psutil.process_iter(["uids"]) if process.info["uids"].real == uid]
    for process in theirs:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    _, alive = psutil.wait_procs(theirs, timeout=30)
    assert not alive


def test_a_container_starts_from_it(aboard: Aboard) -> None:
    assert aboard.shell("cat /secret") == "for root\n"
    assert aboard.shell("stat -c '%u %g' /secret /somebodys").split() == ["0", "0", "1000", "1000"]
    assert aboard.shell("echo mine >/secret && cat /secret; ls /data") == "mine\n"
    # Nothing of the image was copied to where the job keeps its own.
    own = list((aboard.job.run / "user/graph/overlay").glob("*/diff/bin/*"))
    assert own == []


def test_it_can_be_read_by_its_user_alone(aboard: Aboard) -> None:
    graph = aboard.point / "overlay"
    assert aboard.run("ls", graph).stdout
    assert "denied" in aboard.run("ls", graph, uid=ELSE, gid=ELSE, ok=(2,)).stderr
    (secret,) = graph.glob("*/diff/secret")
    assert aboard.run("cat", secret).stdout == "for root\n"
    assert (secret.stat().st_uid, secret.stat().st_gid) == (UID, GID)
    (somebodys,) = graph.glob("*/diff/somebodys")
    assert somebodys.stat().st_uid == SUBIDS.start + 999


def test_nothing_can_be_changed_through_it(aboard: Aboard) -> None:
    (secret,) = aboard.point.glob("overlay/*/diff/secret")
    graph = aboard.point / "overlay"
    for words in (["touch", graph / "new"], ["sh", "-c", f"echo evil >{secret}"], ["rm", secret]):
        assert "Read-only file system" in aboard.run(*words, ok=(1, 2)).stderr
    assert "denied" in aboard.run("touch", aboard.point / "new", ok=(1,)).stderr
    assert "cannot remove" in aboard.run("rm", "-rf", graph, ok=(1,)).stderr
    remounted = aboard.run("unshare", "-rm", "mount", "-o", "remount,bind,rw", graph, ok=(1, 32))
    assert "denied" in remounted.stderr or "not permitted" in remounted.stderr
    for name in view.SHOWN:
        options = mounts.holding(aboard.point / name, mounts.table()).options
        assert options >= {"ro", "nosuid", "nodev"}


def test_set_uid_programs_give_nothing(aboard: Aboard) -> None:
    (program,) = aboard.point.glob("overlay/*/diff/bin/su")
    assert aboard.run(program, "id", "-u", ok=(0, 1, 126, 127)).stdout.strip() in ("", str(UID))
    (strangers,) = aboard.point.glob("overlay/*/diff/strangers")
    status = strangers.stat()
    assert status.st_uid == 65534
    assert not (status.st_mode & stat.S_ISUID and status.st_uid == 0)


def test_its_locks_are_its_own(aboard: Aboard, engine: Engine, filled: Store) -> None:
    aboard.shell("true")
    for name in view.LOCKS:
        assert not (aboard.point / name).samefile(filled.graph / name)
    files = [file for file in aboard.point.rglob("*") if file.is_file() and "overlay" not in file.parts]
    assert {str(file.relative_to(aboard.point)) for file in files} > set(view.LOCKS)
    with ExitStack() as held:
        for file in files:
            held.enter_context(holding(file))
        # Root's Podman writes, and waits for nobody.
        engine.moorage("image", "add", engine.place / "files/image.tar", "--name", "localhost/test/other:1")
        engine.moorage("image", "remove", "localhost/test/other:1")


@contextmanager
def holding(lock: Path) -> Iterator[None]:
    """The user holds the lock as long as he can."""
    descriptor = os.open(lock, os.O_RDONLY)
    fcntl.lockf(descriptor, fcntl.LOCK_SH)
    try:
        yield
    finally:
        os.close(descriptor)


def test_removed_images_stay_while_a_job_sees_the_store(aboard: Aboard, engine: Engine, filled: Store) -> None:
    assert filled.viewers() == [7]
    said = engine.moorage("image", "remove", NAME).stderr
    assert "stay until no job uses the store (now: 7)" in said
    assert list(filled.graph.glob("overlay/*/diff/secret"))
    assert "(being removed)" in engine.moorage("image", "list").stdout
    view.remove(aboard.job)
    assert filled.viewers() == []
    assert [path.name for path in aboard.job.run.iterdir() if path.name.startswith("images")] == []
    engine.moorage("image", "remove")
    assert list(filled.graph.glob("overlay/*/diff")) == []
    assert list(filled.copies.iterdir()) == []


def test_a_node_without_a_disk_has_it_in_memory(store: Store, way: Way, request: pytest.FixtureRequest) -> None:
    store.path.mkdir(mode=0o700)
    mounts.mount_tmpfs(store.path, size=1 << 28, inodes=10000, uid=0, gid=0, mode=0o700)
    filled: Store = request.getfixturevalue("filled")
    assert view.choose("auto", idmap_probe.trouble(filled)).kind == "idmap"
    aboard: Aboard = request.getfixturevalue("aboard")
    assert aboard.shell("cat /secret; ls /data") == "for root\n"
    assert mounts.holding(aboard.point / "overlay", mounts.table()).kind == "tmpfs"


def test_a_second_job_of_the_user_is_quick(aboard: Aboard, engine: Engine, filled: Store, way: Way) -> None:
    second = boarded(engine, filled, way, 8)
    try:
        assert "for root" in second.shell("cat /secret")
        assert filled.viewers() == [7, 8]
        assert len(list(filled.copies.iterdir())) == (way.kind == "copy")
    finally:
        view.remove(second.job)


def test_a_view_that_fails_leaves_nothing(engine: Engine, filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "RUN", engine.place / "run")
    jobs.RUN.mkdir(mode=0o755)
    monkeypatch.setattr(view, "LOCKS", ("overlay-images/images.lock", "missing/lock"))
    with pytest.raises(OSError, match="missing"):
        boarded(engine, filled, Way("idmap", ""), 9)
    assert mounts.below(jobs.RUN) == []
    assert sorted(path.name for path in (jobs.RUN / "9").iterdir()) == ["user"]


def test_the_probe_tells_what_the_kernel_can_do(filled: Store) -> None:
    assert idmap_probe.trouble(filled) == ""
    assert list(filled.probes.iterdir()) == []
    run(["mount", "-t", "proc", "proc", filled.probes])
    with pytest.raises(OSError, match="probes"):
        idmap_probe.trouble(filled)


def test_a_file_system_that_maps_no_owners_is_found_out(filled: Store) -> None:
    lower, upper, work = (filled.path / name for name in ("lower", "upper", "work"))
    for place in (lower, upper, work):
        place.mkdir()
    # An overlay itself cannot be mapped.
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    mounts.mount("overlay", "overlay", filled.probes, options=options)
    assert "mapped mounts do not work here" in idmap_probe.trouble(filled)


def copied(store: Store, limit: float = LIMIT) -> Path:
    with user_copies.ready(store, UID, OWNERS, limit) as graph:
        return graph


def test_copies_have_what_the_store_has(filled: Store) -> None:
    graph = copied(filled)
    theirs = {path.relative_to(graph) for path in graph.rglob("*")}
    ours = {
        path.relative_to(filled.graph)
        for name in ("overlay", "overlay-images", "overlay-layers")
        for path in (filled.graph / name).rglob("*")
    }
    assert {path for path in ours - theirs if path.parts[0] != "overlay" or len(path.parts) > 2} == set()
    assert copied(filled) == graph


def test_a_copy_ends_in_time_and_the_next_one_goes_on(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Copier.layer

    def once(copier: Copier, layer: Layer, graph: Path) -> None:
        whole(copier, layer, graph)
        copier.time.deadline = Deadline(0)

    with monkeypatch.context() as slow:
        slow.setattr(Copier, "layer", once)
        with pytest.raises(Taken, match="not copied for this user within 60 s"):
            copied(filled)
    (first,) = filled.copies.glob("*/images/overlay/[0-9a-f]*")
    copied(filled)
    assert len(list(filled.copies.glob("*/images/overlay/[0-9a-f]*"))) == 2
    assert first.is_dir()


def test_want_of_room_is_no_fault_of_the_nodes(filled: Store) -> None:
    with pytest.raises(Taken, match="are left on the disk of"):
        copied(replace(filled, keep_free=1 << 60))


def test_no_command_comes_between_a_copy_and_its_mount(
    engine: Engine, filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "RUN", engine.place / "run")
    jobs.RUN.mkdir(mode=0o755)

    def mount(tree: Path, point: Path, namespace: int | None) -> None:
        with flock.opened(filled.lock) as command:
            assert not flock.try_lock(command, flock.EXCLUSIVE)
        raise OSError(f"{tree} was to be mounted")

    monkeypatch.setattr(view, "_mount", mount)
    with pytest.raises(OSError, match="was to be mounted"):
        boarded(engine, filled, Way("copy", ""), 9)


@pytest.mark.parametrize("whose", ["another job's", "a command's"])
def test_who_is_at_work_is_waited_for_no_longer(filled: Store, whose: str) -> None:
    graph = copied(filled)
    place = graph.parent / "lock" if whose == "another job's" else filled.lock
    with place.open() as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        with pytest.raises(Taken, match=r"within 0\.2 s"):
            copied(filled, limit=0.2)


def test_a_layer_that_is_being_unpacked_is_not_copied(filled: Store) -> None:
    place = filled.graph / "overlay-layers/layers.json"
    known = json.loads(place.read_text())
    known[-1]["flags"] = {"incomplete": True}
    place.write_text(json.dumps(known))
    copied(filled)
    assert len(list(filled.copies.glob("*/images/overlay/[0-9a-f]*"))) == len(known) - 1


def test_commands_wait_until_jobs_have_mounted_their_copies(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    with ExitStack() as mounting:

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            mounting.close()

        for uid in (UID, ELSE):
            mounting.enter_context(user_copies.ready(filled, uid, OWNERS, LIMIT))
        with monkeypatch.context() as hurried:
            hurried.setattr(stores, "COPYING", 0)
            with pytest.raises(UserError, match="jobs are copying images"), filled.locked():
                pass
        monkeypatch.setattr(time, "sleep", sleep)
        with filled.locked():
            user_copies.remove_all(filled)
    assert len(waits) == 1
