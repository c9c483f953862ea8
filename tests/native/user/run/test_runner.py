"""`moorage run` and all that it starts, on a node with a real warden; only srun and podman are stand-ins."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pyroute2
import pytest

from moorage.common.description import Mooring
from moorage.common.progress import Progress
from moorage.root.net import fabric
from moorage.root.net.fabric import Fabric, Site
from moorage.root.records import start_log
from moorage.user.run import runner, script
from support import srun
from support.cgroups import await_event, leaf
from support.hosts import CABLE, Host, connected
from support.moored import PACKAGES, PLACES, SHELL_PATH, WAITS, interpreter, moored
from support.namespaces import inside
from support.node import JOB, LIMITS, USER, Manager, node, prepared, saved
from support.peers import Peer

LIMIT = 40.0
SRUN = JOB.run / "bin" / "srun"
SUBMITTED = PLACES.user / "submitted"
OUTPUT = PLACES.user / "output"
SAID = PLACES.user / "said"
TREE = Path("job_17/step_0/user/task_1/k8s")


@pytest.fixture
def scope(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(script, "STRAY_TIMEOUT", 0.5)
    with node(monkeypatch) as scope:
        prepared(limits=replace(LIMITS, lend_wait=LIMIT))
        yield scope


@pytest.fixture
def mooring(scope: Path, monkeypatch: pytest.MonkeyPatch) -> Mooring:
    tasks = [leaf(scope, "job_17", "step_0", f"task_{number}") for number in range(2)]
    # As slurmstepd, which is root, moves its tasks.
    for place in (scope / "job_17", *tasks):
        os.chown(place / "cgroup.procs", USER, USER)
    mooring = moored({"srun": str(SRUN)})
    program = JOB.run / "bin" / "srun.py"
    program.write_text(Path(srun.__file__).read_text())
    SRUN.write_text(f'#!/bin/sh\nexec {interpreter()} -I {program} {" ".join(map(str, tasks))} -- "$@"\n')
    SRUN.chmod(0o755)
    SUBMITTED.mkdir()
    os.chown(SUBMITTED, USER, USER)
    agent = (
        f"import sys; sys.path.insert(0, {str(PACKAGES)!r}); from moorage.user.agent import delegated_cgroup;"
        " delegated_cgroup.NEEDED = frozenset(); from moorage.cli import main; main(['agent'])"
    )
    monkeypatch.setattr(runner, "AGENT", (str(interpreter()), "-Ic", agent))
    return mooring


@pytest.fixture
def task(scope: Path, mooring: Mooring) -> Iterator[Peer]:
    """The job's task; whatever it is told, no process of the job is left in the end."""
    with Manager() as manager, Peer(USER, leaf(scope, "job_17", "step_batch", "task_0")) as task:
        yield task
        assert manager.pid
        task.kill()
        await_event(scope, "populated 0", LIMIT)


def run(text: str, *words: str) -> int:
    """For a Peer: the job's task, whose script is this shell."""
    script = PLACES.user / "script"
    script.write_text(f"#!/bin/sh\nexec >>{SAID} 2>&1\n{text}\n")
    script.chmod(0o755)
    environ = {
        "PATH": SHELL_PATH,
        "HOME": str(PLACES.user),
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_SUBMIT_DIR": str(SUBMITTED),
        "SLURM_NTASKS": "8",
        "SLURM_SPANK_K8S": "cluster=none",
        "SPANK_K8S": "cluster=none",
    }
    with OUTPUT.open("a") as output:
        return runner.run([str(script), *words], environ, Progress(output))


def said(text: str, place: Path = SAID) -> bool:
    """Wait until this has been said."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if place.exists() and text in place.read_text():
            return True
        select.select([], [], [], 0.05)
    return False


def gone(place: Path) -> bool:
    """Wait until the warden, which ends with nobody, has removed this."""
    end = time.monotonic() + LIMIT
    while place.exists() and time.monotonic() < end:
        select.select([], [], [], 0.05)
    return not place.exists()


def python(name: str, code: str) -> str:
    """A command that runs this with the job's copy of the package."""
    (PLACES.user / name).write_text(f"import sys; sys.path.insert(0, {str(PACKAGES)!r}); {code}\n")
    return f"{interpreter()} -I {PLACES.user / name}"


def agents() -> dict[str, int]:
    """The processes of the step by what they are."""
    found = {}
    for process in processes("main(['agent'])"):
        with suppress(psutil.Error):
            cgroup = Path(f"/proc/{process.pid}/cgroup").read_text()
            local = process.environ().get("SLURM_LOCALID")
            found["keeper" if "/k8s/" in cgroup else f"task {local}"] = process.pid
    return {"keeper": found["keeper"], "agent": found["task 0"], "placeholder": found["task 1"]}


def processes(word: str) -> Iterator[psutil.Process]:
    """Those of the job's owner with this in their arguments."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.uids().real == USER and any(word in argument for argument in process.cmdline()):
                yield process


class TestScript:
    def test_it_runs_with_podman_in_the_tree(self, task: Peer, scope: Path) -> None:
        code = task.do(
            run,
            'echo "$# $1"; tail -n1 /proc/self/cgroup; podman tail -n1 /proc/self/cgroup; command -v podman;'
            ' echo "${SPANK_K8S-none} ${SLURM_SPANK_K8S-none} $SLURM_NTASKS"; exit 3',
            "a b",
            "c",
        )
        assert code == 3
        words, outside, inside, program, option = SAID.read_text().splitlines()
        assert words == "2 a b"
        assert outside.endswith("/job_17/step_batch/user/task_0")
        assert inside.endswith(f"/{TREE}/init")
        assert program == f"{PLACES.programs}/podman"
        assert option == "none none 8"
        assert gone(scope / TREE)
        shown = OUTPUT.read_text().splitlines()
        assert [line.partition(" s  ")[2] for line in shown[:3]] == [
            "starting the agents",
            "asking for a cgroup",
            "preparing Podman",
        ]
        assert shown[3].startswith("moorage: ready after ")
        assert "of CPU time" in shown[4]
        assert len(shown) == 5

    @pytest.mark.parametrize(("text", "code"), [("exit 0", 0), ("kill -TERM $$", -15), ("kill -KILL $$", -9)])
    def test_its_code_is_the_jobs(self, task: Peer, text: str, code: int) -> None:
        assert task.do(run, text) == code

    @pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "USR1", "USR2", "ALRM"])
    def test_signals_reach_it(self, task: Peer, name: str) -> None:
        task.begin(run, f"trap 'echo got {name}; exit 7' {name}; echo up; while :; do sleep 0.1; done")
        assert said("up")
        os.kill(task.pid, signal.Signals[f"SIG{name}"])
        assert task.result() == 7
        assert SAID.read_text() == f"up\ngot {name}\n"

    def test_containers_may_end_by_themselves(self, task: Peer) -> None:
        container = "trap 'echo bye >>$XDG_RUNTIME_DIR/said; exit' TERM; while :; do sleep 0.1; done"
        (PLACES.user / "container").write_text(container)
        (PLACES.user / "start").write_text("setsid ./conmon -c 'sh ./container; :' >&- 2>&- & sleep 0.3")
        task.do(run, "cd $XDG_RUNTIME_DIR; cp /bin/sh conmon; podman sh ./start")
        assert SAID.read_text() == "bye\n"


class TestStart:
    @pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT"])
    def test_it_can_be_ended(self, task: Peer, mooring: Mooring, scope: Path, name: str) -> None:
        mooring.podman.write_text("#!/bin/sh\nsleep 600\n")
        task.begin(run, "echo never")
        assert said("preparing Podman", OUTPUT)
        os.kill(task.pid, signal.Signals[f"SIG{name}"])
        assert task.result(LIMIT) == -signal.Signals[f"SIG{name}"]
        assert not SAID.exists()
        assert gone(scope / TREE)
        assert f"ended by {name} before the script was started" in OUTPUT.read_text()

    def test_other_signals_wait_for_the_script(self, task: Peer, mooring: Mooring) -> None:
        """It has no handler for this one, and so ends by it, as it would have without us."""
        go = PLACES.user / "go"
        text = mooring.podman.read_text()
        mooring.podman.write_text(text.replace("#!/bin/sh\n", f"#!/bin/sh\nwhile ! [ -e {go} ]; do sleep 0.05; done\n"))
        task.begin(run, "exec sleep 600")
        assert said("preparing Podman", OUTPUT)
        os.kill(task.pid, signal.SIGUSR1)
        go.touch()
        assert task.result() == -signal.SIGUSR1

    def test_what_fails_is_told_and_kept(self, task: Peer, mooring: Mooring, scope: Path) -> None:
        mooring.podman.write_text("#!/bin/sh\necho 'Error: no subuids, password=hunter2' >&2\nexit 125\n")
        assert task.do(run, "echo never") == 1
        assert not SAID.exists()
        last = OUTPUT.read_text().splitlines()[-1]
        (kept,) = SUBMITTED.iterdir()
        assert "unshare true: exit code 125" in last
        assert last.endswith(f"(more in {kept})")
        assert "Error: no subuids" in kept.read_text()
        assert "hunter2" not in kept.read_text()
        assert "==== root's parts on node1\n" in kept.read_text()
        assert " delegate: " in kept.read_text()
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert gone(scope / TREE)

    def test_root_hears_how_far_it_came(self, task: Peer, mooring: Mooring) -> None:
        assert task.do(run, "exit 0") == 0
        known = start_log.read(JOB.id)
        assert [step.word for step in known.steps] == ["cgroup", "podman", "ready", "down"]
        assert (known.outcome, known.orderly) == ("ready", True)
        assert "start: the job is ready\n" in JOB.log.read_text()

    def test_root_hears_why_it_failed(self, task: Peer, mooring: Mooring) -> None:
        mooring.podman.write_text("#!/bin/sh\nexit 125\n")
        assert task.do(run, "exit 0") == 1
        known = start_log.read(JOB.id)
        assert (known.outcome, known.reached) == ("failed", "podman")
        assert "unshare true: exit code 125" in known.cause

    def test_no_warden(self, mooring: Mooring, scope: Path) -> None:
        description = JOB.run / "job.json"
        description.write_text(json.dumps({**json.loads(description.read_text()), "wait": {**WAITS, "agents": 4.0}}))
        with Peer(USER, leaf(scope, "job_17", "step_batch", "task_0")) as task:
            assert task.do(run, "echo never") == 1
        assert "the warden did not answer `delegate`" in OUTPUT.read_text()

    def test_twice_in_a_job(self, task: Peer) -> None:
        again = f"from moorage.user.run import runner; runner.AGENT = {runner.AGENT!r}; runner.main(['true'])"
        assert task.do(run, f"{python('again', again)}; echo $?; podman echo still up") == 0, SAID.read_text()
        assert "this job is moored already" in SAID.read_text()
        assert SAID.read_text().endswith("1\nstill up\n")


class TestLosses:
    @pytest.mark.parametrize(
        ("who", "line"),
        [
            ("agent", "lost: the step of the agents has ended"),
            ("keeper", "lost: the keeper of the job's tree has ended (killed by KILL)"),
        ],
    )
    def test_the_script_goes_on(self, task: Peer, scope: Path, who: str, line: str) -> None:
        os.mkfifo(PLACES.user / "go", 0o666)
        os.chown(PLACES.user / "go", USER, USER)
        task.begin(run, "echo up; read -r _ <$XDG_RUNTIME_DIR/go; podman echo; echo $?; exit 9")
        assert said("up")
        os.kill(agents()[who], signal.SIGKILL)
        assert said(line, OUTPUT)
        assert said("; the script goes on without it (more in ", OUTPUT)
        (kept,) = SUBMITTED.iterdir()
        assert "==== cause\n" in kept.read_text()
        (PLACES.user / "go").write_text("go\n")
        assert task.result() == 9
        assert SAID.read_text().endswith("125\n")
        assert gone(scope / TREE)

    def test_srun(self, task: Peer, scope: Path) -> None:
        task.begin(run, "echo up; sleep 1; exit 9")
        assert said("up")
        (found,) = processes(str(JOB.run / "bin" / "srun.py"))
        found.kill()
        assert said("lost: the step of the agents has ended", OUTPUT)
        assert task.result() == 9
        assert gone(scope / TREE)

    def test_the_placeholder_is_not_missed(self, task: Peer) -> None:
        task.begin(run, "echo up; sleep 1; podman echo still up; exit 9")
        assert said("up")
        os.kill(agents()["placeholder"], signal.SIGKILL)
        assert task.result() == 9
        assert "still up" in SAID.read_text()

    def test_the_task_itself(self, task: Peer, scope: Path) -> None:
        """Slurm ends the script then; the rest sees the end of its input."""
        task.begin(run, "echo up; exec sleep 600")
        assert said("up")
        handle = os.pidfd_open(agents()["agent"])
        script = next(one for one in psutil.Process(task.pid).children() if one.name() == "sleep")
        task.kill()
        script.kill()
        assert select.select([handle], [], [], LIMIT)[0]
        os.close(handle)

    def test_signals_to_the_step_are_told_and_not_heeded(self, task: Peer) -> None:
        task.begin(run, "trap 'echo got it' USR1; echo up; sleep 2; podman echo still up")
        assert said("up")
        for name in ("TERM", "INT", "HUP", "USR1", "USR2", "CONT"):
            for pid in agents().values():
                os.kill(pid, signal.Signals[f"SIG{name}"])
        assert task.result() == 0
        assert SAID.read_text() == "up\nstill up\n"
        told = [line.split()[1] for line in OUTPUT.read_text().splitlines() if "was sent to this job's steps" in line]
        assert sorted(told) == ["HUP", "INT", "TERM", "USR1", "USR2"]


def test_down(task: Peer) -> None:
    down = python("down", "from moorage.cli import main; main(['down'])")
    assert task.do(run, f"{down}; echo $?; podman echo never; echo $?; exit 4") == 4
    first, _, last = SAID.read_text().splitlines()
    assert (first, last) == ("0", "125")
    assert "taken down early, as asked for" in OUTPUT.read_text()
    assert "of CPU time" in OUTPUT.read_text()


class TestNetwork:
    """The job's network is a namespace that the user has made, as Podman makes one for him."""

    @pytest.fixture
    def host(self) -> Iterator[Host]:
        with connected(2) as (host, _):
            yield host

    @pytest.fixture
    def networked(self, mooring: Mooring, host: Host, monkeypatch: pytest.MonkeyPatch) -> Fabric:
        """As the Prologs of two nodes leave it; on the second nothing runs."""
        found = Fabric.of(JOB.id, CABLE, 1500, [host.address, host.address + 1], 0, Site())
        saved().changed(fabric=found)
        with inside(host.namespace):
            fabric.make(found, Site())
        segment = {
            "subnet": "10.89.0.0/16",
            "mtu": found.mtu,
            "hardware_address": found.hardware_address(0),
            "hosts": ["node1", "node2"],
        }
        description = JOB.run / "job.json"
        description.write_text(json.dumps(json.loads(description.read_text()) | {"fabric": segment}))
        # The Python that everybody can start need not have it.
        shutil.copytree(Path(pyroute2.__file__).parent, PACKAGES / "pyroute2")
        program, code = runner.AGENT[0], runner.AGENT[-1]
        holder = (
            program,
            "-Ic",
            f"import sys; sys.path.insert(0, {str(PACKAGES)!r});"
            " from moorage.user.network import holder; holder.main()",
        )
        agent = code.replace(
            "from moorage.cli",
            f"from moorage.user.network import holder_client; holder_client.HOLDER = {holder!r}; from moorage.cli",
        )
        monkeypatch.setattr(runner, "AGENT", (program, "-Ic", agent))
        return found

    @pytest.fixture
    def task(self, scope: Path, networked: Fabric, host: Host) -> Iterator[Peer]:
        manager = Manager()
        with inside(host.namespace):
            manager.start()
        with closing(manager.ear), Peer(USER, leaf(scope, "job_17", "step_batch", "task_0")) as task:
            yield task
            task.kill()
            await_event(scope, "populated 0", LIMIT)
            manager.stop()

    def test_it_is_plugged_before_the_script_runs(self, task: Peer, networked: Fabric, host: Host) -> None:
        task.begin(
            run, "echo up; for i in $(seq 200); do [ -e $XDG_RUNTIME_DIR/go ] && exit 0; sleep 0.05; done; exit 1"
        )
        assert said("up")
        assert networked.host_end in host.links()
        (held,) = [
            one
            for one in processes("holder.main()")
            if "podman" not in one.name() and "from moorage.cli" not in str(one.cmdline())
        ]
        assert "/k8s/" in Path(f"/proc/{held.pid}/cgroup").read_text()
        assert "fabric0:" in Path(f"/proc/{held.pid}/net/dev").read_text()
        (PLACES.user / "go").touch()
        assert task.result() == 0
        assert host.loses(networked.host_end)
        assert "--ip-range=10.89.0.0/24" in (PLACES.user / "networks").read_text()

    def test_what_cannot_be_plugged_is_why_the_job_fails(self, task: Peer, networked: Fabric, host: Host) -> None:
        host.ip.link("del", index=host.index(networked.tunnel))
        assert task.do(run, "echo never") == 1
        assert f"there is no link {networked.tunnel}" in OUTPUT.read_text().splitlines()[-1]
        assert not SAID.exists()
