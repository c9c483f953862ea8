"""The container that is a node: where it is, and what of it the job's script uses."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common.command import PATH, CommandFailed, run
from moorage.common.errors import MoorageError
from moorage.user.cluster import node_container

TREE = Path("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_17/step_0/user/task_1/k8s")


@pytest.mark.parametrize(
    ("below", "astray"),
    [
        ("k8s/0123abcd", False),
        ("k8s/0123abcd/init.scope", False),
        ("k8s/libpod-0123abcd", False),
        ("k8s/init", True),
        ("k8s/init/0123abcd", True),
        ("k8s", True),
        ("task_0", True),
        ("k8s-of-another/0123", True),
    ],
)
def test_astray(below: str, astray: bool) -> None:
    place = f"/system.slice/slurmstepd.scope/job_17/step_0/user/task_1/{below}"
    if below == "task_0":
        place = "/system.slice/slurmstepd.scope/job_17/step_0/user/task_0"
    assert node_container.strayed(f"3:cpu:/elsewhere\n0::{place}\n", TREE) is astray


def test_whose_cgroup_is_not_told_is_astray() -> None:
    assert node_container.strayed("", TREE)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root/usr/bin").mkdir(parents=True)
    return tmp_path / "root"


@pytest.mark.parametrize("target", [None, "kubernetes", "/usr/bin/kubernetes", "../bin/kubernetes"])
def test_kubectl_is_found_behind_links_of_the_container(root: Path, target: str | None) -> None:
    """The lab's is one program with many names; an absolute link means the container's root, and not ours."""
    program = root / "usr/bin" / ("kubernetes" if target else "kubectl")
    program.write_text("#!/bin/sh\n")
    if target:
        (root / "usr/bin/kubectl").symlink_to(target)
    assert node_container.resolved(root, node_container.KUBECTL).samefile(program)


def test_links_in_a_circle_have_an_end(root: Path) -> None:
    (root / "usr/bin/kubectl").symlink_to("kubectl")
    assert node_container.resolved(root, node_container.KUBECTL) == root / "usr/bin/kubectl"


def test_the_link_leads_into_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_container, "KUBECTL", "bin/sh")
    for _ in range(2):
        link = node_container.link_kubectl(os.getpid(), tmp_path / "bin")
        assert link == tmp_path / "bin/kubectl"
        assert str(link.readlink()).startswith(f"/proc/{os.getpid()}/root/")
        assert os.access(link, os.X_OK)
    assert (tmp_path / "bin").stat().st_mode & 0o777 == 0o700


def test_an_image_without_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_container, "KUBECTL", "no/such/kubectl")
    with pytest.raises(MoorageError, match="the node image has no no/such/kubectl"):
        node_container.link_kubectl(os.getpid(), tmp_path / "bin")
    assert not list((tmp_path / "bin").iterdir())


class TestPodmanOfKind:
    """What kind finds by the name of podman; the real one, and what enters a node, say what they are told."""

    pytestmark = pytest.mark.commands("bash", "podman")

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        for name in ("podman", "nsenter"):
            said = f'echo {name} "$@"; echo "says $SAYS"; exec cat'
            self.program(tmp_path / "real" / name, f"echo >>{tmp_path}/asked; {said}")
        (tmp_path / "kind").mkdir()
        node_container.write_wrapper(
            tmp_path / "kind/podman", tmp_path / "real/podman", ["--ip=10.0.0.1", "--more=a b"]
        )
        return tmp_path

    @staticmethod
    def program(path: Path, script: str) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    @staticmethod
    def asked(place: Path) -> int:
        return len((place / "asked").read_text().splitlines())

    @staticmethod
    def said(place: Path, *words: str) -> list[str]:
        environment = {"PATH": f"{place}/real:{PATH}", "SAYS": "the caller"}
        return run([place / "kind/podman", *words], env=environment, input="typed").stdout.splitlines()

    @pytest.fixture
    def node(self, place: Path) -> Iterator[int]:
        """Its first process, whose environment is all that a command in there gets."""
        environment = {"PATH": f"{place}/real:{PATH}", "SAYS": "two\nlines"}
        with subprocess.Popen(["bash", "-c", "read"], stdin=subprocess.PIPE, env=environment) as process:
            (place / "kind/process").write_text(str(process.pid))
            yield process.pid
            process.kill()

    def test_what_it_runs_gets_more_words(self, place: Path) -> None:
        said = self.said(place, "run", "--name", "node", "image")
        more = f"--pidfile={place}/kind/process --ip=10.0.0.1 --more=a b"
        assert said == [f"podman run {more} --name node image", "says the caller", "typed"]

    @pytest.mark.parametrize("words", [("network", "inspect", "a/b"), ("volume", "create"), ("logs", "exec")])
    def test_the_rest_is_podmans(self, place: Path, node: int, words: tuple[str, ...]) -> None:
        for _ in range(2):
            assert self.said(place, *words)[:2] == [f"podman {' '.join(words)}", "says the caller"]
        assert self.asked(place) == 2

    @pytest.mark.parametrize("words", [("ps", "-a", "--format={{.Names}}"), ("inspect", "--type=image", "a/b:c")])
    def test_of_a_node_that_is_there_nothing_is_asked_twice(self, place: Path, words: tuple[str, ...]) -> None:
        before = [self.said(place, *words) for _ in range(2)]
        (place / "kind/process").touch()
        after = [self.said(place, *words) for _ in range(2)]
        assert before == after == [[f"podman {' '.join(words)}", "says the caller", "typed"]] * 2
        assert self.asked(place) == 3

    @pytest.mark.parametrize("words", [("info", "--format", "json"), ("--version",)])
    def test_what_podman_is_is_asked_once(self, place: Path, words: tuple[str, ...]) -> None:
        assert self.said(place, *words) == self.said(place, *words)
        assert self.asked(place) == 1

    def test_what_has_no_room_in_the_name_of_a_file_is_asked_again(self, place: Path) -> None:
        for _ in range(2):
            assert self.said(place, "info", "x" * 300)[0] == f"podman info {'x' * 300}"
        assert self.asked(place) == 2

    @pytest.mark.parametrize("words", [("info",), ("inspect", "node")])
    def test_a_refusal_is_not_kept(self, place: Path, node: int, words: tuple[str, ...]) -> None:
        self.program(place / "real/podman", "echo half; exit 5")
        for _ in range(2):
            with pytest.raises(CommandFailed) as failed:
                self.said(place, *words)
            assert (failed.value.status, failed.value.stdout) == (5, "")

    @pytest.mark.parametrize("options", [(), ("--privileged",), ("--privileged", "-i")])
    def test_a_command_in_the_node_needs_no_podman(self, place: Path, node: int, options: tuple[str, ...]) -> None:
        said = self.said(place, "exec", *options, "node", "cp", "-r", "/dev/stdin", "a b")
        entered = "--user --mount --uts --ipc --net --pid --cgroup -- cp -r /dev/stdin a b"
        assert said == [f"nsenter --target={node} {entered}", "says two", "lines", "typed"]

    @pytest.mark.parametrize("options", [("--env", "A=b"), ("-e", "A=b"), ("--privileged", "--user=1")])
    def test_what_is_asked_for_in_other_ways_is_podmans(self, place: Path, node: int, options: tuple[str, ...]) -> None:
        said = self.said(place, "exec", *options, "node", "true")
        assert said == [f"podman exec {' '.join(options)} node true", "says the caller", "typed"]

    @pytest.mark.parametrize("process", [None, "", "4194305"])
    def test_a_node_that_is_not_there_is_podmans_to_tell_of(self, place: Path, process: str | None) -> None:
        if process is not None:
            (place / "kind/process").write_text(process)
        assert self.said(place, "exec", "node", "true") == ["podman exec node true", "says the caller", "typed"]

    def test_it_ends_as_the_command_does(self, place: Path, node: int) -> None:
        self.program(place / "real/nsenter", "echo no such file >&2; exit 3")
        with pytest.raises(CommandFailed, match="no such file") as failed:
            self.said(place, "exec", "node", "cat", "/nothing")
        assert failed.value.status == 3
