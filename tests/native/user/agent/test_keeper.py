"""The keeper of a job's tree, and what asks it from outside: real processes, cgroups, sockets, descriptors."""

from __future__ import annotations

import importlib
import os
import re
import resource
import signal
import socket
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.common.deadline import Deadline
from moorage.common.description import Mooring
from moorage.user.agent import delegated_cgroup, exec_client, exec_server
from moorage.user.agent.keeper import MORE_HOLDERS
from moorage.user.messages import Down, DownRequested, Failed, Log, Note, Plugged, PlugWanted, Ready
from moorage.user.network import holder_client
from support.cgroups import await_event, members
from support.hung import await_blocked, hung_mount
from support.moored import LIMIT, PACKAGES, PLACES, SHELL_PATH, WAITS, Keeper, call, called, interpreter, lines, moored
from support.node import OTHER, USER, node, prepared
from support.peers import Peer
from support.processes import ended

PROGRAM = PLACES.programs / "podman"
FABRIC = {"subnet": "10.89.0.0/16", "mtu": 1450, "hardware_address": "0a:", "hosts": ["node1", "node2"]}
AS_USER: dict[str, Any] = {"user": USER, "group": USER, "extra_groups": []}


@pytest.fixture
def scope(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(exec_server, "GRACE", 1.0)
    monkeypatch.setattr(delegated_cgroup, "LINGERING", 0.5)
    with node(monkeypatch) as scope:
        prepared()
        yield scope


@pytest.fixture
def mooring(scope: Path) -> Mooring:
    return moored()


@pytest.fixture
def keeper(scope: Path, mooring: Mooring) -> Iterator[Keeper]:
    with Keeper(mooring, scope) as keeper:
        yield keeper.start()


@pytest.mark.usefixtures("keeper")
class TestExecutions:
    @pytest.mark.parametrize("code", [0, 1, 7, 125, 255])
    def test_exit_code(self, code: int) -> None:
        assert called("sh", "-c", f"exit {code}") == (code, "", "")

    @pytest.mark.parametrize("name", ["TERM", "KILL", "USR1", "SEGV"])
    def test_end_by_a_signal(self, name: str) -> None:
        assert called("sh", "-c", f"kill -{name} $$")[0] == -signal.Signals[f"SIG{name}"]

    def test_streams_are_the_callers(self) -> None:
        given = b"x" * (1 << 20)
        with call("sh", "-c", "cat; echo err >&2", stdin=subprocess.PIPE) as process:
            out, err = process.communicate(given, timeout=LIMIT)
        assert (out, err) == (given, b"err\n")

    def test_a_stream_may_be_a_file(self, tmp_path: Path) -> None:
        with (tmp_path / "out").open("wb") as file:
            assert called("echo", "there", stdout=file)[0] == 0
        assert (tmp_path / "out").read_text() == "there\n"

    @pytest.mark.parametrize("closed", [0, 1, 2])
    def test_a_stream_may_be_closed(self, closed: int) -> None:
        shell = f"{PROGRAM} sh -c 'exit 3' {('<&-', '>&-', '2>&-')[closed]}; exit $?"
        assert subprocess.run(["sh", "-c", shell], timeout=LIMIT, **AS_USER).returncode == 3

    def test_arguments_as_they_were(self) -> None:
        words: list[str | bytes] = ["", "a b", "--", "-x", "two\nlines", "ä", b"\xff"]
        code, out, _ = called("printf", "[%s]", *words)
        assert (code, out) == (0, "[][a b][--][-x][two\nlines][ä][\ufffd]")

    def test_directory_and_umask(self, mooring: Mooring) -> None:
        assert called("sh", "-c", "pwd; umask", cwd=PLACES.scratch, umask=0o27)[1] == f"{PLACES.scratch}\n0027\n"

    def test_environment_is_the_callers_but_for_podmans_own(self) -> None:
        environ = {"PATH": f"{PLACES.programs}:{SHELL_PATH}", "MINE": "x y", "CONTAINER_HOST": "tcp://elsewhere"}
        _, out, _ = called("env", env=environ)
        said = dict(line.split("=", 1) for line in out.splitlines())
        assert said["MINE"] == "x y"
        assert said["XDG_RUNTIME_DIR"] == str(PLACES.user)
        assert said["CONTAINERS_CONF"] == str(PLACES.run / "etc" / "containers.conf")
        assert tomllib.loads(Path(said["CONTAINERS_CONF_OVERRIDE"]).read_text()) == {"containers": {}}
        assert "CONTAINER_HOST" not in said
        assert str(PLACES.programs) not in said["PATH"]

    def test_much_of_both(self) -> None:
        words = ["x" * 1000] * 1000
        environ = {"PATH": SHELL_PATH} | {f"NAME{number}": "y" * 1000 for number in range(900)}
        assert called("sh", "-c", "echo $# $NAME899", "sh", *words, env=environ)[1] == f"1000 {'y' * 1000}\n"

    def test_many_at_once(self) -> None:
        processes = [call("sh", "-c", f"sleep 0.3; exit {number}") for number in range(20)]
        assert [process.wait(LIMIT) for process in processes] == list(range(20))
        for process in processes:
            process.communicate()

    @pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "ALRM", "WINCH"])
    def test_signals_are_passed_on(self, name: str) -> None:
        with call("sh", "-c", f"trap 'echo got; exit 9' {name}; echo up; while :; do sleep 0.05; done") as process:
            said = lines(process)
            assert next(said) == "up"
            process.send_signal(signal.Signals[f"SIG{name}"])
            assert next(said) == "got"
            assert process.wait(LIMIT) == 9

    def test_a_signal_that_the_caller_ignores_is_not(self) -> None:
        shell = f"trap '' HUP; exec {PROGRAM} sh -c 'echo up; sleep 1; exit 4'"
        with subprocess.Popen(["sh", "-c", shell], stdout=subprocess.PIPE, **AS_USER) as process:
            assert next(lines(process)) == "up"
            process.send_signal(signal.SIGHUP)
            assert process.wait(LIMIT) == 4


class TestInTheTree:
    def test_it_runs_in_there_as_the_keepers_child(self, keeper: Keeper) -> None:
        with call("sh", "-c", "echo $$ $PPID; cat /proc/self/oom_score_adj; sleep 600") as process:
            said = lines(process)
            pid, parent = map(int, next(said).split())
            assert parent == keeper.pid
            assert next(said) == exec_server.EXPENDABLE
            assert {pid, keeper.pid} <= set(members(keeper.tree / "init"))
            assert os.getsid(pid) == pid
            process.kill()
        assert ended(pid)

    def test_whose_caller_is_killed_ends_with_its_group(self, keeper: Keeper) -> None:
        text = "trap 'echo bye >$XDG_RUNTIME_DIR/said; exit' TERM; sleep 600 & echo $$ $!; wait"
        with call("sh", "-c", text) as process:
            pids = [int(pid) for pid in next(lines(process)).split()]
            process.kill()
        assert all(ended(pid) for pid in pids)
        assert (PLACES.user / "said").read_text() == "bye\n"
        assert called("true")[0] == 0

    def test_who_will_not_go_is_killed(self, keeper: Keeper) -> None:
        before = cpu_time(keeper.pid)
        with call("sh", "-c", "trap '' TERM; sh -c 'while :; do sleep 60; done' & echo $$ $!; wait; wait") as process:
            pids = [int(pid) for pid in next(lines(process)).split()]
            process.kill()
        assert not ended(pids[0], limit=exec_server.GRACE / 2)
        assert all(ended(pid) for pid in pids)
        # It waits for this without turning in circles.
        assert cpu_time(keeper.pid) - before < 0.5

    def test_a_daemon_outlives_its_caller_and_is_buried_by_the_keeper(self, keeper: Keeper) -> None:
        _, out, _ = called("sh", "-c", "setsid sh -c 'echo $$; exec sleep 600 >&- 2>&-' & sleep 0.2")
        daemon = int(out)
        fields = Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()
        assert int(fields[1]) == keeper.pid
        os.kill(daemon, signal.SIGKILL)
        assert ended(daemon)
        called("true")
        assert not Path(f"/proc/{daemon}").exists()

    def test_nothing_stays_open(self, keeper: Keeper) -> None:
        called("true")
        before = keeper.descriptors()
        for _ in range(20):
            called("true")
        for _ in range(5):
            with call("sh", "-c", "echo up; sleep 600") as process:
                next(lines(process))
                process.kill()
        called("true")
        deadline = time.monotonic() + LIMIT
        while keeper.descriptors() != before:
            assert time.monotonic() < deadline, "descriptors were left open"
            called("true")

    def test_a_container_without_a_cgroup_is_told_of(self, keeper: Keeper) -> None:
        """A monitor is known by its name, and what it watches should not be where it is."""
        called("sh", "-c", 'cp "$(command -v sleep)" $XDG_RUNTIME_DIR/sleep; cp /bin/sh $XDG_RUNTIME_DIR/conmon')
        monitor = "setsid $XDG_RUNTIME_DIR/conmon -c '$XDG_RUNTIME_DIR/sleep 600; :' >&- 2>&- <&- & sleep 0.3"
        called("sh", "-c", monitor)
        called("true")
        assert "no cgroup of its own" in keeper.expect(Note).text
        called("true")
        keeper.command(Down())
        assert keeper.wait() == 0
        assert not [one for one in keeper.rest() if isinstance(one, Note)]


class TestRefusals:
    def test_no_such_program(self, mooring: Mooring, keeper: Keeper) -> None:
        mooring.podman.unlink()
        assert called("ps") == (exec_client.NOT_RUN, "", "the-real-podman: No such file or directory\n")

    @pytest.mark.usefixtures("mooring")
    def test_no_keeper(self) -> None:
        code, _, err = called("ps")
        assert code == exec_client.NOT_RUN
        assert "nothing runs in this job's tree" in err
        assert len(err.splitlines()) == 1

    def test_a_keeper_that_ends_meanwhile(self, keeper: Keeper) -> None:
        with call("sh", "-c", "echo up; sleep 600") as process:
            assert next(lines(process)) == "up"
            keeper.command(Down())
            assert process.wait(LIMIT) == exec_client.NOT_RUN
            assert process.stderr
            assert process.stderr.read() == b"the-real-podman: this job's tree was taken down\n"

    @pytest.mark.usefixtures("keeper")
    def test_another_user(self) -> None:
        code, _, err = called("ps", user=OTHER, group=OTHER)
        assert code == exec_client.NOT_RUN
        assert "Permission denied" in err

    @pytest.mark.parametrize(
        "packet",
        [
            b"\0\0\0\3foo",
            b"\0\0\0\0",
            b"\xff\xff\xff\xff",
            exec_client.request(b"/bin/true", [b"true"], [], 0),
            b"\0\0",
        ],
    )
    def test_what_is_not_understood_harms_nobody(self, keeper: Keeper, packet: bytes) -> None:
        """The fourth comes without any streams."""
        with connected() as connection:
            connection.sendall(packet)
        assert called("true")[0] == 0


class TestEnd:
    def test_all_in_the_tree_ends(self, keeper: Keeper) -> None:
        _, out, _ = called(
            "sh",
            "-c",
            f"mkdir -p {keeper.tree}/a/b; echo 0 >{keeper.tree}/a/b/cgroup.procs;"
            " setsid sh -c 'trap \"\" TERM; echo $$; exec sleep 600 2>&- >&-' & sleep 0.2",
        )
        assert members(keeper.tree / "a" / "b") == [int(out)]
        keeper.command(Down())
        assert keeper.wait() == 0
        await_event(keeper.tree, "populated 0")
        assert ended(int(out))
        assert [place.name for place in keeper.tree.iterdir() if place.is_dir()] == ["init"]
        assert not PLACES.socket.exists()

    def test_the_end_of_the_agent_is_the_end(self, keeper: Keeper) -> None:
        keeper.connection.close()
        assert keeper.wait() == 0
        await_event(keeper.tree, "populated 0")

    def test_who_hangs_in_a_file_system_is_not_waited_for(self, keeper: Keeper) -> None:
        """All others end."""
        place = PLACES.user / "hung"
        place.mkdir()
        init = keeper.tree / "init"
        with Peer(USER, init) as other, Peer(USER, init) as waiting, hung_mount(place, USER):
            waiting.begin(os.listdir, place)
            await_blocked(waiting.pid)
            began = time.monotonic()
            keeper.command(Down())
            assert keeper.wait() == 0
            assert time.monotonic() - began < WAITS["kill"] / 2
            assert ended(other.pid)
            assert not ended(waiting.pid, 0), "it should have survived SIGKILL, or this shows nothing"
            assert "do not end" in str(keeper.rest())

    def test_who_has_got_the_number_of_one_that_has_ended_is_left_alone(
        self, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with Peer(USER) as outside, Peer(USER, keeper.tree / "init") as inside:
            seen = iter([{outside.pid, inside.pid}])
            truly = delegated_cgroup.members
            monkeypatch.setattr(delegated_cgroup, "members", lambda place: next(seen, None) or truly(place))
            assert delegated_cgroup.end(keeper.tree, {keeper.pid}, Deadline(LIMIT))
            assert ended(inside.pid)
            assert not ended(outside.pid, 0.2)

    def test_down_is_handed_on_and_answered_by_the_end(self, keeper: Keeper) -> None:
        with connected() as connection:
            connection.sendall(len(exec_client.DOWN).to_bytes(exec_client.LENGTH, "big") + exec_client.DOWN)
            keeper.expect(DownRequested)
            keeper.command(Down())
            assert connection.recv(1) == b""
        assert keeper.wait() == 0

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
    def test_signals_do_not_end_it(self, keeper: Keeper, number: int) -> None:
        os.kill(keeper.pid, number)
        assert called("true")[0] == 0


class TestBeginning:
    def test_places_are_made_and_are_the_users_alone(self, keeper: Keeper) -> None:
        for place in (*PLACES.to_make, PLACES.socket):
            assert place.stat().st_mode & 0o77 == 0
            assert place.stat().st_uid == USER

    @pytest.mark.parametrize(
        ("spoil", "cause"),
        [
            ("tree", "cannot enter"),
            ("cgroup", "a container cannot have a cgroup of its own"),
            ("podman", "the-real-podman unshare true: exit code 1"),
        ],
    )
    def test_failures_have_a_cause_and_what_podman_said(
        self, scope: Path, mooring: Mooring, spoil: str, cause: str
    ) -> None:
        with Keeper(mooring, scope) as keeper:
            match spoil:
                case "tree":
                    os.chown(keeper.tree / "init" / "cgroup.procs", 0, 0)
                case "cgroup":
                    os.chown(keeper.tree, 0, 0)
                case "podman":
                    mooring.podman.write_text("#!/bin/sh\necho 'Error: no subuids' >&2\nexit 1\n")
            keeper.delegate()
            assert cause in keeper.expect(Failed).cause
            assert keeper.wait() == 1
            if spoil == "podman":
                assert "Error: no subuids" in keeper.expect(Log).text

    def test_too_few_open_files(self, scope: Path, mooring: Mooring) -> None:
        with Keeper(mooring, scope, first=few_files) as keeper:
            keeper.delegate()
            line = (
                "`ulimit -Hn` allows 1000 open files where 1024 are needed: "
                "ask the site to raise that limit of slurmd [M-KERNEL-12]"
            )
            assert keeper.expect(Failed).cause == line
            assert keeper.wait() == 1

    def test_too_few_cpus_for_a_cluster(self, scope: Path) -> None:
        """Of those that its processes may run on, whatever the machine has."""
        spec = {"enabled": True, "cluster": "kind", "version": None, "uplink": None}
        settled = {"image": "localhost/node:v1.36.3", "least_memory": 1}
        with Keeper(moored({"spec": spec, "kubernetes": settled}), scope, first=few_cpus) as keeper:
            keeper.delegate()
            cause = keeper.expect(Failed).cause
            line = r"this job has 1 CPU and \w+ on its node, .* 2 CPUs .*: add --cpus-per-task=2 \[M-KUBE-21\]"
            assert re.fullmatch(line, cause), cause
            assert keeper.wait() == 1

    def test_no_tree(self, scope: Path, mooring: Mooring) -> None:
        with Keeper(mooring, scope) as keeper:
            keeper.connection.close()
            assert keeper.wait() == 0


def few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (1000, 1000))


def few_cpus() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    # What is imported late is not to be had any more: the Python of the tests may be in root's home.
    importlib.import_module("moorage.user.cluster.first_node")


def connected() -> socket.socket:
    """As the user is with his keeper."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(LIMIT)
    os.seteuid(USER)
    try:
        connection.connect(os.fspath(PLACES.socket))
    finally:
        os.seteuid(0)
    return connection


def cpu_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_network_that_nobody_can_hold_is_a_failure_at_once(scope: Path) -> None:
    mooring = moored({"nodes": 2, "fabric": FABRIC})
    text = mooring.podman.read_text()
    mooring.podman.write_text(text.replace("    if [ ", '    [ "$1" != --rootless-netns ] || exit 1\n    if [ ', 1))
    with Keeper(mooring, scope) as keeper:
        keeper.delegate()
        assert "cannot hold the job's network open" in keeper.expect(Failed, LIMIT / 2).cause


def test_the_network_has_another_holder_after_one_that_was_killed(scope: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few times; each has the warden plug anew."""
    mooring = moored({"nodes": 2, "fabric": FABRIC})
    held = PLACES.user / "held"
    code = f"""
import os, socket, sys
sys.path.insert(0, {str(PACKAGES)!r})
from moorage.user.network import holder
keeper = socket.socket(fileno=0)
holder.hand_over(keeper)
with open({str(held)!r} + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename(file.name, {str(held)!r})
keeper.recv(1)
"""
    monkeypatch.setattr(holder_client, "HOLDER", (str(interpreter()), "-Ic", code))
    with Keeper(mooring, scope) as keeper:
        keeper.delegate()
        keeper.expect(PlugWanted)
        keeper.command(Plugged("fabric"))
        keeper.expect(Ready)
        for _ in range(MORE_HOLDERS):
            until(held.exists)
            kill_and_forget(held)
            assert keeper.expect(PlugWanted).what == "fabric"
        until(held.exists)
        kill_and_forget(held)
        assert "not held any more" in keeper.expect(Note).text


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def kill_and_forget(held: Path) -> None:
    pid = int(held.read_text())
    held.unlink()
    os.kill(pid, signal.SIGKILL)
