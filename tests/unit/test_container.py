"""The container that is a node: where it is, and what of it the job's script uses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moorage import container
from moorage.errors import MoorageError

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
    assert container.strayed(f"3:cpu:/elsewhere\n0::{place}\n", TREE) is astray


def test_whose_cgroup_is_not_told_is_astray() -> None:
    assert container.strayed("", TREE)


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
    assert container.resolved(root, container.KUBECTL).samefile(program)


def test_links_in_a_circle_have_an_end(root: Path) -> None:
    (root / "usr/bin/kubectl").symlink_to("kubectl")
    assert container.resolved(root, container.KUBECTL) == root / "usr/bin/kubectl"


def test_the_link_leads_into_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "KUBECTL", "bin/sh")
    for _ in range(2):
        link = container.link_kubectl(os.getpid(), tmp_path / "bin")
        assert link == tmp_path / "bin/kubectl"
        assert str(link.readlink()).startswith(f"/proc/{os.getpid()}/root/")
        assert os.access(link, os.X_OK)
    assert (tmp_path / "bin").stat().st_mode & 0o777 == 0o700


def test_an_image_without_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "KUBECTL", "no/such/kubectl")
    with pytest.raises(MoorageError, match="the node image has no no/such/kubectl"):
        container.link_kubectl(os.getpid(), tmp_path / "bin")
    assert not list((tmp_path / "bin").iterdir())
