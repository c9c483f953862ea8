"""The agents' step: the same whatever the job and its environment ask of steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.common import command
from moorage.common.errors import UserError
from moorage.user.run import srun

SRUN = Path("/opt/slurm/bin/srun")


@pytest.mark.parametrize(("nodes", "tasks"), [(1, 2), (4, 8)])
def test_two_tasks_on_every_node(nodes: int, tasks: int) -> None:
    argv = srun.argv(SRUN, 17, nodes, ["moorage", "agent"])
    assert argv[0] == "/opt/slurm/bin/srun"
    assert argv[-2:] == ["moorage", "agent"]
    assert {"--jobid=17", f"--nodes={nodes}", f"--ntasks={tasks}", "--ntasks-per-node=2"} < set(argv)


@pytest.mark.parametrize(
    "option",
    [
        *("--overlap", "--overcommit", "--mem=0", "--cpu-bind=none", "--mem-bind=none", "--resv-ports=0"),
        *("--mpi=none", "--kill-on-bad-exit=0", "--wait=0", "--no-kill"),
        *("--input=all", "--output=all", "--error=all", "--export=ALL", "--propagate=NONE", "--chdir=/"),
        *("--prolog=none", "--epilog=none", "--job-name=moorage"),
    ],
)
def test_given_explicitly(option: str) -> None:
    assert option in srun.argv(SRUN, 17, 1, ["x"])


@pytest.mark.parametrize(
    "option", ["--label", "--unbuffered", "--exclusive", "--exact", "--gres", "--pty", "--immediate"]
)
def test_never_given(option: str) -> None:
    """There is no way to give their opposite; without SLURM_ and SRUN_ variables they are off."""
    assert not [word for word in srun.argv(SRUN, 17, 1, ["x"]) if word.startswith(option)]


class TestEnvironment:
    @pytest.mark.parametrize(
        "name",
        [
            *("SLURM_NTASKS", "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_MEM_PER_CPU", "SLURM_HINT"),
            *("SLURM_NTASKS_PER_NODE", "SLURM_TRES_PER_TASK", "SLURM_GRES", "SLURM_GPUS", "SLURM_LABELIO"),
            *("SLURM_UNBUFFEREDIO", "SLURM_EXPORT_ENV", "SLURM_KILL_BAD_EXIT", "SLURM_WAIT", "SLURM_CONTAINER"),
            *("SLURM_SPANK_K8S", "SLURM_SPANK__SLURM_SPANK_OPTION_moorage_k8s", "_SLURM_SPANK_OPTION_moorage_k8s"),
            *("SPANK_K8S", "SLURM_HET_SIZE", "PMIX_RANK", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH"),
        ],
    )
    def test_shapes_no_step(self, name: str) -> None:
        assert name not in srun.environment({name: "x", "SLURM_JOB_ID": "17"})

    @pytest.mark.parametrize(
        "name", ["SLURM_JOB_ID", "SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURM_WORKING_CLUSTER", "HOME"]
    )
    def test_names_the_job(self, name: str) -> None:
        assert srun.environment({name: "x"})[name] == "x"

    def test_the_users_proxies_are_those_of_the_clusters_nodes(self) -> None:
        """kind and whoever makes the other nodes read them from there."""
        upper = {"HTTP_PROXY": "http://a:1", "HTTPS_PROXY": "http://b:2", "NO_PROXY": "here"}
        given = upper | {name.lower(): value for name, value in upper.items()}
        assert srun.environment(given | {"ALL_PROXY": "x"}) == {"PATH": command.PATH, **given}

    def test_path_is_not_the_users(self) -> None:
        assert srun.environment({"PATH": "/home/alice/bin"})["PATH"] == command.PATH


class TestNodes:
    @pytest.mark.parametrize("number", [1, 12])
    def test_as_slurm_says(self, number: int) -> None:
        assert srun.nodes({"SLURM_JOB_NUM_NODES": str(number)}) == number

    @pytest.mark.parametrize("text", ["", "0", "-1", "1-2", "many"])
    def test_not_understood(self, text: str) -> None:
        with pytest.raises(UserError, match="SLURM_JOB_NUM_NODES"):
            srun.nodes({"SLURM_JOB_NUM_NODES": text})

    def test_heterogeneous(self) -> None:
        with pytest.raises(UserError, match="this job is heterogeneous, and --k8s is for jobs of one part"):
            srun.nodes({"SLURM_JOB_NUM_NODES": "1", "SLURM_HET_SIZE": "2"})


class TestSrun:
    @pytest.fixture
    def places(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, Path]:
        """Known to the Prolog, in the fixed PATH, in the user's PATH."""
        places = tuple(tmp_path / name / "srun" for name in ("known", "fixed", "users"))
        for place in places:
            place.parent.mkdir()
            place.touch(0o755)
        monkeypatch.setattr(command, "PATH", str(places[1].parent))
        return places[0], places[1], places[2]

    @pytest.mark.parametrize(("there", "found"), [({0, 1, 2}, 0), ({1, 2}, 1), ({2}, 2)])
    def test_the_first_that_is_there(self, places: tuple[Path, ...], there: set[int], found: int) -> None:
        for number, place in enumerate(places):
            if number not in there:
                place.unlink()
        assert srun.srun(places[0], {"PATH": str(places[2].parent)}) == places[found]

    def test_nowhere(self, places: tuple[Path, ...]) -> None:
        for place in places:
            place.unlink()
        with pytest.raises(UserError, match="no srun"):
            srun.srun(None, {})


def test_a_step_that_heeds_no_other_signal_is_ended_by_its_number() -> None:
    argv = srun.end_argv(SRUN, 17, "3")
    assert argv == ["/opt/slurm/bin/scancel", "--quiet", "--signal=KILL", "17.3"]
