"""`run`: how commands are started, bounded and reported."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moorage.common import command
from moorage.common.command import Child, CommandFailed, CommandNotFound, CommandNotStarted, CommandTimeout, run
from moorage.common.deadline import Deadline
from moorage.common.events import Watch
from support.fakes import FakeCommand
from support.processes import ended

MIB = 1 << 20


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], list[str | Path]]:
    """Makes `run`'s argument list for some lines of shell."""

    def write(text: str) -> list[str | Path]:
        path = tmp_path / "script"
        path.write_text(text)
        return ["sh", path]

    return write


Script = Callable[[str], list[str | Path]]


@pytest.mark.commands("sh")
class TestEnding:
    def test_output_and_code_are_returned(self, script: Script) -> None:
        done = run(script("echo out; echo err >&2"))
        assert (done.code, done.stdout, done.stderr) == (0, "out\n", "err\n")

    def test_failure_keeps_command_code_and_output(self, script: Script) -> None:
        with pytest.raises(CommandFailed) as caught:
            run(script("echo out; echo first >&2; echo last >&2; exit 3"))
        failure = caught.value
        assert (failure.status, failure.stdout, failure.stderr) == (3, "out\n", "first\nlast\n")
        assert failure.argv[0] == "sh"
        assert failure.reason == "exit code 3"
        assert str(failure).endswith("script: exit code 3: last")

    @pytest.mark.parametrize(("ok", "code"), [((0, 1), 1), (range(256), 255), ((-15,), -15)])
    def test_other_codes_may_be_allowed(self, script: Script, ok: tuple[int, ...], code: int) -> None:
        assert run(script(f"exit {code}" if code >= 0 else f"kill {code} $$"), ok=ok).code == code

    def test_zero_may_be_a_failure(self, script: Script) -> None:
        with pytest.raises(CommandFailed, match="exit code 0"):
            run(script("exit 0"), ok=(1,))

    @pytest.mark.parametrize(("number", "name"), [(signal.SIGKILL, "SIGKILL"), (40, "signal 40")])
    def test_a_signal_is_named(self, script: Script, number: int, name: str) -> None:
        with pytest.raises(CommandFailed, match=f"killed by {name}") as caught:
            run(script(f"kill -{int(number)} $$"))
        assert caught.value.status == -number

    def test_undecodable_output_is_shown_not_lost(self, script: Script) -> None:
        assert run(script(r"printf 'a\377b'")).stdout == r"a\xffb"

    def test_message_is_one_bounded_line(self) -> None:
        with pytest.raises(CommandFailed) as caught:
            run(["sh", "-c", "printf 'two\nlines\n'; exit 1", "x" * 1000])
        assert len(str(caught.value).splitlines()) == 1
        assert len(str(caught.value)) < command.LONGEST_SHOWN + 50


@pytest.mark.commands("no-such-program", "plain", "script", "true", "lost")
class TestStarting:
    def test_missing_program_is_not_a_failed_one(self) -> None:
        with pytest.raises(CommandNotFound, match="no-such-program: no such program") as caught:
            run(["no-such-program"])
        assert not isinstance(caught.value, CommandFailed | CommandNotStarted)

    def test_missing_path(self, tmp_path: Path) -> None:
        with pytest.raises(CommandNotFound):
            run([tmp_path / "no-such-program"])

    def test_permission_denied(self, tmp_path: Path) -> None:
        (tmp_path / "plain").write_text("#!/bin/sh\n")
        with pytest.raises(CommandNotStarted, match="plain: Permission denied"):
            run([tmp_path / "plain"])

    def test_missing_interpreter_is_not_a_missing_program(self, tmp_path: Path) -> None:
        (tmp_path / "script").write_text("#!/no/such/interpreter\n")
        (tmp_path / "script").chmod(0o755)
        with pytest.raises(CommandNotStarted):
            run([tmp_path / "script"])

    def test_missing_directory_is_named(self) -> None:
        with pytest.raises(CommandNotStarted, match="/no/such/directory"):
            run(["true"], cwd=Path("/no/such/directory"))

    def test_log_that_cannot_be_opened_is_named(self) -> None:
        with pytest.raises(CommandNotStarted, match="/no/such/log: No such file"):
            run(["true"], log=Path("/no/such/log"))

    def test_our_own_path_is_not_searched(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        FakeCommand(tmp_path, "lost")
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        with pytest.raises(CommandNotFound):
            run(["lost"])
        assert run(["lost"], env={"PATH": str(tmp_path)}).code == 0

    def test_a_command_is_never_one_string(self) -> None:
        with pytest.raises(TypeError):
            run("true")


@pytest.mark.commands("env", "sh", "cat", "pwd")
class TestSurroundings:
    def test_environment_is_explicit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SECRET", "ours")
        environment = run(["env"], env={"GIVEN": "yes"}).stdout.splitlines()
        assert sorted(environment) == ["GIVEN=yes", "LC_ALL=C.UTF-8", f"PATH={command.PATH}"]

    def test_our_standard_input_is_not_read(self) -> None:
        reading, writing = os.pipe()
        kept = os.dup(0)
        try:
            os.dup2(reading, 0)
            os.write(writing, b"ours")
            assert run(["cat"], limit=10).stdout == ""
        finally:
            os.dup2(kept, 0)
            for descriptor in (reading, writing, kept):
                os.close(descriptor)

    @pytest.mark.parametrize("given", ["", "text\n", b"\x00bytes", "x" * 3 * MIB], ids=len)
    def test_standard_input_is_what_is_given(self, given: str | bytes) -> None:
        assert run(["cat"], input=given).stdout == (given if isinstance(given, str) else given.decode())

    def test_input_nobody_reads_does_no_harm(self, script: Script) -> None:
        assert run(script("exit 0"), input="x" * MIB).code == 0

    def test_directory(self, tmp_path: Path) -> None:
        assert run(["pwd"], cwd=tmp_path).stdout == f"{tmp_path}\n"

    def test_it_leads_a_session_of_its_own_so_no_terminal_reaches_it(self, script: Script) -> None:
        pid, session = run(script("read -r _ _ _ _ _ session _ </proc/$$/stat; echo $$ $session")).stdout.split()
        assert pid == session


@pytest.mark.commands("sh", "head", "yes", "echo")
class TestOutput:
    def test_much_of_both_streams(self, script: Script) -> None:
        done = run(script(f"head -c {3 * MIB} /dev/zero >&2; head -c {3 * MIB} /dev/zero"), limit=30)
        assert (len(done.stdout), len(done.stderr)) == (3 * MIB, 3 * MIB)

    def test_what_is_printed_last_is_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(command, "READ_SIZE", 1)
        assert run(["echo", "x" * 50_000]).stdout == "x" * 50_000 + "\n"

    def test_too_much_is_a_failure_not_a_cut(self) -> None:
        with pytest.raises(CommandFailed, match="more than 16 MiB of output") as caught:
            run(["yes"], limit=30)
        assert not isinstance(caught.value, CommandTimeout)
        assert len(caught.value.stdout) >= command.MOST_OUTPUT

    def test_log_takes_both_streams_in_order(self, script: Script, tmp_path: Path) -> None:
        log = tmp_path / "log"
        log.write_text("before\n")
        done = run(script("echo out; echo err >&2; echo out"), log=log)
        assert (done.stdout, done.stderr) == ("", "")
        assert log.read_text() == "before\nout\nerr\nout\n"

    def test_log_takes_any_amount(self, tmp_path: Path) -> None:
        run(["head", "-c", str(command.MOST_OUTPUT + 1), "/dev/zero"], log=tmp_path / "log")
        assert (tmp_path / "log").stat().st_size == command.MOST_OUTPUT + 1

    def test_failure_names_the_log_and_keeps_its_end(self, script: Script, tmp_path: Path) -> None:
        log = tmp_path / "log"
        with pytest.raises(CommandFailed, match=f"exit code 1, see {log}: the end") as caught:
            run(script(f"head -c {MIB} /dev/zero; echo; echo the end; exit 1"), log=log)
        assert caught.value.stdout.endswith("\nthe end\n")
        assert len(caught.value.stdout) == command.LOG_TAIL


@pytest.mark.commands("sh", "yes")
class TestLimit:
    @pytest.fixture(autouse=True)
    def _not_much_longer(self) -> Iterator[None]:
        started = time.monotonic()
        yield
        assert time.monotonic() - started < command.DYING

    def test_whole_group_is_killed(self, script: Script) -> None:
        with pytest.raises(CommandTimeout, match="killed after 1 s") as caught:
            run(script("sh -c 'sleep 600 & echo $! $$; wait' & echo $$; wait"), limit=1)
        pids = caught.value.stdout.split()
        assert len(pids) == 3
        assert all(ended(int(pid)) for pid in pids)

    def test_it_cannot_be_ignored(self, script: Script) -> None:
        with pytest.raises(CommandTimeout):
            run(script("trap '' TERM INT HUP; while :; do sleep 600; done"), limit=1)

    def test_output_so_far_is_kept(self, script: Script) -> None:
        with pytest.raises(CommandTimeout) as caught:
            run(script("echo out; echo err >&2; sleep 600"), limit=1)
        assert (caught.value.stdout, caught.value.stderr, caught.value.status) == ("out\n", "err\n", None)

    def test_it_holds_for_one_that_never_stops_printing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(command, "READ_SIZE", 1)
        with pytest.raises(CommandTimeout):
            run(["yes"], limit=1)

    def test_it_holds_with_a_log(self, script: Script, tmp_path: Path) -> None:
        with pytest.raises(CommandTimeout, match="last words"):
            run(script("echo last words; sleep 600"), limit=1, log=tmp_path / "log")

    def test_it_is_reported_where_the_process_may_not_be_killed(
        self, script: Script, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(group: int, number: int) -> None:
            raise PermissionError

        monkeypatch.setattr(os, "killpg", refuse)
        with pytest.raises(CommandTimeout):
            run(script("sleep 1"), limit=0.2)

    @pytest.mark.parametrize("launch", ["setsid sleep 600", "sleep 600"])
    def test_a_daemon_that_keeps_the_output_open_is_not_waited_for(self, script: Script, launch: str) -> None:
        done = run(script(f"{launch} & echo $!"), limit=60)
        os.kill(int(done.stdout), signal.SIGKILL)

    def test_nothing_is_left_when_we_are_interrupted(self, script: Script, tmp_path: Path) -> None:
        def interrupt(number: int, frame: object) -> None:
            raise KeyboardInterrupt

        previous = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 1)
        try:
            with pytest.raises(KeyboardInterrupt):
                run(script(f"sleep 600 & echo $! $$ >{tmp_path}/pids; wait"))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
        assert all(ended(int(pid)) for pid in (tmp_path / "pids").read_text().split())


@pytest.mark.commands("sh", "true", "no-such-program")
def test_no_descriptor_is_left_open(script: Script, tmp_path: Path) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors()
    run(["true"], input="some")
    for text in ("exit 1", "sleep 600"):
        with pytest.raises(CommandFailed):
            run(script(text), limit=0.5)
        with pytest.raises(CommandFailed):
            run(script(text), limit=0.5, log=tmp_path / "log")
    with pytest.raises(CommandNotFound):
        run(["no-such-program"], input="some")
    assert descriptors() == before


@pytest.mark.commands("sh", "no-such-program")
class TestChild:
    def test_it_runs_while_its_caller_waits_for_it(self, tmp_path: Path) -> None:
        with Watch() as watch, Child(["sh", "-c", "echo $MINE"], env={"MINE": "x"}, log=tmp_path / "log") as child:
            with watch.noticing(child.descriptor):
                assert watch.until(lambda: child.ended, Deadline(10))
            child.check()
        assert (tmp_path / "log").read_text() == "x\n"

    def test_a_bad_end_has_its_code_and_the_end_of_the_log(self, tmp_path: Path) -> None:
        with Watch() as watch, Child(["sh", "-c", "echo why >&2; exit 7"], env={}, log=tmp_path / "log") as child:
            with watch.noticing(child.descriptor):
                assert watch.until(lambda: child.ended, Deadline(10))
            with pytest.raises(CommandFailed, match=r"exit code 7, see .*log: why") as failed:
                child.check()
        assert failed.value.status == 7

    def test_it_does_not_outlive_the_block_nor_does_its_group(self, tmp_path: Path) -> None:
        log = tmp_path / "log"
        with Watch() as watch, Child(["sh", "-c", "sleep 600 & echo $$ $!; wait"], env={}, log=log) as child:
            assert watch.until(lambda: log.read_text().endswith("\n"), Deadline(10), lambda: None, 0.01)
            assert not child.ended
        assert all(ended(int(pid)) for pid in log.read_text().split())

    def test_no_such_program(self, tmp_path: Path) -> None:
        with pytest.raises(CommandNotFound), Child(["no-such-program"], env={}, log=tmp_path / "log"):
            pass

    def test_nothing_is_left_open(self, tmp_path: Path) -> None:
        before = len(list(Path("/proc/self/fd").iterdir()))
        with Child(["sh", "-c", "exit 0"], env={}, log=tmp_path / "log"):
            pass
        assert len(list(Path("/proc/self/fd").iterdir())) == before
