"""What a job is told of itself, or why it has nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from moorage.common import job
from moorage.common.description import Kubernetes, Mooring, Segment, Waits, WayOut, this_job
from moorage.common.errors import MoorageError, UserError
from moorage.common.hardware import Bind, Hardware, Resource
from moorage.common.podman import Places
from moorage.common.spec import Spec
from support.described import described

GOLDEN = Path(__file__).with_name("golden")
FIELDS: dict[str, Any] = json.loads((GOLDEN / "job-1.json").read_text())
UNITS = (("/dev/tape0",), ("/dev/tape1", "/dev/tape1n"))
TAPES = Resource("tape", UNITS, Hardware(("/dev/tape0", "/dev/tape1")))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(job, "RUN", tmp_path)
    (tmp_path / "17").mkdir()
    return tmp_path / "17"


def test_schema_1_is_read(run: Path) -> None:
    """Jobs live through upgrades: what a release has written stays readable."""
    shutil.copy(GOLDEN / "job-1.json", run / "job.json")
    mooring = Mooring.of_this_job({"SLURM_JOB_ID": "17"})
    assert mooring == Mooring(
        job=17,
        restart=1,
        node="n2",
        spec=Spec(True, "kind", version="1.36", nodes=2, require="any"),
        podman=Path("/usr/bin/podman"),
        uplink="kernel",
        srun=Path("/opt/slurm/bin/srun"),
        waits=Waits(120, 60.5, 30, 480),
        kubernetes=Kubernetes("kindest/node:v1.36.3", "/srv/node.tar", etcd="disk", patience=2),
        places=Places(run),
        hardware=Hardware(("/dev/nvidiactl",), (Bind("/opt/lib", "/opt/tape", writable=True),), ("TAPE=1",), (TAPES,)),
        nodes=2,
        place=1,
        fabric=Segment("10.89.0.0/16", 1450, "0a:00:00:11:00:02", ("n1", "n2")),
        gateway=WayOut("100.96.0.2/30", "100.96.0.1", 1500),
        uplink_reason="the user asked for it",
        runtime="/usr/bin/crun",
        versions={"podman": "podman version 5.4.2"},
        subuids=((100000, 65536),),
        subgids=((100000, 65536), (300000, 65536)),
    )
    assert (mooring.hosts, mooring.warden) == (("n1", "n2"), run / "warden.sock")


def test_what_is_written_is_what_is_read(run: Path) -> None:
    assert json.loads(json.dumps(Mooring.from_dict(FIELDS, Places(run)).as_dict())) == FIELDS


def test_a_job_of_one_node(run: Path) -> None:
    (run / "job.json").write_text(json.dumps(described()))
    mooring = Mooring.load(17)
    assert (mooring.nodes, mooring.place, mooring.fabric, mooring.gateway) == (1, 0, None, None)
    assert (mooring.hosts, mooring.srun, mooring.waits) == (("n1",), None, Waits())


def test_before_there_were_numbers(run: Path) -> None:
    """Releases before schema 1 wrote the same fields, and "" for a program that is not there."""
    fields = {name: value for name, value in FIELDS.items() if name != "schema"} | {"srun": ""}
    (run / "job.json").write_text(json.dumps(fields))
    assert Mooring.load(17).srun is None


def test_what_a_newer_release_adds_is_ignored(run: Path) -> None:
    (run / "job.json").write_text(json.dumps(FIELDS | {"more": 1, "wait": FIELDS["wait"] | {"more": 1}}))
    assert Mooring.load(17).waits.others == 480


@pytest.mark.parametrize("name", [name for name in FIELDS if name != "schema"])
def test_every_field_has_to_be_there(run: Path, name: str) -> None:
    fields = {other: value for other, value in FIELDS.items() if other != name}
    (run / "job.json").write_text(json.dumps(fields))
    with pytest.raises(UserError, match=rf"job\.json is not understood \({name} is missing\)"):
        Mooring.load(17)


def test_a_refusal_is_the_error(run: Path) -> None:
    (run / "job.json").write_text(json.dumps(FIELDS))
    (run / "refusal").write_text("you have no subuids: ask for some\n")
    with pytest.raises(MoorageError) as caught:
        Mooring.load(17)
    assert str(caught.value) == "you have no subuids: ask for some"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "the Prolog has not prepared this node for job 17"),
        ("", "not understood"),
        ("[]", r"not understood \(the file is '\[\]' and not an object\)"),
        ("{}", r"not understood \(job is missing\)"),
        (json.dumps(FIELDS | {"schema": 2}), "its schema is 2, and Moorage .* reads schema 1"),
        (json.dumps(FIELDS | {"wait": {"other": 1}}), r"wait\.agents is missing"),
        (json.dumps(FIELDS | {"wait": None}), "wait is 'None' and not an object"),
        (json.dumps(FIELDS | {"podman": None}), "podman is 'None' and not of type str"),
        (json.dumps(FIELDS | {"nodes": True}), "nodes is 'True' and not of type int"),
        (json.dumps(FIELDS | {"kubernetes": FIELDS["kubernetes"] | {"etcd": "tape"}}), "etcd is 'tape' and not 'memor"),
        (json.dumps(FIELDS | {"subuids": [[1]]}), r"subuids\[0\] is '\[1\]' and not a list of 2"),
        (json.dumps(FIELDS | {"versions": {"podman": 5}}), r"versions\.podman is '5' and not of type str"),
        (json.dumps(FIELDS | {"fabric": {"subnet": "10.89.0.0/16"}}), r"fabric\.mtu is missing"),
        (json.dumps(FIELDS | {"gateway": {"address": "100.96.0.2/30"}}), r"gateway\.router is missing"),
    ],
)
def test_not_prepared(run: Path, content: str | None, said: str) -> None:
    if content is not None:
        (run / "job.json").write_text(content)
    with pytest.raises(UserError, match=said) as caught:
        Mooring.load(17)
    assert "journalctl" in caught.value.remedy


@pytest.mark.parametrize("environ", [{}, {"SLURM_JOB_ID": ""}, {"SLURM_JOB_ID": "x"}, {"SLURM_JOB_ID": "../17"}])
def test_no_job(environ: dict[str, str]) -> None:
    with pytest.raises(UserError, match="no job"):
        this_job(environ)
