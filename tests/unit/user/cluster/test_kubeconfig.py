"""A job's way to its cluster: for its script, and by the verbs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from moorage.cli import kubeconfig as verb
from moorage.cli import load
from moorage.common import job
from moorage.common.errors import UserError
from moorage.common.podman import Places
from moorage.common.podman import script as with_podman
from moorage.user.cluster import kubeconfig
from support.described import described

PLACES = Places(Path("/run/moorage/17"))
FIELDS = described(spec={"cluster": "kind"})


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(job, "RUN", tmp_path)
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    (tmp_path / "17" / "user").mkdir(parents=True)
    (tmp_path / "17" / "job.json").write_text(json.dumps(FIELDS))
    return tmp_path / "17"


def test_what_a_script_is_told() -> None:
    environ = with_podman({"PATH": "/bin", "KUBECONFIG": "/home/alice/.kube/other", "MINE": "x"}, PLACES)
    told = kubeconfig.script(environ, PLACES, "moorage-17", "https://127.0.0.1:41234")
    assert told["KUBECONFIG"] == "/run/moorage/17/user/kubeconfig"
    assert (told["K8S_CLUSTER_NAME"], told["K8S_CLUSTER_API"]) == ("moorage-17", "https://127.0.0.1:41234")
    assert told["K8S_PORT"] == "41234"
    assert told["MINE"] == "x"


@pytest.mark.parametrize(
    ("path", "after"),
    [
        ("/run/moorage/17/bin:/bin:/usr/bin", "/run/moorage/17/bin:/run/moorage/17/user/bin:/bin:/usr/bin"),
        ("/bin", "/run/moorage/17/user/bin:/bin"),
    ],
)
def test_the_clusters_kubectl_comes_before_any_other(path: str, after: str) -> None:
    assert kubeconfig.script({"PATH": path}, PLACES, "n", "https://h:1")["PATH"] == after


def test_the_verb_says_where_it_is(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "user/kubeconfig").write_text("apiVersion: v1\n")
    verb.main([])
    assert capsys.readouterr().out == f"{run}/user/kubeconfig\n"
    verb.main(["--show"])
    assert capsys.readouterr().out == "apiVersion: v1\n"


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("main", [lambda: verb.main([]), lambda: load.main(["/dev/null"])])
def test_no_cluster(main: Any) -> None:  # noqa: ANN401
    with pytest.raises(UserError, match="this job has no cluster on this node: submit it with --k8s=1"):
        main()


class Ended(BaseException):
    """What replaces a process never returns."""


class TestLoad:
    @pytest.fixture(autouse=True)
    def _stdin(self) -> Any:  # noqa: ANN401
        kept = os.dup(0)
        yield
        os.dup2(kept, 0)
        os.close(kept)

    def test_the_archive_goes_into_the_node(self, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        called: list[Any] = []

        def execve(*words: Any) -> None:  # noqa: ANN401
            called.extend([*words, os.read(0, 100)])
            raise Ended

        monkeypatch.setattr(os, "execve", execve)
        (run / "user/kubeconfig").touch()
        (tmp_path / "image.tar").write_bytes(b"an image")
        with pytest.raises(Ended):
            load.main([str(tmp_path / "image.tar")])
        program, argv, environ, given = called
        assert program == run / "bin/podman"
        assert argv[1:4] == ["exec", "--interactive", "moorage-17-control-plane"]
        assert argv[4:8] == ["ctr", "--namespace=k8s.io", "images", "import"]
        assert environ["XDG_RUNTIME_DIR"] == str(run / "user")
        assert given == b"an image"

    def test_on_several_nodes_every_one_gets_it(
        self, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        called: list[Any] = []

        def execve(*words: Any) -> None:  # noqa: ANN401
            called.extend([*words, os.read(0, 100)])
            raise Ended

        monkeypatch.setattr(os, "execve", execve)
        (run / "user/kubeconfig").touch()
        (tmp_path / "srun").touch()
        (tmp_path / "image.tar").write_bytes(b"an image")
        fabric = {"subnet": "10.89.0.0/16", "mtu": 1450, "hardware_address": "0a:", "hosts": ["n1", "n2"]}
        fields = json.loads((run / "job.json").read_text())
        several = {**fields, "nodes": 2, "place": 1, "fabric": fabric, "srun": str(tmp_path / "srun")}
        (run / "job.json").write_text(json.dumps(several))
        with pytest.raises(Ended):
            load.main([str(tmp_path / "image.tar")])
        program, argv, _, given = called
        assert program == tmp_path / "srun"
        assert {"--nodelist=n1,n2", "--ntasks=2", "--ntasks-per-node=1", "--input=all", "--overlap"} <= set(argv)
        assert argv[-4:] == ["moorage", "load", "--here", "-"]
        assert given == b"an image"
        called.clear()
        with pytest.raises(Ended):
            load.main(["--here", str(tmp_path / "image.tar")])
        assert called[1][1:4] == ["exec", "--interactive", "moorage-17-worker1"]
        called.clear()
        monkeypatch.setenv("SLURM_STEP_NUM_NODES", "2")
        with pytest.raises(Ended):
            load.main([str(tmp_path / "image.tar")])
        assert called[1][1:4] == ["exec", "--interactive", "moorage-17-worker1"]

    def test_no_archive(self, run: Path, tmp_path: Path) -> None:
        (run / "user/kubeconfig").touch()
        with pytest.raises(UserError, match=r"no\.tar cannot be read \(No such file"):
            load.main([str(tmp_path / "no.tar")])
