"""The site's hardware as data: its files, which jobs get it, and what is said of what is wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from moorage.common import typed_json
from moorage.common.hardware import Bind, Hardware, Resource
from moorage.node import features
from moorage.node.config import load
from moorage.node.factcache import Facts
from moorage.node.features import Feature, allotted, examine, outfit

EXAMPLES = Path(__file__).parents[3] / "config" / "features.d"
NULL, ZERO = "/dev/null", "/dev/zero"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    place = tmp_path / "features.d"
    place.mkdir()
    return place


def written(directory: Path, text: str, name: str = "gpu.yaml") -> Path:
    (directory / name).write_text(text)
    return directory / name


def test_without_a_directory_there_is_none(tmp_path: Path) -> None:
    assert examine(tmp_path / "none") == ([], [])


def test_they_lie_beside_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    assert features.place() == Path("/etc/moorage/features.d")
    monkeypatch.setattr(load, "PLACE", Path("/opt/site/moorage.yaml"))
    assert features.place() == Path("/opt/site/features.d")


def test_a_file_says_what_and_for_whom(directory: Path) -> None:
    path = written(
        directory,
        "gres: gpu\ndevices: [/dev/nvidia%, /dev/nvidiactl]\nbinds: ['/opt/lib', '/a:/b:rw']\nenvironment: [A=b c=d]\n",
    )
    ([feature], faults) = examine(directory)
    assert faults == []
    assert feature == Feature("gpu", ("/dev/nvidia%", "/dev/nvidiactl"), ("/opt/lib", "/a:/b:rw"), ("A=b c=d",))
    assert feature.name == "gpu"
    assert [(name, source) for name, _, source in feature.values()] == [
        ("gres", f"{path}:1"),
        ("devices", f"{path}:2"),
        ("binds", f"{path}:3"),
        ("environment", f"{path}:4"),
    ]


def test_in_the_order_of_their_names_and_no_others(directory: Path) -> None:
    for name in ("b.yaml", "a.yaml", ".hidden.yaml", "c.yml", "gpu.yaml.example", "a.yaml~"):
        written(directory, "devices: [/dev/null]\n", name)
    found, faults = examine(directory)
    assert ([one.name for one in found], faults) == (["a", "b"], [])


def test_a_file_is_parsed_once(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(directory, "devices: [/dev/null]\n")
    facts = Facts()
    first = examine(directory, facts)
    monkeypatch.setattr("moorage.node.config.load._parsed", lambda path: pytest.fail("it was parsed again"))
    assert examine(directory, facts) == first


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (
            "gres: tape\n",
            1,
            "which job has tape, only its devices tell: name them, with devices or cdi; of gpu alone Slurm",
        ),
        ("gres: [gpu]\n", 1, "give the name of a generic resource, as GresTypes= of slurm.conf has it"),
        ("gres:\n", 1, "gres is empty: give the name of a generic resource"),
        ("gres: gpu:a100\n", 1, "give the name of a generic resource"),
        ("device: [/dev/null]\n", 1, "there is no key device: did you mean devices?"),
        ("devices: /dev/null\n", 1, "give a list of devices below /dev, each once, such as [/dev/nvidia%]"),
        ("devices: [/dev/../etc/shadow]\n", 1, "give a list of devices"),
        ("devices: [/dev]\n", 1, "give a list of devices"),
        ("devices: [/proc/1/mem]\n", 1, "give a list of devices"),
        ("devices: ['/dev/a:/dev/b']\n", 1, "give a list of devices"),
        ("devices: [/dev/null, /dev/null]\n", 1, "each once"),
        ("\ndevices: [/dev/nvidia%]\n", 2, "% stands for a device that was allotted: name its resource"),
        ("cdi: nvidia.com/gpu=0\n", 1, "give a list of VENDOR/CLASS=NAME, each once, such as [nvidia.com/gpu=%]"),
        ("cdi: [gpu=0]\n", 1, "give a list of VENDOR/CLASS=NAME"),
        ("cdi: [../gpu=0]\n", 1, "give a list of VENDOR/CLASS=NAME"),
        ("cdi: ['nvidia.com/gpu=%']\n", 1, "% stands for a device that was allotted: name its resource"),
        ("gres: gpu\nbinds: [lib]\n", 2, "give a list of absolute paths"),
        ("binds: [/]\n", 1, "give a list of absolute paths"),
        ("binds: ['/a:/b:/c']\n", 1, "give a list of absolute paths"),
        ("binds: ['/a:ro']\n", 1, "give a list of absolute paths"),
        ("binds: ['/a,b']\n", 1, "give a list of absolute paths"),
        ("binds: ['/a/../b']\n", 1, "give a list of absolute paths"),
        ("environment: {A: b}\n", 1, "there is no key environment.A"),
        ("environment: [A]\n", 1, "give a list of NAME=VALUE"),
        ("environment: ['1A=b']\n", 1, "give a list of NAME=VALUE"),
        ('environment: ["A=b\\nc"]\n', 1, "give a list of NAME=VALUE"),
        ("[\n", 2, "this is not YAML"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(directory: Path, text: str, line: int, words: str) -> None:
    path = written(directory, text)
    _, (fault,) = examine(directory)
    assert str(fault).startswith(f"{path}:{line}: ")
    assert words in str(fault)


def test_everything_wrong_in_every_file_is_named(directory: Path) -> None:
    written(directory, "gres: tape\ndevices: [tape]\n", "a.yaml")
    written(directory, "gres: gpu\n", "Tape Drive.yaml")
    _, faults = examine(directory)
    assert len(faults) == 2
    assert "Tape Drive.yaml is not a name for a feature" in str(faults[0])


@pytest.mark.parametrize("what", ["features.d", "features.d/gpu.yaml"])
def test_what_others_can_write_is_refused(directory: Path, what: str) -> None:
    written(directory, "gres: gpu\n")
    (directory.parent / what).chmod(0o777)
    _, (fault,) = examine(directory)
    assert str(fault).startswith(f"{directory.parent / what} can be written by others than root: chown root: ")


@pytest.mark.parametrize(
    ("environ", "has"),
    [
        ({}, {}),
        ({"SLURM_JOB_GPUS": ""}, {}),
        ({"SLURM_JOB_GPUS": "NoDevFiles"}, {}),
        ({"SLURM_JOB_GPUS": "0"}, {"gpu": ["0"]}),
        ({"SLURM_JOB_GPUS": "0,2,11"}, {"gpu": ["0", "2", "11"]}),
        # Allotted, but as nothing that could stand in the name of a device.
        ({"SLURM_JOB_GPUS": "GPU-5a3c,../mem, 1"}, {"gpu": []}),
        # What a user can set, or a step is told.
        ({"SPANK_GPUS": "1", "SLURM_GPUS": "1", "CUDA_VISIBLE_DEVICES": "1", "SLURM_STEP_GPUS": "1"}, {}),
    ],
)
def test_what_slurm_has_allotted(environ: dict[str, str], has: dict[str, list[str]]) -> None:
    assert allotted(environ) == has


GPU = Feature("gpu", ("/dev/n%", NULL), ("/tmp:/gpu",), ("A=gpu",), path=Path("/f/gpu.yaml"))
EVERY = Feature(None, (ZERO, NULL), ("/:/root:rw",), ("A=every", "B=c"), path=Path("/f/every.yaml"))


@pytest.fixture(autouse=True)
def devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some more of them, /dev/n0 and /dev/n2."""
    real = Path.stat
    there = {Path("/dev/n0"), Path("/dev/n2")}
    monkeypatch.setattr(Path, "stat", lambda path, **how: real(Path(NULL) if path in there else path, **how))


@pytest.mark.parametrize(
    ("there", "has", "names", "hardware"),
    [
        ([GPU, EVERY], {}, ("every",), EVERY.hardware(())),
        (
            [GPU, EVERY],
            {"gpu": ["0", "2"]},
            ("gpu", "every"),
            Hardware(
                ("/dev/n0", "/dev/n2", NULL, ZERO),
                (Bind("/tmp", "/gpu"), Bind("/", "/root", writable=True)),
                ("A=gpu", "B=c"),
            ),
        ),
        (
            [GPU],
            {"gpu": []},
            ("gpu",),
            Hardware((NULL,), (Bind("/tmp", "/gpu"),), ("A=gpu",)),
        ),
    ],
)
def test_who_gets_what(
    there: list[Feature], has: dict[str, list[str]], names: tuple[str, ...], hardware: Hardware
) -> None:
    given = outfit(there, has)
    assert (given.names, given.hardware, given.faults, given.left_out) == (names, hardware, (), ())


def test_what_was_allotted_and_is_not_there_is_a_fault_of_the_nodes() -> None:
    given = outfit([GPU], {"gpu": ["0", "1"]})
    (fault,) = given.faults
    assert fault.fault == "node"
    assert fault.cause == "/f/gpu.yaml: this node has no /dev/n1, and this job was allotted gpu"
    assert given.hardware == Hardware()


@pytest.mark.parametrize(
    "feature",
    [
        Feature(None, ("/dev/no-such-device",)),
        Feature(None, (NULL, "/dev/no-such-device")),
        Feature(None, binds=("/no/such/place",)),
        # There, but no device.
        Feature(None, ("/dev/fd",)),
    ],
)
def test_what_is_for_all_and_not_there_is_left_out(feature: Feature) -> None:
    given = outfit([feature, EVERY], {})
    assert given.names == ("every",)
    assert len(given.left_out) == 1
    assert given.faults == ()


TAPE = Feature("tape", ("/dev/n%", NULL), ("/tmp:/tape",), ("A=tape",), path=Path("/f/tape.yaml"))


@pytest.mark.parametrize("has", [{}, {"gpu": ["0"]}])
def test_of_what_slurm_does_not_tell_every_job_has_all_until_its_cgroup_is_there(
    monkeypatch: pytest.MonkeyPatch, has: dict[str, list[str]]
) -> None:
    monkeypatch.setattr(features, "devices_like", lambda _: iter([Path("/dev/n2"), Path("/dev/n0")]))
    given = outfit([TAPE], has)
    assert (given.names, given.left_out, given.faults) == (("tape",), (), ())
    everything = Hardware(("/dev/n0", "/dev/n2", NULL), (Bind("/tmp", "/tape"),), ("A=tape",))
    # What lies beside them tells nothing.
    assert given.hardware == Hardware(resources=(Resource("tape", (("/dev/n0",), ("/dev/n2",)), everything),))
    assert given.hardware.given == {"tape": 2}


def test_a_device_without_a_number_is_one_of_its_resource() -> None:
    given = outfit([Feature("tape", (NULL, ZERO))], {})
    assert given.hardware.given == {"tape": 2}


@pytest.mark.parametrize(
    "feature", [TAPE, Feature("tape", ("/dev/none",)), Feature("tape", (NULL,), binds=("/no/such/place",))]
)
def test_a_node_without_such_a_resource_leaves_it_out(monkeypatch: pytest.MonkeyPatch, feature: Feature) -> None:
    monkeypatch.setattr(features, "devices_like", lambda _: iter([]))
    given = outfit([feature, EVERY], {})
    assert (given.names, given.faults, given.hardware.resources) == (("every",), (), ())
    assert len(given.left_out) == 1


def test_the_numbers_of_devices_are_read_from_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as they have one, and the same throughout."""
    for name in ("card1/tape1", "card10/tape10", "card2/tape3", "cardx/tapex", "twin77", "twin78"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    resource = Feature("tape", (f"{tmp_path}/card%/tape%",)).resource()
    assert resource.units == ((f"{tmp_path}/card1/tape1",), (f"{tmp_path}/card10/tape10",))
    assert Feature("tape", (f"{tmp_path}/twin%%",)).resource().units == ((f"{tmp_path}/twin77",),)


def test_the_first_of_two_for_one_place_counts() -> None:
    one = Hardware((NULL,), (Bind("/a", "/x"), Bind("/b", "/y")), ("A=1", "B=1"))
    other = Hardware((ZERO, NULL), (Bind("/c", "/x", writable=True), Bind("/d", "/z")), ("A=2", "C=2"))
    joined = Hardware.joined([one, other])
    assert joined.devices == (NULL, ZERO)
    assert joined.binds == (Bind("/a", "/x"), Bind("/b", "/y"), Bind("/d", "/z"))
    assert joined.environment == ("A=1", "B=1", "C=2")


@pytest.mark.parametrize(
    ("text", "bind"),
    [
        ("/a", Bind("/a", "/a")),
        ("/a:rw", Bind("/a", "/a", writable=True)),
        ("/a:/b", Bind("/a", "/b")),
        ("/a:/b:rw", Bind("/a", "/b", writable=True)),
    ],
)
def test_binds(text: str, bind: Bind) -> None:
    assert Bind.parse(text) == bind


def test_it_survives_as_data() -> None:
    hardware = Hardware.joined([GPU.hardware(["0"]), Hardware(resources=(TAPE.resource(),))])
    assert len(hardware.resources) == 1
    assert typed_json.decode(Hardware, json.loads(json.dumps(typed_json.encode(hardware)))) == hardware


def test_devices_that_may_not_be_opened_are_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path == NULL and mode == os.R_OK | os.W_OK)
    assert Hardware((NULL, ZERO, "/dev/none"), (Bind("/a", "/a"),)).openable() == Hardware((NULL,), (Bind("/a", "/a"),))


def test_what_goes_with_a_resource_is_for_who_may_open_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path in (NULL, "/dev/a1"))
    tapes = ("/dev/a0", "/dev/a1")
    tape = Resource("tape", tuple((one,) for one in tapes), Hardware((*tapes, NULL), (Bind("/t", "/t"),), ("T=1",)))
    disk = Resource("disk", (("/dev/b0",),), Hardware(("/dev/b0", NULL), (Bind("/d", "/d"),), ("D=1",)))
    found = Hardware((ZERO,), (Bind("/a", "/a"),), ("A=1",), (tape, disk)).openable()
    assert found.given == {"tape": 1}
    assert (found.devices, found.environment) == (("/dev/a1", NULL), ("A=1", "T=1"))
    assert found.binds == (Bind("/a", "/a"), Bind("/t", "/t"))


def test_one_of_several_devices_is_had_by_who_may_open_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one still; its number is in the names of all."""
    monkeypatch.setattr(features, "devices_like", lambda name: iter([Path(name.replace("%", n)) for n in "01"]))
    monkeypatch.setattr(os, "access", lambda path, mode: path in ("/dev/a0", "/dev/a1", "/dev/b1"))
    card = Feature("card", ("/dev/a%", "/dev/b%")).resource()
    assert Hardware(resources=(card,)).given == {"card": 2}
    assert Hardware(resources=(card,)).openable().given == {"card": 1}


def test_a_resource_of_several_files_is_counted_over_all_of_them() -> None:
    files = [Resource("tape", units, Hardware()) for units in ((("/dev/a0",), ("/dev/a1",)), (("/dev/b0",),))]
    assert Hardware(resources=tuple(files)).given == {"tape": 3}
    assert Hardware(resources=(files[0], files[0])).given == {"tape": 2}


def test_the_examples_are_right(directory: Path) -> None:
    for example in EXAMPLES.glob("*.example"):
        shutil.copy(example, directory / example.stem)
    ([gpu, infiniband, slingshot], faults) = examine(directory)
    assert faults == []
    assert (gpu.gres, infiniband.gres, slingshot.gres) == ("gpu", None, None)
    assert {name for name, _, _ in gpu.values()} == {"gres", "devices", "binds", "environment"}
    assert {name for one in (infiniband, slingshot) for name, _, _ in one.values()} == {"devices"}


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.example")), ids=lambda example: example.name)
def test_what_the_examples_leave_out_is_right_as_well(example: Path, directory: Path) -> None:
    """Once somebody takes the marks of a comment away."""
    text = re.sub(r"^# (?=\w+:$|\w+: \[| +- )", "", example.read_text(), flags=re.MULTILINE)
    assert text != example.read_text()
    written(directory, text, example.stem)
    assert examine(directory)[1] == []
