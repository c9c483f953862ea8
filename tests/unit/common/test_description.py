"""What a job is told of itself, or why it has nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moorage.common import job
from moorage.common.description import Mooring, Segment, Waits, WayOut, this_job
from moorage.common.errors import MoorageError, UserError
from moorage.common.hardware import Bind, Hardware

FIELDS: dict[str, Any] = {
    "job": 17,
    "restart": 1,
    "node": "n1",
    "spec": {"enabled": True, "cluster": "none", "version": None, "uplink": None},
    "uplink": "pasta",
    "podman": "/usr/bin/podman",
    "srun": "/opt/slurm/bin/srun",
    "wait": {"agents": 1, "podman": 2.5, "kill": 3, "others": 4},
    "versions": {"of": "no interest"},
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(job, "RUN", tmp_path)
    (tmp_path / "17").mkdir()
    return tmp_path / "17"


def test_all_of_it(run: Path) -> None:
    (run / "job.json").write_text(json.dumps(FIELDS))
    mooring = Mooring.of_this_job({"SLURM_JOB_ID": "17"})
    assert (mooring.job, mooring.restart, mooring.node, mooring.uplink) == (17, 1, "n1", "pasta")
    assert mooring.spec.cluster == "none"
    assert mooring.podman == Path("/usr/bin/podman")
    assert mooring.srun == Path("/opt/slurm/bin/srun")
    assert mooring.waits == Waits(1, 2.5, 3, 4)
    assert mooring.warden == run / "warden.sock"
    assert mooring.places.run == run


def test_hardware(run: Path) -> None:
    hardware = Hardware(("/dev/tape0",), (Bind("/opt/lib", "/opt/tape"),), ("A=b",))
    (run / "job.json").write_text(json.dumps(FIELDS | {"hardware": hardware.as_dict()}))
    assert Mooring.load(17).hardware == hardware
    (run / "job.json").write_text(json.dumps(FIELDS))
    assert Mooring.load(17).hardware == Hardware()


def test_a_job_of_one_node_shares_nothing(run: Path) -> None:
    (run / "job.json").write_text(json.dumps(FIELDS | {"fabric": None, "gateway": None}))
    mooring = Mooring.load(17)
    assert (mooring.nodes, mooring.place, mooring.fabric, mooring.gateway) == (1, 0, None, None)


def test_networks(run: Path) -> None:
    fabric = {"subnet": "10.89.0.0/16", "mtu": 1450, "hardware_address": "0a:00:00:11:00:02", "hosts": ["n1", "n2"]}
    gateway = {"address": "100.96.0.2/30", "router": "100.96.0.1", "mtu": 1500}
    (run / "job.json").write_text(json.dumps(FIELDS | {"nodes": 2, "place": 1, "fabric": fabric, "gateway": gateway}))
    mooring = Mooring.load(17)
    assert (mooring.nodes, mooring.place) == (2, 1)
    assert mooring.fabric == Segment("10.89.0.0/16", 1450, "0a:00:00:11:00:02", ("n1", "n2"))
    assert mooring.gateway == WayOut("100.96.0.2/30", "100.96.0.1", 1500)


@pytest.mark.parametrize("missing", ["srun", "wait"])
def test_without(run: Path, missing: str) -> None:
    (run / "job.json").write_text(json.dumps({name: value for name, value in FIELDS.items() if name != missing}))
    mooring = Mooring.load(17)
    assert mooring.srun is None or mooring.waits == Waits()


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
        ("[]", "not understood"),
        ("{}", "not understood"),
        (json.dumps(FIELDS | {"wait": {"other": 1}}), "not understood"),
        (json.dumps(FIELDS | {"podman": None}), "not understood"),
        (json.dumps(FIELDS | {"fabric": {"subnet": "10.89.0.0/16"}}), "not understood"),
        (json.dumps(FIELDS | {"gateway": {"address": "100.96.0.2/30"}}), "not understood"),
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
