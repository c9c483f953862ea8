"""What vendors say of their devices: how much of it is taken, and from whom."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moorage.common.errors import UserError
from moorage.common.hardware import Bind, Hardware, Resource
from moorage.doctor import examine
from moorage.node import cdi, features
from moorage.node.checks import Scene
from moorage.node.config import load
from moorage.node.factcache import Facts
from moorage.node.features import Feature, outfit
from virtual import feature

NULL, ZERO, FULL = "/dev/null", "/dev/zero", "/dev/full"
SPEC = """\
cdiVersion: 0.6.0
kind: maker.com/gpu
containerEdits:
  deviceNodes:
    - path: /dev/full
  env: [MAKER=all, MAKER=all]
  mounts:
    - hostPath: /tmp
      containerPath: /maker
      options: [ro, nosuid, nodev, bind]
devices:
  - name: 0
    containerEdits:
      deviceNodes:
        - {path: /dev/null, hostPath: /dev/null, type: c, major: 1, minor: 3}
  - name: "1"
    containerEdits:
      deviceNodes: [{path: /dev/zero}]
      mounts: [{hostPath: /tmp, containerPath: /own}]
"""
COMMON = Hardware((FULL,), (Bind("/tmp", "/maker"),), ("MAKER=all",))
NAMES = ["maker.com/gpu=%"]


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    made, run = tmp_path / "cdi", tmp_path / "run"
    made.mkdir()
    monkeypatch.setattr(cdi, "DIRECTORIES", (made, run))
    return made, run


def known() -> dict[str, cdi.Device]:
    return cdi.known(NAMES, Facts())


def described(**edits: object) -> str:
    devices = [{"name": "0", "containerEdits": {"deviceNodes": [{"path": NULL}]}}]
    return json.dumps({"cdiVersion": "0.6.0", "kind": "maker.com/gpu", "devices": devices, "containerEdits": edits})


def test_where_nobody_has_told_of_anything_there_is_none() -> None:
    assert known() == {}


def test_devices_have_what_is_theirs_and_what_all_have(places: tuple[Path, Path]) -> None:
    (places[0] / "maker.yaml").write_text(SPEC)
    assert known() == {
        "maker.com/gpu=0": cdi.Device(Hardware((NULL,)), COMMON),
        "maker.com/gpu=1": cdi.Device(Hardware((ZERO,), (Bind("/tmp", "/own", writable=True),)), COMMON),
    }
    assert known()["maker.com/gpu=0"].hardware == Hardware((NULL, FULL), COMMON.binds, COMMON.environment)


def test_the_second_directory_overrules_the_first(places: tuple[Path, Path]) -> None:
    places[1].mkdir()
    (places[0] / "maker.yaml").write_text(SPEC)
    (places[1] / "maker.json").write_text(described(env=["A=b"], mounts=None))
    (places[1] / "notes.txt").write_text("no spec")
    assert known()["maker.com/gpu=0"] == cdi.Device(Hardware((NULL,)), Hardware(environment=("A=b",)))
    assert known()["maker.com/gpu=1"].common == COMMON


def test_of_other_kinds_nothing_is_asked(places: tuple[Path, Path]) -> None:
    (places[0] / "other.json").write_text(described(hooks=[{"path": "/bin/true"}]).replace("maker.com", "other.com"))
    assert known() == {}


def test_a_file_is_parsed_once(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    (places[0] / "maker.yaml").write_text(SPEC)
    facts = Facts()
    first = cdi.known(NAMES, facts)
    assert json.loads(json.dumps(facts.known)) == facts.known
    monkeypatch.setattr(cdi, "_parsed", lambda path: pytest.fail("it was parsed again"))
    assert cdi.known(NAMES, facts) == first
    assert cdi.known([], Facts()) == {}


MOUNT = {"hostPath": "/a", "containerPath": "/b"}


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ({"hooks": [{"hookName": "createContainer", "path": "/bin/sh"}]}, "make it anew without hooks"),
        ({"additionalGids": [0], "intelRdt": {"closID": "x"}}, "make it anew without additionalGids and intelRdt"),
        ({"deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/sda"}]}, "/dev/a has to be called as on the node"),
        ({"deviceNodes": [{"path": "/proc/kcore"}]}, "give a list of devices below /dev"),
        ({"deviceNodes": [{"path": "/dev/../etc/shadow"}]}, "give a list of devices below /dev"),
        ({"mounts": [MOUNT | {"containerPath": "/b:/c"}]}, "give a list of absolute paths"),
        ({"mounts": [MOUNT | {"hostPath": "a"}]}, "give a list of absolute paths"),
        ({"mounts": [MOUNT | {"hostPath": "/a/../b"}]}, "give a list of absolute paths"),
        ({"env": ["A=b\nC=d"]}, "give a list of NAME=VALUE"),
        ({"env": ["A", "B"]}, "give a list of NAME=VALUE"),
    ],
)
def test_what_jobs_cannot_have_is_refused_in_one_line(
    places: tuple[Path, Path], edits: Mapping[str, Any], words: str
) -> None:
    (places[0] / "maker.json").write_text(described(**edits))
    with pytest.raises(UserError) as refused:
        known()
    assert str(refused.value).startswith(f"{places[0] / 'maker.json'} asks for things that jobs cannot have: {words}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no JSON: make it anew"),
        ("[]", "is not a CDI description"),
        ("null", "is not a CDI description"),
        ('{"kind": "maker.com/gpu"}', "is not a CDI description (KeyError('devices'))"),
        ('{"kind": "maker.com/gpu", "devices": [{"name": "0"}]}', "is not a CDI description"),
        ('{"kind": "maker.com/gpu", "devices": 1}', "is not a CDI description"),
        ('{"kind": ["maker.com/gpu"], "devices": []}', "is not a CDI description"),
        (described(deviceNodes=["/dev/null"]), "is not a CDI description"),
        (described(mounts=[{"hostPath": "/a"}]), "is not a CDI description"),
        (described(env=[["A=b"]]), "is not a CDI description"),
    ],
)
def test_what_makes_no_sense_is_refused(places: tuple[Path, Path], text: str, words: str) -> None:
    (places[0] / "maker.json").write_text(text)
    with pytest.raises(UserError, match=r"maker\.json ") as refused:
        known()
    assert words in str(refused.value)


def test_what_others_can_write_is_refused(places: tuple[Path, Path]) -> None:
    (places[0] / "maker.yaml").write_text(SPEC)
    (places[0] / "maker.yaml").chmod(0o666)
    with pytest.raises(UserError, match="can be written by others than root: chown root: "):
        known()


GPU = Feature("gpu", cdi=("maker.com/gpu=%",), environment=("MAKER=ours",), path=Path("/f/gpu.yaml"))


def test_a_job_gets_those_that_it_was_allotted(places: tuple[Path, Path]) -> None:
    (places[0] / "maker.yaml").write_text(SPEC)
    given = outfit([GPU], {"gpu": ["0"]})
    # What the site says itself comes first.
    assert given.hardware == Hardware((NULL, FULL), (Bind("/tmp", "/maker"),), ("MAKER=ours",))
    assert outfit([GPU], {}).hardware == Hardware()
    (fault,) = outfit([GPU], {"gpu": ["7"]}).faults
    assert fault.cause == "/f/gpu.yaml: this node has no maker.com/gpu=7, and this job was allotted gpu"


def test_of_other_resources_a_job_has_what_is_the_devices_own(places: tuple[Path, Path]) -> None:
    (places[0] / "maker.yaml").write_text(SPEC)
    given = outfit([Feature("card", cdi=("maker.com/gpu=%",))], {})
    everything = Hardware(
        (NULL, FULL, ZERO), (Bind("/tmp", "/maker"), Bind("/tmp", "/own", writable=True)), COMMON.environment
    )
    assert given.hardware.resources == (Resource("card", ((NULL,), (ZERO,)), everything),)
    named = outfit([Feature("card", cdi=("maker.com/gpu=1",))], {})
    assert named.hardware.resources[0].units == ((ZERO,),)


def test_what_nobody_was_allotted_and_is_not_there_is_left_out() -> None:
    given = outfit([Feature("card", cdi=("maker.com/gpu=%",)), Feature(None, cdi=("maker.com/gpu=0",))], {})
    assert (given.names, given.faults, len(given.left_out)) == ((), (), 2)


def test_a_word_that_is_none_is_a_fault_of_the_node_for_jobs_that_need_it(places: tuple[Path, Path]) -> None:
    (places[0] / "maker.json").write_text(described(hooks=[{"path": "/bin/sh"}]))
    (fault,) = outfit([GPU], {"gpu": ["0"]}).faults
    assert (fault.check, fault.fault, fault.remedy) == (features.CHECK, "node", "make it anew without hooks")
    assert outfit([GPU], {}).faults == ()


def test_the_doctor_says_so_before_a_job_needs_it(
    places: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "PLACE", tmp_path / "moorage.yaml")
    features.place().mkdir()
    (features.place() / "gpu.yaml").write_text("gres: gpu\ncdi: ['maker.com/gpu=%']\n")
    (places[0] / "maker.json").write_text(described(hooks=[{"path": "/bin/sh"}]))
    scene = cast("Scene", SimpleNamespace(facts=Facts()))
    (fault,) = examine._features(scene)
    assert str(fault) == f"{places[0] / 'maker.json'} asks for things that jobs cannot have: make it anew without hooks"


def test_the_labs_device_is_the_same_by_its_site_and_by_its_vendor(
    places: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "devices_like", lambda _: iter([Path("/dev/lab0")]))
    (places[0] / "lab.yaml").write_text(feature.VENDORS.read_text())
    resources = []
    for fragment in (feature.FRAGMENT, feature.OF_VENDORS):
        (tmp_path / "lab.yaml").write_text(fragment.read_text())
        ([found], faults) = features.examine(tmp_path)
        assert faults == []
        resources.append(found.resource(features.vendors([found])))
    assert resources == [Resource("lab", (("/dev/lab0",),), Hardware(("/dev/lab0",), (), ("LAB=yes",)))] * 2
