"""`moorage run` where there is nothing to bring up: one line, and the job fails."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import moorage
from moorage.common import job
from moorage.common.description import Mooring
from moorage.common.errors import UsageError
from moorage.common.events import Signals, Watch
from moorage.common.progress import Progress
from moorage.user.messages import Used
from moorage.user.run import runner
from moorage.user.run.runner import Runner
from support.described import described

ENVIRON = {"SLURM_JOB_ID": "17", "SLURM_JOB_NUM_NODES": "1", "PATH": "/no/such/place"}
FIELDS = described()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(job, "RUN", tmp_path)
    (tmp_path / "17").mkdir()
    return tmp_path / "17"


@pytest.mark.parametrize("words", [[], ["--"]])
def test_nothing_to_run(words: list[str]) -> None:
    with pytest.raises(UsageError, match="nothing to run"):
        runner.main(words)


@pytest.mark.parametrize(
    ("files", "environ", "line"),
    [
        ({}, {}, "this is no job of Slurm's: use it in a job that was submitted with --k8s"),
        ({"refusal": "you have no subuids: ask for some"}, ENVIRON, "you have no subuids: ask for some"),
        ({}, ENVIRON, "the Prolog has not prepared this node for job 17: tell"),
        ({"job.json": json.dumps(FIELDS)}, ENVIRON | {"SLURM_HET_SIZE": "2"}, "this job is heterogeneous"),
        ({"job.json": json.dumps(FIELDS | {"place": 1})}, ENVIRON, "this script does not run on the first node of its"),
    ],
)
def test_one_line_and_failure(place: Path, files: dict[str, str], environ: dict[str, str], line: str) -> None:
    for name, text in files.items():
        (place / name).write_text(text)
    output = io.StringIO()
    assert runner.run(["script"], environ, Progress(output)) == 1
    (said,) = output.getvalue().splitlines()
    assert said.startswith(f"moorage: {line}")


@pytest.mark.parametrize(
    ("usage", "line"),
    [
        ([], "started in 2.5 s, was up for 0.0 s; nothing is known of what was used"),
        (
            [Used(22.04, 414187520, 9)],
            "started in 2.5 s, was up for 0.0 s; used 22.0 s of CPU time, at most 395 MiB of memory",
        ),
        (
            [Used(40.0, 1 << 30, 9), Used(41.0, 2 << 30, 9)],
            "started in 2.5 s, was up for 0.0 s; used 1:21 of CPU time, at most 2.0 GiB of memory",
        ),
        ([Used(1.0, 0, 0)], "started in 2.5 s, was up for 0.0 s; used 1.0 s of CPU time"),
    ],
)
def test_account(place: Path, usage: list[Used], line: str) -> None:
    (place / "job.json").write_text(json.dumps(FIELDS))
    clock = iter([0.0, 2.5])
    progress = Progress(io.StringIO(), lambda: next(clock))
    with Signals([]) as signals, Watch() as watch:
        running = Runner(Mooring.load(17), 1, ENVIRON, progress, signals, watch)
        running.start_up = 2.5
        running.agents.record.usage += usage
        assert running._account() == line


@pytest.mark.commands("srun", "false")
class TestBundle:
    def test_what_cannot_start_says_why_and_where_more_is(self, place: Path, tmp_path: Path) -> None:
        srun = tmp_path / "srun"
        srun.write_text("#!/bin/sh\necho 'srun: error: the password=hunter2 is wrong' >&2\nexit 1\n")
        srun.chmod(0o755)
        (place / "job.json").write_text(json.dumps(FIELDS | {"srun": str(srun)}))
        output = io.StringIO()
        environ = ENVIRON | {"SLURM_SUBMIT_DIR": str(tmp_path), "PATH": "/bin:/usr/bin"}
        assert runner.run(["false"], environ, Progress(output)) == 1
        last = output.getvalue().splitlines()[-1]
        kept = tmp_path / "moorage-17.log"
        assert "the step of the agents has ended: srun: error:" in last
        assert last.endswith(f"(more in {kept})")
        assert "starting the agents" in kept.read_text()
        assert "hunter2" not in kept.read_text()


SRUN = """\
#!{python} -IS
import json, os, sys, time
sys.path.insert(0, {package!r})
from moorage.user.channel import Receiver, Sender
state, events = {state!r}, {events!r}
open(state + "/argv", "w").write(json.dumps(sys.argv))
sender, receiver = Sender(lambda line: os.write(1, line)), Receiver()
for event in events:
    if event == "a moment":
        time.sleep(0.3)
    elif isinstance(event, str):
        os.write(2, event.encode() + b"\\n")
    else:
        sender.send(event)
while chunk := os.read(0, 65536):
    for message in receiver.receive(chunk):
        with open(state + "/heard", "a") as heard:
            heard.write(json.dumps(message) + "\\n")
        if message == {{"command": "down"}}:
            sys.exit()
"""
FABRIC = {"subnet": "10.89.0.0/16", "mtu": 1450, "hardware_address": "0a:", "hosts": ["n1", "n2", "n3"]}


def ready(node: str) -> dict[str, object]:
    return {"node": node, "event": "ready"}


EXITED = "srun: error: n3: tasks 4-5: Exited with exit code 2"
# For what is no matter of time.
PATIENT = {"agents": 30, "podman": 30, "kill": 5}


def cluster(*without: str) -> dict[str, object]:
    about = {"name": "moorage-17", "server": "https://127.0.0.1:1", "without": [*without]}
    return {"node": "n1", "event": "cluster", **about}


def failed(node: str, cause: str = "no cgroup") -> dict[str, object]:
    return {"node": node, "event": "failed", "cause": cause}


@pytest.mark.commands("srun", "sh")
class TestSeveralNodes:
    @pytest.fixture
    def run(self, place: Path, tmp_path: Path) -> Callable[..., tuple[int, list[str]]]:
        def run(events: list[dict[str, object]], require: str = "all", has: int = 3, **fields: object) -> Any:  # noqa: ANN401
            package = str(Path(moorage.__file__).parents[1])
            srun = tmp_path / "srun"
            srun.write_text(SRUN.format(python=sys.executable, package=package, state=str(tmp_path), events=events))
            srun.chmod(0o755)
            spec = {"enabled": True, "cluster": "none", "require": require}
            waits = {"agents": 0.5, "podman": 0.5, "kill": 5}
            several = {"nodes": 3, "fabric": FABRIC, "srun": str(srun), "spec": spec, "wait": waits}
            (place / "job.json").write_text(json.dumps(described(**several | fields)))
            output = io.StringIO()
            environ = ENVIRON | {"SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_NUM_NODES": str(has)}
            code = runner.run(["sh", "-c", "exit 9"], environ | {"PATH": "/bin:/usr/bin"}, Progress(output))
            return code, output.getvalue().splitlines()

        return run

    def test_the_script_runs_once_all_are_there(self, run: Callable[..., Any]) -> None:
        code, said = run([{"node": "n2", "event": "phase", "text": "preparing"}, *map(ready, ("n1", "n2", "n3"))])
        assert code == 9
        assert said[1].endswith(" s  n2: preparing")

    @pytest.mark.parametrize(
        ("require", "node", "code", "line"),
        [
            ("all", "n3", 1, "n3: no cgroup"),
            ("any", "n3", 9, "not there: n3: no cgroup; the rest goes on, as required"),
            ("any", "n1", 1, "n1: no cgroup"),
        ],
    )
    def test_one_fails(self, run: Callable[..., Any], require: str, node: str, code: int, line: str) -> None:
        others = [ready(name) for name in ("n1", "n2", "n3") if name != node]
        ended, said = run([*others, failed(node)], require)
        assert ended == code
        assert any(line in one for one in said)

    @pytest.mark.parametrize(
        ("require", "heard", "code", "line"),
        [
            ("all", ["n1", "n2"], 1, "starting the agents: not done after 0.5 s, nothing was heard of n3"),
            ("any", ["n2", "n3"], 1, "starting the agents: not done after 0.5 s, nothing was heard of n1"),
            (
                "any",
                ["n1", "n2"],
                9,
                "not there: n3: it did not get ready in time [M-JOB-1]; the rest goes on, as required",
            ),
        ],
    )
    def test_one_is_never_heard_of(
        self, run: Callable[..., Any], require: str, heard: list[str], code: int, line: str
    ) -> None:
        ended, said = run([ready(node) for node in heard], require)
        assert ended == code
        assert any(line in one for one in said)

    @pytest.mark.parametrize(
        ("require", "code", "line"),
        [
            ("all", 1, "n3: its agent has ended without a word, as Slurm says: Exited with exit code 2"),
            (
                "any",
                9,
                "not there: n3: its agent has ended without a word, as Slurm says: Exited with exit code 2 [M-JOB-4];",
            ),
        ],
    )
    def test_one_that_cannot_be_started_is_not_waited_for(
        self, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, require: str, code: int, line: str
    ) -> None:
        monkeypatch.setattr(runner, "LAST_REPORT", 0.2)
        begun = time.monotonic()
        said = [EXITED, ready("n1"), ready("n2")]
        ended, told = run(said, require, wait=PATIENT)
        assert (ended, time.monotonic() - begun < PATIENT["agents"]) == (code, True)
        assert any(line in one for one in told)

    def test_what_it_has_said_comes_first(self, run: Callable[..., Any]) -> None:
        ended, told = run([EXITED, ready("n1"), ready("n2"), "a moment", failed("n3")], wait=PATIENT)
        assert ended == 1
        assert any("n3: no cgroup" in one for one in told)

    @pytest.mark.parametrize("require", ["all", "any"])
    def test_what_takes_too_long_is_named(self, run: Callable[..., Any], require: str) -> None:
        phases = [{"node": node, "event": "phase", "text": "preparing Podman"} for node in ("n1", "n2")]
        ended, said = run([*phases, ready("n2"), ready("n3")], require)
        assert ended == 1
        assert "moorage: n1: preparing Podman: not ready after 1 s" in said[-1]

    def test_a_cluster_may_go_without(self, run: Callable[..., Any]) -> None:
        """Its first node knows who will come and who will not."""
        begun = time.monotonic()
        code, said = run([ready("n2"), cluster("n3"), ready("n1")], "any", wait=PATIENT)
        assert code == 9
        assert time.monotonic() - begun < runner.REST_OF_CLUSTER / 2
        assert any("not there: n3: it did not get ready in time [M-JOB-1]; the rest goes on" in line for line in said)

    def test_who_has_joined_a_cluster_is_waited_for(self, run: Callable[..., Any]) -> None:
        """Its first node sees him before he has all that is his own."""
        code, said = run([cluster(), ready("n1"), "a moment", ready("n2"), failed("n3")], "any", wait=PATIENT)
        assert code == 9
        lost = [line for line in said if "not there" in line]
        assert [line.partition(";")[0] for line in lost] == ["moorage: not there: n3: no cgroup"]

    def test_who_has_joined_and_says_nothing_more_is_not_waited_for_long(
        self, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(runner, "REST_OF_CLUSTER", 0.2)
        code, said = run([cluster(), ready("n1"), ready("n3")], "any", wait=PATIENT)
        assert code == 9
        assert any("not there: n2: it did not get ready in time" in line for line in said)

    def test_invitations_go_to_all(self, run: Callable[..., Any], tmp_path: Path) -> None:
        fields = {
            "server": "https://10.89.0.2:6443",
            "authority": "a",
            "token": "t",
            "certificate": "c",
            "key": "secret",
        }
        join = {"node": "n1", "event": "join", **fields}
        _, said = run([join, *map(ready, ("n1", "n2", "n3"))])
        heard = [json.loads(line) for line in (tmp_path / "heard").read_text().splitlines()]
        assert heard[0] == {"command": "join", **fields}
        assert "secret" not in "".join(said)

    @pytest.mark.parametrize(("has", "asked"), [(3, False), (5, True)])
    def test_agents_run_where_something_was_prepared(
        self, run: Callable[..., Any], tmp_path: Path, has: int, asked: bool
    ) -> None:
        run([ready("n1"), ready("n2"), ready("n3")], has=has)
        argv = json.loads((tmp_path / "argv").read_text())
        assert {"--nodes=3", "--ntasks=6"} < set(argv)
        assert ("--nodelist=n1,n2,n3" in argv) is asked
