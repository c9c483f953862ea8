"""The access to a job's cluster: for its script, and by the verb."""

from __future__ import annotations

import json
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
