"""What `moorage doctor` prints, and what it ends with."""

from __future__ import annotations

import errno
import json
import os
import pwd
import socket
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from moorage.cli import doctor, main
from moorage.common.errors import UserError
from moorage.doctor import examine as examination
from moorage.doctor.examine import Report
from moorage.node.finding import Finding

SYSCTL = Finding("sysctl", "kernel.keys.maxkeys is 200", "install config/sysctl.d")
PODMAN = Finding("podman", "Podman is not installed", "install podman 4.9 or newer")
ROOM = Finding("scratch", "1 MiB are free", "make room", kind="room")
LEFT = Finding("leftovers", "job 17 has not been cleaned up", "moorage sweep --now", kind="leftover")
ADVICE = Finding("store", "jobs copy", "move it", kind="advice")
NOBODY = pwd.getpwuid(65534).pw_name

Give = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch) -> Give:
    """Has the examination end in this report; returns how it is asked for."""

    def given(*findings: Finding, left_out: Sequence[str] = ()) -> list[dict[str, Any]]:
        asked: list[dict[str, Any]] = []

        def examine(_: object, **how: object) -> Report:
            asked.append(how)
            versions = {"podman": "podman version 5.4.2"}
            return Report(list(findings), list(left_out), versions, "copy (why): 1.9 GiB" if findings else "")

        monkeypatch.setattr(examination, "examine", examine)
        return asked

    return given


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def called(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(("doctor", *words))
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        ([], 0, ["nothing is wrong"]),
        (
            [SYSCTL, PODMAN],
            1,
            [
                "sysctl: kernel.keys.maxkeys is 200: install config/sysctl.d",
                "podman: Podman is not installed: install podman 4.9 or newer",
            ],
        ),
        ([ADVICE], 0, ["nothing is wrong", "store: advice: jobs copy: move it"]),
        (
            [ADVICE, PODMAN],
            1,
            ["podman: Podman is not installed: install podman 4.9 or newer", "store: advice: jobs copy: move it"],
        ),
        ([ROOM, ADVICE], 3, ["scratch: 1 MiB are free: make room", "store: advice: jobs copy: move it"]),
        ([LEFT], 3, ["leftovers: job 17 has not been cleaned up: moorage sweep --now"]),
        (
            [LEFT, ROOM],
            3,
            [
                "leftovers: job 17 has not been cleaned up: moorage sweep --now",
                "scratch: 1 MiB are free: make room",
            ],
        ),
        (
            [LEFT, PODMAN],
            1,
            [
                "podman: Podman is not installed: install podman 4.9 or newer",
                "leftovers: job 17 has not been cleaned up: moorage sweep --now",
            ],
        ),
        (
            [ROOM, PODMAN],
            1,
            # A health check drains the node with the first line.
            ["podman: Podman is not installed: install podman 4.9 or newer", "scratch: 1 MiB are free: make room"],
        ),
    ],
)
def test_a_line_for_each_finding(
    found: Sequence[Finding], code: int, said: list[str], give: Give, capsys: pytest.CaptureFixture[str]
) -> None:
    give(*found)
    assert called() == code
    assert capsys.readouterr().out.splitlines() == [
        *said,
        *(["images are shown by copy (why): 1.9 GiB"] if found else []),
    ]


def test_json_has_all_of_a_finding(give: Give, capsys: pytest.CaptureFixture[str]) -> None:
    give(SYSCTL, ADVICE, left_out=["store"])
    assert called("--json") == 1
    said = capsys.readouterr()
    assert json.loads(said.out) == {
        "schema": 1,
        "node": socket.gethostname(),
        "findings": [SYSCTL.as_dict(), ADVICE.as_dict()],
        "not_looked_at": ["store"],
        "versions": {"podman": "podman version 5.4.2"},
        "images": "copy (why): 1.9 GiB",
    }
    assert said.err == ""


def test_what_was_left_out_is_named(give: Give, capsys: pytest.CaptureFixture[str]) -> None:
    give(left_out=["scratch", "store"])
    assert called() == 0
    assert capsys.readouterr().err == "not looked at, because only root may: scratch, store\n"


@pytest.mark.parametrize(
    ("words", "how"),
    [
        ((), {"quick": False, "every_byte": False}),
        (("--quick",), {"quick": True, "every_byte": False}),
        (("--images",), {"quick": False, "every_byte": True}),
    ],
)
def test_how_deep_it_looks(words: Sequence[str], how: dict[str, bool], give: Give) -> None:
    asked = give()
    assert called(*words) == 0
    assert asked == [how]


def test_it_is_quick_or_reads_all(give: Give) -> None:
    asked = give()
    assert called("--quick", "--images") == 2
    assert asked == []


def test_an_unknown_user_is_one_more_finding(give: Give, capsys: pytest.CaptureFixture[str]) -> None:
    give(SYSCTL)
    assert called("--user", "no-such-user") == 1
    assert capsys.readouterr().out.splitlines()[:2] == [
        f"sysctl: {SYSCTL}",
        "user: there is no user 'no-such-user' on this node: give another name to --user [M-CHECK-1]",
    ]


@pytest.mark.parametrize(
    ("error", "last"),
    [
        (UserError("slurm.conf cannot be read", "run it with sudo"), "slurm.conf cannot be read: run it with sudo"),
        (ValueError("?"), "the doctor itself failed: report the lines above; this node was not checked"),
    ],
)
def test_a_crash_is_no_finding(
    error: Exception, last: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A health check must not drain a node for it."""

    def examine(*_: object, **__: object) -> Report:
        raise error

    monkeypatch.setattr(examination, "examine", examine)
    assert called("--quick") == 4
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[-1]) == ("", f"moorage: {last}")
    assert ("Traceback" in err) is isinstance(error, ValueError)


def test_a_report_that_cannot_be_printed_is_a_crash(give: Give, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, or a name that the locale has no letters for, must not drain a node either."""
    give(LEFT)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(doctor, "as_lines", refuse)
    assert called("--quick") == 4


@pytest.mark.parametrize(
    ("words", "euid", "users"),
    [
        ((), 0, []),
        ((), 65534, [NOBODY]),
        (("--quick",), 65534, []),
        (("--user", "alice", "--user", "bob"), 0, ["alice", "bob"]),
        (("--user", "alice"), 65534, ["alice"]),
        ((), 54321, []),
    ],
)
def test_whose_accounts_are_looked_at(
    words: Sequence[str], euid: int, users: list[str], give: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user without root wonders about himself, if he has an account here."""
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    looked_at: list[str] = []

    def user_findings(user: str) -> list[Finding]:
        looked_at.append(user)
        return []

    monkeypatch.setattr(doctor, "user_findings", user_findings)
    give(PODMAN)
    assert called(*words) == 1
    assert looked_at == users
