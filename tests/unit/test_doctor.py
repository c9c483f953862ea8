"""What `moorage doctor` prints, and what it ends with."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

import pytest

from moorage.cli import main
from moorage.finding import Finding
from moorage.verbs import doctor

FOUND = [
    Finding("sysctl", "kernel.keys.maxkeys is 200", "install config/sysctl.d"),
    Finding("podman", "Podman is not installed", "install podman 4.9 or newer"),
]


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def called(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(("doctor", *words))
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        ([], 0, "nothing is wrong\n"),
        (
            FOUND,
            1,
            "sysctl: kernel.keys.maxkeys is 200: install config/sysctl.d\n"
            "podman: Podman is not installed: install podman 4.9 or newer\n",
        ),
    ],
)
def test_a_line_for_each_fault(
    found: Sequence[Finding], code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "node_findings", lambda: iter(found))
    assert called() == code
    assert capsys.readouterr().out == said


@pytest.mark.usefixtures("root")
def test_json_has_all_of_a_finding(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "node_findings", lambda: iter(FOUND))
    assert called("--json") == 1
    assert [Finding(**one) for one in json.loads(capsys.readouterr().out)] == FOUND


@pytest.mark.usefixtures("root")
def test_an_unknown_user(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "node_findings", lambda: iter(()))
    assert called("--user", "no-such-user") == 1
    assert "there is no user 'no-such-user' on this node: name another one" in capsys.readouterr().err


def test_only_root_sees_all(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert called() == 1
    assert "run it with sudo" in capsys.readouterr().err
