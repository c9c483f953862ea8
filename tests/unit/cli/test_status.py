"""What `moorage status` says, and what `moorage down` says where there is nothing."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path

import pytest

from moorage import cli
from moorage.cli import down, status
from moorage.common import job
from moorage.common.errors import MoorageError, UserError
from support.described import described

USAGE = {"cpu_seconds": 75.0, "memory_peak": 414187520, "processes": 12}
REPORT = {"job": 17, "node": "n1", "state": "ready", "cluster": "none", "uplink": "pasta"}


@pytest.mark.parametrize(
    ("report", "line"),
    [
        ({"job": 17, "refused": "no subuids: ask for some"}, "job 17: refused: no subuids: ask for some"),
        (REPORT, "job 17 on n1: ready, cluster=none, pasta"),
        (
            REPORT | {"usage": USAGE},
            "job 17 on n1: ready, cluster=none, pasta, 1:15 of CPU time, at most 12 processes and 395 MiB of memory",
        ),
        (REPORT | {"usage": {"something": "else"}}, "job 17 on n1: ready, cluster=none, pasta"),
    ],
)
def test_a_job_in_a_line(report: dict[str, object], line: str) -> None:
    assert status.shown(report) == line


def test_its_help_says_that_it_shows_one_node() -> None:
    assert "It shows this node only." in status.parser().format_help()


class TestJobs:
    @pytest.fixture(autouse=True)
    def node(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(job, "RUN", tmp_path)
        monkeypatch.setattr(status, "USAGE_LIMIT", 0.2)
        monkeypatch.delenv("SLURM_JOB_ID", raising=False)
        for number in ("17", "9"):
            (tmp_path / number / "user").mkdir(parents=True)
            (tmp_path / number / "job.json").write_text(json.dumps(described(job=int(number))))
        (tmp_path / "facts.json").touch()
        (tmp_path / "20").mkdir()
        (tmp_path / "20" / "refusal").write_text("no")
        return tmp_path

    def test_all_of_mine(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.call(["status"]) == 0
        assert capsys.readouterr().out.splitlines() == [
            "job 9 on n1: not up, cluster=none, pasta",
            "job 17 on n1: not up, cluster=none, pasta",
        ]

    def test_none_of_others(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
        status.main([])
        assert capsys.readouterr().out == "you have no job with --k8s on this node\n"

    def test_in_a_job_its_own(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, node: Path
    ) -> None:
        monkeypatch.setenv("SLURM_JOB_ID", "17")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
            door.bind(os.fspath(node / "17" / "user" / "keeper.sock"))
            door.listen()
            status.main(["--json"])
        said = json.loads(capsys.readouterr().out)
        (report,) = said["jobs"]
        assert said["schema"] == 1
        assert (report["job"], report["state"]) == (17, "ready")

    def test_a_refused_one(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SLURM_JOB_ID", "20")
        status.main([])
        assert capsys.readouterr().out == "job 20: refused: no\n"

    def test_there_is_nothing_to_take_down(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SLURM_JOB_ID", "17")
        with pytest.raises(UserError, match="nothing up in this job"):
            down.main([])


class TestDown:
    @pytest.mark.parametrize("ends", ["closes", "stays"])
    def test_waits_until_the_keeper_is_gone(self, tmp_path: Path, ends: str) -> None:
        place = tmp_path / "door"
        heard: list[bytes] = []
        done = threading.Event()

        def keep() -> None:
            connection, _ = door.accept()
            with connection:
                heard.append(connection.recv(100))
                if ends == "stays":
                    done.wait(10)

        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
            door.bind(os.fspath(place))
            door.listen()
            keeper = threading.Thread(target=keep)
            keeper.start()
            if ends == "closes":
                down.take_down(place, 10)
            else:
                with pytest.raises(MoorageError, match=r"not torn down after 0\.5 s"):
                    down.take_down(place, 0.5)
            done.set()
            keeper.join(10)
        assert heard == [b"\0\0\0\4down"]
