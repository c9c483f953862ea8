"""After a power cut: what is in /run and in the kernel is gone, what was on the disk is not."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.cli import sweep
from moorage.node.config import schema
from moorage.node.config.values import MIB
from moorage.root import lock, rundir, scratch
from moorage.root.state import Phase, State, jobs
from support.node import JOB, LIMITS, Manager, node

PLACE = Path("/var/lib/moorage/scratch")
EARLIER = "00000000-0000-0000-0000-000000000000"


@pytest.fixture(autouse=True)
def scope(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with node(monkeypatch) as scope:
        PLACE.mkdir(parents=True, mode=0o700)
        yield scope


def left_by_a_power_cut(kind: schema.ScratchKind) -> None:
    wanted = schema.Scratch(path=PLACE, kind=kind, size=64 * MIB)
    planned = scratch.plan(JOB, wanted)
    State.begin(JOB, LIMITS, planned).changed(
        boot=EARLIER, phase=Phase.DELEGATED, tree=Path("/sys/fs/cgroup/gone/slurmstepd.scope/job_17/x/user/y/k8s")
    )
    lock.take(JOB.id, 0).release()
    source = Path(planned.source)
    if kind == "loop":
        source.write_bytes(b"\0" * 4096)
    else:
        (source / "graph/overlay").mkdir(parents=True)
        os.chown(source, JOB.uid, JOB.gid)


@pytest.mark.parametrize("kind", ["loop", "directory"])
def test_everything_goes(kind: schema.ScratchKind) -> None:
    left_by_a_power_cut(kind)
    assert sweep.main([]) == 0
    assert jobs() == [17]
    assert sweep.main(["--now"]) == 0
    assert jobs() == []
    (kept,) = Path("/var/lib/moorage/records").iterdir()
    assert {str(path) for path in Path("/var/lib/moorage").rglob("*")} == {
        "/var/lib/moorage/jobs",
        "/var/lib/moorage/records",
        str(kept),
        "/var/lib/moorage/scratch",
        "/var/lib/moorage/scratch/.moorage-trash",
    }
    record = json.loads(kept.read_text())
    assert (record["job"], record["outcome"], record["ending"], record["by"]) == (17, "unfinished", "reboot", "sweep")


@pytest.mark.parametrize("done", ["nothing", "state", "run directory"])
def test_in_mid_start(done: str) -> None:
    """Each thing is written down before it is made."""
    planned = scratch.plan(JOB, schema.Scratch(path=PLACE, kind="loop"))
    if done != "nothing":
        State.begin(JOB, LIMITS, planned).changed(boot=EARLIER)
    if done == "run directory":
        rundir.prepare()
        rundir.make(JOB, schema.Run())
    assert sweep.main(["--now"]) == 0
    assert jobs() == []
    assert not JOB.run.exists()


def test_a_job_with_a_warden_is_left_alone() -> None:
    State.begin(JOB, LIMITS).save()
    JOB.run.mkdir(parents=True)
    with Manager() as manager:
        State.begin(JOB, LIMITS).changed(boot=EARLIER)
        assert sweep.main(["--now"]) == 0
        assert jobs() == [17]
        manager.kill()
        assert sweep.main(["--now"]) == 0
        assert jobs() == [17], "while it is started again its lock is kept"
    assert sweep.main(["--now"]) == 0
    assert jobs() == []


def test_a_prolog_that_hands_over_is_left_alone() -> None:
    """Between its lock and the warden's, the job is its own because it lives."""
    State.begin(JOB, LIMITS).save()
    JOB.run.mkdir(parents=True)
    with lock.locked(JOB.id):
        pass
    assert sweep.main(["--now"]) == 0
    assert jobs() == [17]


def test_a_prolog_that_died_is_not() -> None:
    child = os.fork()
    if child == 0:
        State.begin(JOB, LIMITS).save()
        os._exit(0)
    os.waitpid(child, 0)
    assert sweep.main(["--now"]) == 0
    assert jobs() == []
