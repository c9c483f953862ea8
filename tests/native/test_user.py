"""What a child of root's keeps when it becomes a user: nothing."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from moorage.errors import MoorageError
from moorage.job import Job
from moorage.user import Identity, as_user
from support.processes import ended

USER = Identity(54321, 54322, (54322, 54400))
SET_INHERITABLE = 0x20080522
KEEP_CAPABILITIES = 8
SECURE_BITS = 28
NO_SETUID_FIXUP = 1 << 2

_libc = ctypes.CDLL(None, use_errno=True)


def status() -> str:
    lines = (line.partition(":") for line in Path("/proc/self/status").read_text().splitlines())
    return json.dumps({name: value.split() for name, _, value in lines})


@pytest.fixture
def found() -> dict[str, list[str]]:
    answer: dict[str, list[str]] = json.loads(as_user(USER, status))
    return answer


def test_ids(found: dict[str, list[str]]) -> None:
    assert (found["Uid"], found["Gid"]) == (["54321"] * 4, ["54322"] * 4)
    assert found["Groups"] == ["54322", "54400"]


def test_no_capabilities(found: dict[str, list[str]]) -> None:
    kinds = ("CapInh", "CapPrm", "CapEff", "CapAmb")
    assert {kind: int(found[kind][0], 16) for kind in kinds} == dict.fromkeys(kinds, 0)


def test_umask(found: dict[str, list[str]]) -> None:
    assert found["Umask"] == ["0077"]


def in_a_child(prepare: Callable[[], object], work: Callable[[], str]) -> str:
    """What `as_user` answers a root process that `prepare` has put into some state; the test itself is spared it."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            prepare()
            os.write(writing, as_user(USER, work).encode())
        except BaseException as error:
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


def test_inheritable_capabilities_and_secure_bits_are_not_handed_on() -> None:
    def prepare() -> None:
        header, sets = (ctypes.c_uint32 * 2)(SET_INHERITABLE, 0), (ctypes.c_uint32 * 6)()
        assert _libc.capget(header, sets) == 0
        sets[2], sets[5] = sets[1], sets[4]
        assert _libc.capset(header, sets) == 0
        assert _libc.prctl(SECURE_BITS, ctypes.c_ulong(NO_SETUID_FIXUP), 0, 0, 0) == 0
        assert int(json.loads(status())["CapInh"][0], 16)

    found = json.loads(in_a_child(prepare, status))
    assert [int(found[kind][0], 16) for kind in ("CapInh", "CapPrm", "CapEff")] == [0, 0, 0]


def test_root_cannot_be_had_back() -> None:
    def attempts() -> str:
        outcomes = []
        for attempt in (partial(os.setuid, 0), partial(os.setgid, 0), partial(os.setgroups, [0])):
            try:
                attempt()
            except PermissionError:
                outcomes.append("refused")
        return " ".join(outcomes)

    assert as_user(USER, attempts) == "refused refused refused"


def test_the_kernel_may_kill_it_for_memory() -> None:
    def adjustment() -> str:
        return Path("/proc/self/oom_score_adj").read_text().strip()

    # Below zero takes a capability that not every root has; it is the same file and the same write.
    assert in_a_child(lambda: Path("/proc/self/oom_score_adj").write_text("500"), adjustment) == "0"


def test_descriptors_are_closed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("root's")

    def descriptors() -> str:
        return json.dumps({entry.name: os.readlink(entry) for entry in os.scandir("/proc/self/fd")})  # noqa: PTH115

    def prepare() -> None:
        for number in (50, 1000):
            os.dup2(os.open(tmp_path / "secret", os.O_RDONLY), number)

    found = json.loads(in_a_child(prepare, descriptors))
    streams = {found.pop(number) for number in ("0", "1", "2")}
    assert streams == {"/dev/null"}
    pipes = [name for name in found.values() if name.startswith("pipe:")]
    assert len(pipes) == 1
    # The directory being listed is the other one.
    assert len(found) == 2
    assert not any("secret" in name for name in found.values())


def test_directory_environment_and_session() -> None:
    def surroundings() -> str:
        return json.dumps([str(Path.cwd()), dict(os.environ), os.getsid(0) == os.getpid()])

    assert json.loads(as_user(USER, surroundings)) == ["/", {}, True]


def test_it_acts_as_the_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "secret").write_text("root's")
    (tmp_path / "secret").chmod(0o600)
    with pytest.raises(MoorageError, match="as user 54321: PermissionError"):
        as_user(USER, (tmp_path / "secret").read_text)


def test_what_it_raises_is_told_in_one_line() -> None:
    def fail() -> str:
        raise ValueError("first\nsecond")

    with pytest.raises(MoorageError) as failed:
        as_user(USER, fail)
    assert str(failed.value) == "as user 54321: ValueError: first second"


@pytest.fixture
def alarm() -> Iterator[None]:
    """A limit that fails to hold ends the test and not the run."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("the limit did not hold"))
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("alarm")
def test_the_limit_holds_for_it_and_its_children() -> None:
    def hang() -> str:
        if os.fork():
            time.sleep(600)
        time.sleep(600)
        return ""

    started = time.monotonic()
    with pytest.raises(MoorageError, match=r"not done after 0\.3 s"):
        as_user(USER, hang, limit=0.3)
    assert time.monotonic() - started < 5
    left = [process.pid for process in psutil.process_iter(["uids"]) if process.info["uids"].real == USER.uid]
    assert all(ended(pid) for pid in left)


@pytest.mark.usefixtures("alarm")
def test_an_endless_answer_ends() -> None:
    with pytest.raises(MoorageError, match="as user 54321"):
        as_user(USER, lambda: "x" * (2 << 20), limit=5)


def test_identity_of_a_job() -> None:
    # Every node knows this account, and what groups it is in is the same for everybody who asks.
    job = Job(17, 0, 65534, 54322, "nobody", "n1", frozenset())
    identity = Identity.of(job)
    assert (identity.uid, identity.gid) == (65534, 54322)
    assert 54322 in identity.groups


def test_root_is_nobody_to_act_as() -> None:
    with pytest.raises(MoorageError, match="root's own jobs"):
        Identity.of(Job(17, 0, 0, 0, "root", "n1", frozenset()))
