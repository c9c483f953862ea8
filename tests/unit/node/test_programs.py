"""Programs and their versions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.node import programs
from moorage.node.factcache import Facts
from moorage.node.programs import Program, number
from support.fakes import FakeCommand

Fake = Callable[..., FakeCommand]


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("podman version 5.4.2", (5, 4, 2)),
        ("podman version 6.0.0-dev", (6, 0, 0)),
        ("crun version 1.21", (1, 21)),
        ("crun version 1.8.2\ncommit: 3f0bd5fec75500fc30e8bb7a1d4f4f9c7d3a0b2c", (1, 8, 2)),
        ("runc version 1.1.15+ds1", (1, 1, 15)),
        ("slirp4netns version 1.2.1", (1, 2, 1)),
        ("pasta 2025_05_03.587980c-2", (2025, 5, 3)),
        ("pasta 0.0~git20250503.587980c-2", (2025, 5, 3)),
        ("pasta 0^20240806.gee36266-2.el9.x86_64", (2024, 8, 6)),
        ("slurm-wlm 24.11.5", (24, 11, 5)),
        ("slurm 26.05.5", (26, 5, 5)),
        ("", ()),
        ("podman", ()),
    ],
)
def test_numbers(said: str, version: tuple[int, ...]) -> None:
    assert number(said) == version


class Node:
    """A node with everything that is needed, unless told otherwise."""

    def __init__(self, place: Path) -> None:
        self.mapper = place / "mapper"
        self.mapper.touch()
        self.mapper.chmod(0o4755)

    def __call__(self, **versions: str) -> dict[str, Program]:
        versions = {"podman": "podman version 5.4.2", "crun": "crun version 1.21", **versions}
        there = {name: Program(Path(f"/usr/bin/{name}"), version) for name, version in versions.items() if version}
        plain = {name: Program(Path(f"/usr/bin/{name}"), "") for name in programs.PRESENT}
        return there | plain | dict.fromkeys(programs.PRIVILEGED, Program(self.mapper, ""))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def found(there: dict[str, Program]) -> list[str]:
    return [str(finding) for finding in programs.check(there)]


@pytest.mark.parametrize(
    "versions",
    [
        {},
        {"podman": "podman version 4.9.0"},
        {"crun": "crun version 1.8.2"},
        {"crun": "", "runc": "runc version 1.1.15"},
    ],
)
def test_what_is_enough(node: Node, versions: dict[str, str]) -> None:
    assert found(node(**versions)) == []


@pytest.mark.parametrize(
    ("versions", "line"),
    [
        ({"podman": ""}, "Podman is not installed: install podman 4.9 or newer"),
        ({"podman": "podman version 4.3.1"}, "/usr/bin/podman is podman version 4.3.1: install podman 4.9 or newer"),
        (
            {"crun": "crun version 1.8.1"},
            "this node has crun version 1.8.1: install crun 1.8.2 or newer, or runc 1.1 or newer",
        ),
        ({"crun": ""}, "this node has no container runtime: install crun 1.8.2 or newer, or runc 1.1 or newer"),
        ({"crun": "", "runc": "runc version 1.0.0-rc92"}, "this node has runc version 1.0.0-rc92: install crun 1.8.2"),
    ],
)
def test_what_is_not(node: Node, versions: dict[str, str], line: str) -> None:
    (only,) = found(node(**versions))
    assert only.startswith(line)


@pytest.mark.parametrize("name", programs.PRESENT)
def test_what_must_be_there(node: Node, name: str) -> None:
    there = node()
    del there[name]
    (line,) = found(there)
    assert line.startswith(f"{name} is not installed: install the package that has it")


def test_id_mapping_takes_privilege(node: Node, tmp_path: Path) -> None:
    plain = tmp_path / "newuidmap"
    plain.touch(mode=0o755)
    assert found({**node(), "newuidmap": Program(plain, "")}) == [
        f"{plain} has no privilege to map ids: chmod u+s {plain}, or install it again"
    ]


@pytest.mark.parametrize(
    ("versions", "runtime"),
    [
        ({"runc": "runc version 1.1.15"}, "crun"),
        ({"crun": "crun version 1.8.1", "runc": "runc version 1.1.15"}, "runc"),
        ({"crun": "crun version 1.8.1"}, None),
    ],
)
def test_the_runtime_is_one_that_does_not_escape(node: Node, versions: dict[str, str], runtime: str | None) -> None:
    chosen = programs.runtime(node(**versions))
    assert (chosen.path.name if chosen else None) == runtime


@pytest.mark.parametrize(
    ("said", "old"), [("slurm 23.02.7", True), ("slurm 23.11.0", False), ("slurm-wlm 26.05.5", False), ("", False)]
)
def test_the_oldest_slurm(said: str, old: bool) -> None:
    assert bool(list(programs.slurm(said))) is old


def test_a_program_is_asked_once(fake_command: Fake) -> None:
    podman = fake_command("podman", stdout="podman version 5.4.2\nmore\n")
    facts = Facts()
    for _ in range(2):
        assert programs.version(podman.path, facts) == "podman version 5.4.2"
    assert podman.calls == [["--version"]]


def test_a_program_is_asked_where_nobody_has_put_anything_for_it(
    fake_command: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may be in a directory of a user's, and kubectl without a HOME reads .kube/kuberc of where it is."""
    monkeypatch.chdir(tmp_path)
    kubectl = fake_command("kubectl")
    kubectl.path.write_text("#!/bin/sh\npwd\n")
    assert programs.version(kubectl.path, Facts()) == "/"


def test_a_new_program_is_asked_again(fake_command: Fake) -> None:
    facts = Facts()
    programs.version(fake_command("podman", stdout="podman version 5.4.2").path, facts)
    assert programs.version(fake_command("podman", stdout="podman version 5.8.6").path, facts) == "podman version 5.8.6"


@pytest.mark.parametrize("build", ["2025_05_03.587980c", "0.0~git20250503.587980c-2+deb13u1", "0^20250503.g587980c-2"])
def test_a_program_that_says_nothing_has_its_version_in_its_file(fake_command: Fake, build: str) -> None:
    pasta = fake_command("pasta")
    with pasta.path.open("ab") as file:
        file.write(b"exit\n\0%s " + build.encode() + b": %s\0" + build.encode() + b"\nCopyright\n\0")
    assert programs.version(pasta.path, Facts()) == f"pasta {build}"
    assert number(f"pasta {build}") == (2025, 5, 3)


def test_a_program_that_says_nothing_at_all(fake_command: Fake) -> None:
    assert programs.version(fake_command("pasta").path, Facts()) == ""


def test_a_program_that_fails_has_no_version_and_is_asked_again(fake_command: Fake) -> None:
    facts = Facts()
    broken = fake_command("podman", stderr="cannot open shared object", code=127)
    assert [programs.version(broken.path, facts) for _ in range(2)] == ["", ""]
    assert len(broken.calls) == 2


def test_programs_are_found_in_our_path(fake_command: Fake, tmp_path: Path) -> None:
    podman = fake_command("podman")
    other = tmp_path / "slurm"
    other.mkdir()
    here = FakeCommand(other, "srun")
    assert programs.find("podman") == podman.path
    assert programs.find("srun", tmp_path / "missing", other) == here.path
    assert programs.find("no-such-program-anywhere") is None


@pytest.mark.usefixtures("bare_node")
def test_what_is_installed(fake_command: Fake) -> None:
    fake_command("podman", stdout="podman version 5.4.2")
    fake_command("slirp4netns", stdout="slirp4netns version 1.2.1")
    there = programs.installed(Facts())
    assert (there["podman"].version, there["slirp4netns"].version) == (
        "podman version 5.4.2",
        "slirp4netns version 1.2.1",
    )
