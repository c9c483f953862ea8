from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common import job
from moorage.common.job import Job
from moorage.root import journal
from moorage.root.journal import encoded, log

JOB = Job(17, 0, 1000, 1000, "alice", "node1", frozenset({"job_17"}))


@pytest.fixture
def ear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    monkeypatch.setattr(journal, "JOURNAL", tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(os.fspath(journal.JOURNAL))
        ear.settimeout(5)
        yield ear


def heard(ear: socket.socket) -> dict[str, str]:
    return dict(line.split("=", 1) for line in ear.recv(65536).decode().splitlines())


def test_a_job_is_found_by_its_fields(ear: socket.socket) -> None:
    log("mounted", phase="prolog", job=JOB, priority=journal.NOTICE, uplink="pasta")
    assert heard(ear) == {
        "SYSLOG_IDENTIFIER": "moorage",
        "MESSAGE": "mounted",
        "PRIORITY": "5",
        "PHASE": "prolog",
        "JOB_ID": "17",
        "UID": "1000",
        "UPLINK": "pasta",
    }


def test_sometimes_only_its_number_is_known(ear: socket.socket) -> None:
    log("gone", phase="epilog", job=17)
    entry = heard(ear)
    assert entry["JOB_ID"] == "17"
    assert "UID" not in entry


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("two\nlines", "two lines"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("x\0y", "x\\x00y"),
        ("é", "é"),
        ("PRIORITY=0\nJOB_ID=1", "PRIORITY=0 JOB_ID=1"),
        ("a" * 5000, "a" * journal.LONGEST),
    ],
)
def test_a_users_words_stay_one_message(ear: socket.socket, said: str, written: str) -> None:
    log(said, phase="end", job=JOB)
    entry = heard(ear)
    assert entry["MESSAGE"] == written
    assert (entry["PRIORITY"], entry["JOB_ID"]) == ("6", "17")


def test_the_code_of_a_line_is_a_field(ear: socket.socket) -> None:
    log("no room: free some [M-STORE-7]", phase="prolog", job=JOB)
    assert heard(ear)["CODE"] == "M-STORE-7"
    log("mounted", phase="prolog", job=JOB)
    assert "CODE" not in heard(ear)


def test_lines_in_a_field_make_no_other_fields() -> None:
    text = encoded({"A": "x\nJOB_ID=1", "B": 2})
    assert text == b"A\n" + (10).to_bytes(8, "little") + b"x\nJOB_ID=1\nB=2\n"


def test_without_a_journal_it_is_still_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(journal, "JOURNAL", tmp_path / "nothing")
    log("mounted", phase="prolog", job=JOB)
    log("swept", phase="sweep")
    assert capsys.readouterr().err == "moorage: job 17 prolog: mounted\nmoorage: sweep: swept\n"


def test_a_journal_that_does_not_read_keeps_nobody_waiting(
    ear: socket.socket, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(2000):
        log(f"{number}" + "x" * 1000, phase="end")
    assert "x" in capsys.readouterr().err, "the queue should have been full, or this shows nothing"


class TestLogOfAJob:
    """What its user is let read of root's words."""

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(job, "RUN", tmp_path)
        JOB.run.mkdir()
        return JOB.log

    def test_it_is_what_the_journal_has(self, place: Path, ear: socket.socket) -> None:
        place.touch()
        log("moun\nted\x1b[2J", phase="prolog", job=JOB)
        assert place.read_text().endswith("Z prolog: moun ted\\x1b[2J\n")
        assert place.read_text().count("\n") == 1
        assert heard(ear)["MESSAGE"] == "moun ted\\x1b[2J"

    def test_only_where_there_is_one(self, place: Path, ear: socket.socket) -> None:
        log("mounted", phase="prolog", job=JOB)
        assert not place.exists()
        place.touch()
        log("swept", phase="sweep", job=17)
        log("swept", phase="sweep")
        assert place.read_text() == ""

    def test_it_takes_so_much_and_no_more(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        place.touch()
        monkeypatch.setattr(journal, "MOST_OF_A_JOB", 1000)
        for _ in range(100):
            log("x" * 100, phase="end", job=JOB)
        assert 1000 <= place.stat().st_size < 1200

    def test_no_link_is_followed(self, place: Path, tmp_path: Path) -> None:
        (tmp_path / "victim").touch()
        place.symlink_to(tmp_path / "victim")
        log("mounted", phase="prolog", job=JOB)
        assert (tmp_path / "victim").read_text() == ""
