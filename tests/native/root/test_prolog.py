"""The whole Prolog as slurmd runs it: real mounts, locks and files; the node's programs are fakes."""

from __future__ import annotations

import json
import os
import signal
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

from moorage.common import command
from moorage.common import job as jobs
from moorage.common.deadline import Deadline
from moorage.common.description import Mooring
from moorage.common.errors import code_of
from moorage.common.hardware import Bind
from moorage.common.job import Job
from moorage.linux import mounts
from moorage.node import checks, factcache
from moorage.node.checks import Surroundings
from moorage.node.config import load
from moorage.node.finding import Finding
from moorage.node.programs import Program
from moorage.root import lock, podman_conf, prolog, rundir, scratch, state
from moorage.root.cleanup import end_of_job
from moorage.root.records import start_log
from moorage.root.records.record import Ending
from support.fakes import FakeCommand

USER = 54321
ENVIRON = {
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_UID": str(USER),
    "SLURM_JOB_GID": str(USER + 1),
    "SLURM_JOB_USER": "nobody-aboard",
    "SLURMD_NODENAME": "n1",
    "SPANK_K8S": "cluster=none",
}
JOB = Job.from_hook(ENVIRON)
CONFIG = "scratch:\n  path: {place}/scratch\n  size: 64M\n"

pytestmark = pytest.mark.usefixtures("place")


@pytest.fixture
def place(fresh_namespaces: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node with nothing on it: every place that the Prolog writes to is below this one."""
    here = Path("/mnt")
    mounts.mount_tmpfs(here, size=512 << 20, inodes=0, uid=0, gid=0, mode=0o755)
    (here / "scratch").mkdir(mode=0o700)
    (here / "moorage.yaml").write_text(CONFIG.format(place=here))
    for module, name, value in (
        (jobs, "RUN", here / "run"),
        (jobs, "STATE", here / "state"),
        (load, "PLACE", here / "moorage.yaml"),
        (factcache, "PLACE", here / "run" / "facts.json"),
        # Nobody else's mounts are looked at: those of process 1 are this machine's.
        (end_of_job, "read", lambda *_: ""),
    ):
        monkeypatch.setattr(module, name, value)
    return here


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeCommand]:
    monkeypatch.setattr(command, "PATH", f"{tmp_path}:{command.PATH}")
    return lambda name, **answer: FakeCommand(tmp_path, name, **answer)


@pytest.fixture(autouse=True)
def node(fake: Callable[..., FakeCommand], monkeypatch: pytest.MonkeyPatch) -> FakeCommand:
    """Without fault; the checks have tests of their own."""
    program = {name: Program(Path(f"/usr/bin/{name}"), f"{name} {version}") for name, version in VERSIONS.items()}
    around = Surroundings(program, None, Path("/usr/bin/srun"), Path("/etc/slurm/slurm.conf"), {}, {})
    monkeypatch.setattr(checks, "look_around", lambda *_: around)
    monkeypatch.setattr(checks, "shim_checks", lambda *_: iter(()))
    monkeypatch.setattr(checks, "node_checks", lambda *_: iter(()))
    fake("getsubids", stdout=f"0: nobody-aboard {1 << 30} 65536\n")
    return fake("systemctl")


VERSIONS = {"podman": "5.4.2", "crun": "1.21", "pasta": "2025_05_03", "slirp4netns": "1.2.1"}


def everything(place: Path) -> list[str]:
    """All that a job can leave: files, and mounts below the run directories."""
    known = [path for path in place.rglob("*") if path.name not in ("moorage.yaml", "facts.json", ".moorage-trash")]
    files = [path for path in known if not path.is_relative_to(place / "records")]
    empty = {place / name for name in ("run", "scratch", "state")}
    return sorted(
        [str(path) for path in files if path not in empty] + [str(point) for point in mounts.below(place / "run")]
    )


def refusal() -> str:
    """The line without its code."""
    assert {path.name for path in JOB.run.iterdir()} == {"refusal", "release"}
    text = JOB.refusal.read_text()
    return text.replace(f" [{code_of(text)}]", "")


def records(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in (place / "records").iterdir() for line in path.read_text().splitlines()]


def run(**changed: str) -> int:
    return prolog.prolog({**ENVIRON, **changed})


def clear() -> None:
    assert end_of_job.clean_up(JOB.id, Deadline(30)) == []


def test_a_job_gets_all_it_needs(node: FakeCommand) -> None:
    assert run() == 0
    described = json.loads(JOB.description.read_text())
    assert (described["job"], described["uplink"], described["podman"]) == (17, "pasta", "/usr/bin/podman")
    assert described["uplink_reason"] == "the first in uplink.order; not measured here: pasta, slirp4netns"
    assert described["subuids"] == described["subgids"] == [[1 << 30, 65536]]
    assert described["versions"]["crun"] == "crun 1.21"
    assert Mooring.load(17).srun == Path("/usr/bin/srun")
    assert JOB.description.stat().st_mode & 0o777 == 0o644
    assert {path.name for path in (JOB.run / "etc").iterdir()} == {"containers.conf", "storage.conf", "registries.conf"}
    assert os.access(JOB.run / "bin" / "podman", os.X_OK)
    assert JOB.scratch.stat().st_uid == JOB.user_run.stat().st_uid == USER
    assert JOB.scratch in mounts.below(JOB.run)
    known = state.load(17)
    assert known is not None
    assert (known.job, known.scratch) == (JOB, state.Scratch("loop", "/mnt/scratch/17.img"))
    assert node.calls == [["start", "moorage-warden@17.service"]]
    lock.take(17, 0).release()


def test_its_podman_makes_networks_of_the_sites_pool(place: Path) -> None:
    with (place / "moorage.yaml").open("a") as file:
        file.write("podman:\n  pool: 10.1.0.0/16\n")
    assert run() == 0
    network = tomllib.loads((JOB.run / "etc" / "containers.conf").read_text())["network"]
    assert network["default_subnet"].startswith("10.1.")
    assert {one["base"].rpartition(".")[0][:5] for one in network["default_subnet_pools"]} == {"10.1."}
    clear()


def test_what_its_record_will_need_is_kept(place: Path) -> None:
    with (place / "moorage.yaml").open("a") as file:
        file.write(f"records:\n  days: 3\nmetrics:\n  directory: {place}/metrics\n")
    (place / "metrics").mkdir()
    assert run() == 0
    known = state.load(17)
    assert known
    assert known.about
    assert (known.about.days, known.about.metrics) == (3, "/mnt/metrics")
    assert (known.about.described["uplink"], known.about.described["spec"]["cluster"]) == ("pasta", "none")
    assert [step.word for step in start_log.read(17).steps] == ["prolog", "launch"]
    assert "prolog: prepared with loop scratch and pasta (the first in uplink.order" in JOB.log.read_text()
    assert JOB.log.stat().st_mode & 0o777 == 0o644
    assert 'moorage_clusters_running{cluster="none"} 1\n' in (place / "metrics/moorage.prom").read_text()
    assert end_of_job.clean_up(JOB.id, Deadline(30), Ending("epilog", "0:0")) == []
    (record,) = records(place)
    assert (record["outcome"], record["phase"], record["ending"], record["exit"]) == (
        "unfinished", "launch", "cut off", "0:0"
    )  # fmt: skip
    assert record["phases"].keys() == {"prolog"}


def test_a_refusal_is_put_on_record(place: Path) -> None:
    with (place / "moorage.yaml").open("a") as file:
        file.write(f"metrics:\n  directory: {place}/metrics\n")
    (place / "metrics").mkdir()
    assert run(SLURM_JOB_UID="0") == 0
    clear()
    (record,) = records(place)
    assert (record["job"], record["outcome"], record["check"], record["fault"]) == (17, "refused", "user", "user")
    text = (place / "metrics/moorage.prom").read_text()
    assert 'moorage_start_failures_total{stage="prolog",cause="user"} 1\n' in text
    assert 'moorage_starts_total{cluster="none",outcome="refused"} 1\n' in text


def test_a_directory_that_is_not_there_changes_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (place / "moorage.yaml").open("a") as file:
        file.write(f"metrics:\n  directory: {place}/metrics\n")
    assert run() == 0
    assert "not put on record: [Errno 2] No such file or directory" in capsys.readouterr().err
    clear()


def test_nothing_is_left_once_it_is_cleared(place: Path) -> None:
    assert run() == 0
    assert everything(place)
    clear()
    assert everything(place) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"SPANK_K8S": "nodes"}, "--k8s: "),
        ({"SPANK_K8S": "cluster=none,uplink=\x1b[31m"}, "--k8s: "),
        ({"SPANK_K8S": "x" * 2000}, "--k8s: "),
        ({"SLURM_JOB_UID": "0"}, "root cannot use --k8s"),
    ],
)
def test_a_users_fault_is_told_to_the_job_alone(place: Path, changed: dict[str, str], words: str) -> None:
    (place / "moorage.yaml").write_text("node_fault: drain\n")
    assert run(**changed) == 0
    assert refusal().startswith(words)
    assert refusal()[:-1].isprintable()
    assert everything(place) == ["/mnt/run/17", "/mnt/run/17/refusal", "/mnt/run/17/release"]


POLICY = """\
node_fault: drain
policy:
  users: [somebody-else]
  groups: [aboard]
  accounts: [physics]
  partitions: [batch]
  most_nodes: 2
"""
WELCOME = {"SLURM_JOB_ACCOUNT": "physics", "SLURM_JOB_PARTITION": "batch", "SLURM_JOB_NUM_NODES": "2"}


@pytest.fixture
def rules(place: Path, fake: Callable[..., FakeCommand]) -> FakeCommand:
    """Everybody is a member of the group 2002."""
    (place / "moorage.yaml").write_text(CONFIG.format(place=place) + POLICY)
    getent = fake("getent")
    getent.path.write_text('#!/bin/sh\ncase "$1" in group) echo "aboard:x:2002:" ;; *) echo "$2 1 2002" ;; esac\n')
    return getent


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"SLURM_JOB_ACCOUNT": "chemistry"}, "account 'chemistry' may not use --k8s here (policy.accounts): "),
        ({"SLURM_JOB_ACCOUNT": "a\n\x1b[31m"}, "account 'a\\n\\x1b[31m' may not use --k8s here (policy.accounts): "),
        ({"SLURM_JOB_ACCOUNT": ""}, "Slurm does not say which account this job has (policy.accounts): "),
        ({"SLURM_JOB_PARTITION": "gpu"}, "partition 'gpu' may not use --k8s here (policy.partitions): "),
        ({"SLURM_JOB_NUM_NODES": "3"}, "this job has 3 nodes, and one with --k8s may have 2 (policy.most_nodes): "),
    ],
)
@pytest.mark.usefixtures("rules")
def test_who_may_not_is_told_and_the_node_goes_on(place: Path, changed: dict[str, str], words: str) -> None:
    assert run(**WELCOME) == 0
    assert JOB.description.exists()
    clear()
    assert run(**WELCOME | changed) == 0
    assert refusal().startswith(words)
    assert refusal()[:-1].isprintable()
    assert everything(place) == ["/mnt/run/17", "/mnt/run/17/refusal", "/mnt/run/17/release"]


def test_who_is_in_no_group_may_not(rules: FakeCommand) -> None:
    rules.path.write_text('#!/bin/sh\ncase "$1" in group) echo "aboard:x:2002:" ;; *) echo "$2 1" ;; esac\n')
    assert run(**WELCOME) == 0
    assert refusal().startswith("user nobody-aboard may not use --k8s here (policy.users and policy.groups): ask the")
    clear()
    # The group that slurmd runs the job with.
    assert run(**WELCOME, SLURM_JOB_GID="2002") == 0
    assert JOB.description.exists()


@pytest.mark.parametrize(
    ("spec", "image"),
    [("1", "k/node:v1.36.3"), ("version=1.36", "k/node:v1.36.3"), ("version=1.35.4", "k/node:v1.35.4")],
)
def test_the_image_is_of_the_version_that_was_asked_for(place: Path, spec: str, image: str) -> None:
    images = "kubernetes: {image: 'k/node:v1.36.3', further_images: ['k/node:v1.35.4']}\n"
    (place / "moorage.yaml").write_text(CONFIG.format(place=place) + images)
    assert run(SPANK_K8S=spec) == 0
    assert Mooring.load(17).kubernetes.image == image
    clear()
    assert run(SPANK_K8S="version=1.34") == 0
    assert refusal() == (
        "this node has Kubernetes 1.36.3 and 1.35.4 and not 1.34: ask for version=1.36.3 or version=1.35.4\n"
    )


@pytest.fixture
def tape(place: Path) -> Path:
    """Two devices that are Slurm's to give, and one for all."""
    (place / "features.d").mkdir()
    mounts.mount_tmpfs(Path("/dev/shm"), size=1 << 20, inodes=0, uid=0, gid=0, mode=0o755)
    for number in (0, 1, 5):
        os.mknod(f"/dev/shm/tape{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    (place / "features.d" / "tape.yaml").write_text(
        "gres: gpu\ndevices: [/dev/shm/tape%]\nbinds: ['/mnt/features.d:/opt/tape']\nenvironment: [TAPE=yes]\n"
    )
    (place / "features.d" / "all.yaml").write_text("devices: [/dev/shm/tape5]\n")
    (place / "features.d" / "absent.yaml").write_text("devices: [/dev/shm/tape9]\n")
    return place / "features.d"


@pytest.mark.parametrize(
    ("gpus", "devices"),
    [
        ({}, ["/dev/shm/tape5"]),
        ({"SLURM_JOB_GPUS": "1"}, ["/dev/shm/tape5", "/dev/shm/tape1"]),
        ({"SLURM_JOB_GPUS": "0,1"}, ["/dev/shm/tape5", "/dev/shm/tape0", "/dev/shm/tape1"]),
        ({"SPANK_SLURM_JOB_GPUS": "0", "CUDA_VISIBLE_DEVICES": "0"}, ["/dev/shm/tape5"]),
    ],
)
@pytest.mark.usefixtures("tape")
def test_hardware_is_what_slurm_has_allotted(gpus: dict[str, str], devices: list[str]) -> None:
    assert run(**gpus) == 0
    told = Mooring.load(17).hardware
    assert list(told.devices) == devices
    binds = [Bind("/mnt/features.d", "/opt/tape")] if len(devices) > 1 else []
    assert list(told.binds) == binds


@pytest.mark.usefixtures("tape")
@pytest.mark.parametrize("spec", ["1", "cluster=none"])
def test_hardware_is_for_the_jobs_own_processes_to_hand_on(spec: str) -> None:
    """They know what the job may open of it."""
    assert run(SPANK_K8S=spec, SLURM_JOB_GPUS="1") == 0
    assert Mooring.load(17).hardware.devices == ("/dev/shm/tape5", "/dev/shm/tape1")
    assert "devices" not in tomllib.loads((JOB.run / "etc" / "containers.conf").read_text())["containers"]


def test_of_what_slurm_does_not_tell_each_job_is_told_all(tape: Path) -> None:
    """Which of it is the job's, its device cgroup says later."""
    (tape / "reel.yaml").write_text("gres: reel\ndevices: [/dev/shm/tape%]\nenvironment: [REEL=yes]\n")
    assert run() == 0
    devices = ("/dev/shm/tape0", "/dev/shm/tape1", "/dev/shm/tape5")
    (resource,) = Mooring.load(17).hardware.resources
    assert (resource.name, resource.hardware.devices, resource.hardware.environment) == ("reel", devices, ("REEL=yes",))
    assert resource.units == tuple((one,) for one in devices)


def test_allotted_hardware_that_is_not_there_is_named(tape: Path) -> None:
    assert run(SLURM_JOB_GPUS="7") == 0
    assert refusal().startswith(f"{tape}/tape.yaml: this node has no /dev/shm/tape7, and this job was allotted gpu")


def test_a_feature_that_is_wrong_is_named(tape: Path) -> None:
    (tape / "all.yaml").write_text("device: [/dev/null]\n")
    assert run() == 0
    assert refusal().startswith(f"{tape}/all.yaml:1: there is no key device: did you mean devices?")


def test_a_user_without_ids_drains_no_node_however_often_he_tries(
    place: Path, fake: Callable[..., FakeCommand]
) -> None:
    (place / "moorage.yaml").write_text("node_fault: drain\n")
    fake("getsubids", stderr="Error fetching ranges\n", code=1)
    for number in range(100, 120):
        assert run(SLURM_JOB_ID=str(number)) == 0
        assert "has no subordinate uids" in (place / "run" / str(number) / "refusal").read_text()
        assert end_of_job.clean_up(number, Deadline(30)) == []
    assert everything(place) == []


@pytest.mark.parametrize(("rule", "code"), [("fail", 0), ("drain", 1)])
def test_a_nodes_fault_is_the_sites_to_judge(
    place: Path, monkeypatch: pytest.MonkeyPatch, rule: str, code: int
) -> None:
    (place / "moorage.yaml").write_text(f"node_fault: {rule}\n")
    monkeypatch.setattr(
        checks, "node_checks", lambda *_: iter([Finding("kernel", "the kernel is old", "boot another")])
    )
    assert run() == code
    assert refusal() == "the kernel is old: boot another\n"


@pytest.mark.parametrize(
    "changed", [{}, {"SPANK_K8S": "nonsense"}, {"SPANK_K8S": "0"}, {"SLURM_JOB_UID": "0"}, {"SLURM_JOB_USER": "-"}]
)
@pytest.mark.parametrize("text", ["node_fault: fail\n", "nonsense\n"])
def test_without_the_shim_no_job_gets_through_whatever_else_is_wrong(
    place: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], text: str
) -> None:
    (place / "moorage.yaml").write_text(text)
    monkeypatch.setattr(checks, "shim_checks", lambda *_: iter([Finding("shim", "no shim", "install it")]))
    assert run(**changed) == 1
    assert everything(place) == []


def test_nor_does_one_while_the_shim_cannot_be_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "look_around", lambda *_: fail())
    assert run() == 1


def test_a_wrong_configuration_is_named(place: Path) -> None:
    (place / "moorage.yaml").write_text("scratch:\n  kind: disk\n")
    assert run() == 0
    assert refusal().startswith("/mnt/moorage.yaml:2: scratch.kind is 'disk': give one of loop, tmpfs")


def test_an_environment_that_is_not_slurmds_makes_nothing(place: Path) -> None:
    assert run(SLURM_JOB_ID="../../etc") == 0
    assert everything(place) == []


def test_a_job_that_wants_nothing_gets_nothing(place: Path) -> None:
    assert run(SPANK_K8S="0") == 0
    assert everything(place) == []


def fail() -> NoReturn:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("module", "name"),
    [(rundir, "make"), (mounts, "mount_tmpfs"), (mounts, "mount_image"), (scratch, "make"), (podman_conf, "files")],
)
def test_whatever_fails_nothing_is_left_but_the_word(
    place: Path, monkeypatch: pytest.MonkeyPatch, module: object, name: str
) -> None:
    monkeypatch.setattr(module, name, lambda *_, **__: fail())
    assert run() == 0
    assert refusal() == "OSError: [Errno 28] No space left on device: tell the administrator of this node\n"
    assert everything(place) == ["/mnt/run/17", "/mnt/run/17/refusal", "/mnt/run/17/release"]


STARTS_NOTHING = '#!/bin/sh\n[ "$1" != start ] || { echo Job failed. >&2; exit 1; }\n'


def test_a_warden_that_does_not_start_undoes_all(place: Path, fake: Callable[..., FakeCommand]) -> None:
    fake("systemctl").path.write_text(STARTS_NOTHING)
    assert run() == 0
    assert "moorage-warden@17.service: exit code 1: Job failed." in refusal()
    assert everything(place) == ["/mnt/run/17", "/mnt/run/17/refusal", "/mnt/run/17/release"]
    fake("systemctl")
    assert run() == 0
    assert JOB.description.exists()
    assert not JOB.refusal.exists()


@pytest.mark.parametrize(("module", "name"), [(rundir, "make"), (scratch, "make"), (podman_conf, "files")])
def test_one_that_is_killed_is_cleared_by_the_epilog(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    name: str,
) -> None:
    make = getattr(module, name)

    def make_and_die(*arguments: object) -> None:
        make(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(module, name, make_and_die)
    if not (child := os.fork()):
        run()
        os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert everything(place)
    clear()
    assert everything(place) == []


@pytest.mark.parametrize("works", [True, False])
def test_nothing_is_left_where_slurmd_has_ended_meanwhile(
    place: Path, fake: Callable[..., FakeCommand], monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    """Not even a word: its Epilog may have been here already."""
    if not works:
        fake("systemctl").path.write_text(STARTS_NOTHING)
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert run() == 0
    assert everything(place) == []


def test_a_requeued_job_finds_nothing_of_its_earlier_life() -> None:
    assert run() == 0
    (JOB.user_run / "old").touch()
    (JOB.scratch / "old").touch()
    assert run(SLURM_JOB_RESTART_COUNT="1") == 0
    assert list(JOB.user_run.iterdir()) == list(JOB.scratch.iterdir()) == []
    assert json.loads(JOB.description.read_text())["restart"] == 1


def test_a_full_disk_drains_no_node(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "moorage.yaml").write_text("node_fault: drain\n")
    monkeypatch.setattr(scratch, "make", lambda *_: fail())
    assert run() == 0
    assert "No space left" in refusal()


@pytest.mark.parametrize(("ours", "code"), [(True, 1), (False, 0)])
def test_what_an_earlier_life_has_left_is_not_forgotten(
    place: Path, monkeypatch: pytest.MonkeyPatch, ours: bool, code: int
) -> None:
    """Only the state of that life knows where it is."""
    assert run() == 0
    (place / "moorage.yaml").write_text(CONFIG.format(place=place) + "node_fault: drain\n")
    before = JOB.state.read_text()
    left = end_of_job.Leftover("process", "4711 (sh)", "it does not end", ours=ours)
    with monkeypatch.context() as patch:
        patch.setattr(end_of_job, "clean_up", lambda *_: [left])
        assert run(SLURM_JOB_RESTART_COUNT="1") == code
    assert JOB.state.read_text() == before
    assert JOB.refusal.read_text().startswith(
        "job 17 was here before, and process 4711 (sh) is left: it does not end: "
    )
    clear()
    assert run(SLURM_JOB_RESTART_COUNT="1") == 0
