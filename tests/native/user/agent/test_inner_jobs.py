"""What a moored job's script hands on to the jobs that are submitted in there: nothing that it was told itself."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common import podman
from moorage.common.description import Mooring
from moorage.user.agent import exec_client
from moorage.user.cluster import kubeconfig
from support.cgroups import members
from support.fakes import FakeCommand
from support.moored import PLACES, SHELL_PATH, Keeper, call, called, lines, moored
from support.node import node, prepared
from support.slurm import Slurm, installed

HIS = {"PATH": "/bin", "LC_ALL": "C", "SLURM_JOB_ID": "17", "MINE": "/run/moorage/17/scratch"}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("slurm"))


@pytest.fixture
def slurm(programs: Path, tmp_path: Path) -> Slurm:
    return Slurm(programs, programs / "moorage.so", FakeCommand(tmp_path, "moorage").path)


def told(environ: dict[str, str]) -> dict[str, str]:
    """The environment of a moored job's script, with a cluster."""
    return kubeconfig.script(podman.script(environ, PLACES), PLACES, "moorage-17", "https://127.0.0.1:6443")


@pytest.mark.parametrize("words", [("sbatch",), ("sbatch", "--k8s=cluster=none"), ("salloc",)])
def test_another_job_is_told_nothing_of_it(slurm: Slurm, words: tuple[str, ...]) -> None:
    done = slurm(*words, env=told(HIS))
    assert (done.code, done.stderr) == (0, "")
    assert done.kept("other") == HIS


def test_a_step_of_the_same_job_is_told_all(slurm: Slurm) -> None:
    assert slurm("srun", env=told(HIS)).kept("other") == told(HIS)


def test_what_a_user_has_set_himself_goes_along(slurm: Slurm) -> None:
    his = dict.fromkeys(told(HIS), "/home/alice/his")
    assert slurm("sbatch", env=his).kept("other") == his


@pytest.mark.parametrize(
    ("path", "left"),
    [
        ("/a:/run/moorage/17/bin:/run/moorage/17/user/bin:/b", "/a:/b"),
        ("/run/moorage/17/bin:/run/moorage/18/bin:/b", "/b"),
        ("/run/moorage/17/bin:/a::/b:", "/a::/b:"),
        ("/a:/run/moorage/17/bin", "/a"),
        ("/run/moorage/17/bin", ""),
        ("/a/run/moorage/17/bin:/run/moorage:/run/moorages/1", "/a/run/moorage/17/bin:/run/moorage:/run/moorages/1"),
        ("", ""),
    ],
)
def test_search_paths(slurm: Slurm, path: str, left: str) -> None:
    assert slurm("sbatch", env={"PATH": path}).kept("other")["PATH"] == left


class TestPodman:
    """That of the outer job, as another one finds it in a PATH that came to it by other ways."""

    @pytest.fixture
    def scope(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        with node(monkeypatch) as scope:
            prepared()
            yield scope

    @pytest.fixture
    def mooring(self, scope: Path) -> Mooring:
        return moored()

    @pytest.fixture
    def keeper(self, scope: Path, mooring: Mooring) -> Iterator[Keeper]:
        with Keeper(mooring, scope) as keeper:
            yield keeper.start()

    def environ(self, job: str) -> dict[str, str]:
        return told({**HIS, "PATH": f"/odd:{SHELL_PATH}", "SLURM_JOB_ID": job, "MINE": "x y"})

    def test_it_is_the_nodes_own(self, keeper: Keeper) -> None:
        code, out, _ = called("env", env=self.environ("18"))
        said = dict(line.split("=", 1) for line in out.splitlines())
        assert code == 0
        assert said["PATH"] == f"/odd:{SHELL_PATH}"
        assert said["MINE"] == "x y"
        assert "/run/moorage/" not in out

    def test_it_runs_outside_of_the_tree(self, keeper: Keeper) -> None:
        with call("sh", "-c", "echo $$; exec sleep 600", env=self.environ("18")) as process:
            assert int(next(lines(process))) == process.pid
            assert process.pid not in members(keeper.tree / "init")
            process.kill()

    def test_the_outer_job_keeps_its_own(self, keeper: Keeper) -> None:
        for environ in (self.environ("17"), {"PATH": SHELL_PATH}):
            assert int(called("sh", "-c", "echo $PPID", env=environ)[1]) == keeper.pid

    def test_signals_are_as_they_were(self, keeper: Keeper) -> None:
        _, out, _ = called("grep", "SigIgn", "/proc/self/status", env=self.environ("18"))
        assert int(out.split()[1], 16) & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)) == 0

    def test_what_cannot_be_run_is_said(self, mooring: Mooring) -> None:
        mooring.podman.unlink()
        code, _, err = called("ps", env=self.environ("18"))
        assert (code, err) == (exec_client.NOT_RUN, "the-real-podman: No such file or directory\n")
