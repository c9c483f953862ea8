from __future__ import annotations

import dataclasses
import json
import os
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from moorage.common import job as places
from moorage.common.errors import MoorageError
from moorage.common.job import Job
from moorage.linux.cgroup import Usage
from moorage.linux.process import Process
from moorage.node.config.schema import Config
from moorage.root import state
from moorage.root.net.fabric import Fabric
from moorage.root.net.fabric import Site as FabricSite
from moorage.root.net.gateway import Gateway
from moorage.root.state import About, Limits, Phase, Scratch, State, forget, jobs, load

JOB = Job(17, 2, 1000, 1000, "alice", "node1", frozenset({"job_17", "s5K1KKYAYG5D00"}))
LIMITS = Limits.of(Config())
NOBODY = Process(os.getpid(), 1)
FULL = State(
    job=JOB,
    boot="b",
    owner=Process(1, 2),
    limits=LIMITS,
    scratch=Scratch("loop", "/var/lib/moorage/scratch/17.img"),
    phase=Phase.DELEGATED,
    agent=Process(3, 4),
    lender=Process(5, 6),
    tree=Path("/sys/fs/cgroup/x/job_17/step_0/user/task_1/k8s"),
    usage=Usage(1.5, 1 << 30, 12),
    fabric=Fabric.of(17, "eth0", 1500, [IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2")], 1, FabricSite()),
    gateway=Gateway(17, IPv4Network("100.96.0.68/30"), 1500, 339, (IPv4Network("192.0.2.0/24"),), 4096),
    about=About(1.5, {"spec": {"cluster": "kind"}, "uplink": "pasta"}, 30, "/var/lib/prometheus/node-exporter"),
    recorded=True,
)


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(places, "STATE", tmp_path / "jobs")
    return tmp_path / "jobs"


@pytest.mark.parametrize("kept", [FULL, State.begin(JOB, LIMITS), State.begin(JOB, LIMITS, Scratch("tmpfs", ""))])
def test_what_is_saved_is_loaded(kept: State) -> None:
    kept.save()
    assert load(17) == kept


def test_a_job_of_an_earlier_release_ends_with_this_one() -> None:
    FULL.save()
    fields = {name: value for name, value in FULL.as_dict().items() if name not in ("about", "recorded")}
    JOB.state.write_text(json.dumps(fields))
    assert load(17) == dataclasses.replace(FULL, about=None, recorded=False)


def test_it_has_the_number_of_its_schema(directory: Path) -> None:
    FULL.save()
    written = json.loads((directory / "17.json").read_text())
    assert written.pop("schema") == 1
    (directory / "17.json").write_text(json.dumps(written))
    assert load(17) == FULL


def test_a_schema_of_a_later_release_is_not_guessed_at(directory: Path) -> None:
    FULL.save()
    (directory / "17.json").write_text(json.dumps(FULL.as_dict() | {"schema": 2}))
    with pytest.raises(MoorageError, match="schema 2 is of a later release"):
        load(17)


def test_every_field_is_kept() -> None:
    empty = {field.name for field in dataclasses.fields(FULL) if getattr(FULL, field.name) is None}
    assert not empty, "FULL has to have them all, or the test above shows nothing"


def test_one_of_an_earlier_release_names_no_networks(directory: Path) -> None:
    FULL.save()
    fields = json.loads(JOB.state.read_text())
    JOB.state.write_text(json.dumps({name: fields[name] for name in fields if name not in ("fabric", "gateway")}))
    known = load(17)
    assert known
    assert (known.job, known.networked) == (JOB, False)
    assert FULL.networked


def test_it_begins_with_this_process_in_this_boot() -> None:
    begun = State.begin(JOB, LIMITS)
    assert begun.owner == Process.current()
    assert begun.this_boot
    assert (begun.phase, begun.tree, begun.agent) == (Phase.PREPARED, None, None)


def test_a_change_is_on_disk_before_it_is_known() -> None:
    FULL.save()
    changed = FULL.changed(phase=Phase.ENDED)
    assert load(17) == changed
    assert changed.phase == Phase.ENDED


def test_a_crash_leaves_the_state_before(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FULL.save()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            FULL.changed(phase=Phase.ENDED)
    assert load(17) == FULL
    assert jobs() == [17]
    FULL.changed(phase=Phase.ENDED)
    assert [path.name for path in directory.iterdir()] == ["17.json"]


def test_only_root_reads_it(directory: Path) -> None:
    FULL.save()
    assert JOB.state.stat().st_mode & 0o777 == 0o600
    assert directory.stat().st_mode & 0o777 == 0o700


def test_there_may_be_none() -> None:
    assert load(17) is None
    assert jobs() == []
    forget(17)


def test_it_is_forgotten(directory: Path) -> None:
    FULL.save()
    forget(17)
    assert load(17) is None
    assert list(directory.iterdir()) == []


def test_jobs_are_those_with_a_state(directory: Path) -> None:
    directory.mkdir()
    for name in ("18.json", "17.json", "19.lock", ".20.json", "x.json", "²1.json", "21.json.bak", "-1.json"):
        (directory / name).touch()
    assert jobs() == [17, 18]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "null",
        "[]",
        "{}",
        "17",
        '"x"',
        "\0",
        json.dumps(FULL.as_dict())[:-20],
        json.dumps({**FULL.as_dict(), "phase": "?"}),
    ],
)
def test_what_cannot_be_understood_is_said_in_one_line(directory: Path, content: str) -> None:
    directory.mkdir()
    JOB.state.write_text(content)
    JOB.state.chmod(0o600)
    with pytest.raises(MoorageError, match=r"17\.json cannot be understood") as raised:
        load(17)
    assert "\n" not in str(raised.value)


def test_what_others_can_write_is_not_believed() -> None:
    FULL.save()
    JOB.state.chmod(0o666)
    with pytest.raises(MoorageError, match="not ours alone"):
        load(17)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    FULL.save()
    JOB.state.rename(tmp_path / "elsewhere")
    JOB.state.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MoorageError):
        load(17)


HERE = Process.current()


@pytest.mark.parametrize(
    ("boot", "owner", "agent", "abandoned"),
    [
        ("this", HERE, None, False),
        ("this", NOBODY, HERE, False),
        ("this", HERE, NOBODY, False),
        ("this", NOBODY, NOBODY, True),
        ("this", NOBODY, None, True),
        ("another", HERE, HERE, True),
    ],
)
def test_who_answers_for_it(boot: str, owner: Process, agent: Process | None, abandoned: bool) -> None:
    boots = {"this": state.boot_id(), "another": "00000000-0000-0000-0000-000000000000"}
    known = dataclasses.replace(FULL, boot=boots[boot], owner=owner, agent=agent)
    assert known.abandoned is abandoned


def test_on_a_full_disk_some_things_go_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    FULL.save()
    with monkeypatch.context() as patch:
        patch.setattr(State, "save", lambda _: Path("/dev/full").write_text("x"))
        assert FULL.noted(phase=Phase.ENDED).phase == Phase.ENDED
        with pytest.raises(OSError, match="No space left"):
            FULL.changed(phase=Phase.ENDED)
    assert "the state of the job cannot be written: [Errno 28] No space left" in capsys.readouterr().err
    assert load(17) == FULL
    assert FULL.noted(phase=Phase.ENDED) == load(17)
