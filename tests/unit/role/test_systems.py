"""What the role would do on each distribution, by facts that Ansible has told: no more than that is known of most."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from moorage.node import programs
from support.fakes import FakeCommand
from support.role import Host, read

TAKEN = (
    "debian-13",
    "debian-unstable",
    "ubuntu-24.04",
    "rhel-9.6",
    "almalinux-9.6",
    "centos-stream-9",
    "rocky-10.0",
    "centos-stream-10",
)


def named(file: str, name: str) -> dict[str, Any]:
    """A task of the role's."""
    (task,) = (task for task in read(file) if task["name"] == name)
    found: dict[str, Any] = task
    return found


def holds(host: Host, task: Mapping[str, Any]) -> bool:
    return all(host[condition] for condition in task["when"])


def test_what_is_too_old_is_so_by_the_same_numbers_as_for_the_doctor() -> None:
    assert (programs.OLDEST["podman"], programs.OLDEST["crun"]) == ((4, 9), (1, 8, 2))
    assert "4.9 and 1.8.2" in read("vars/main/systems.yml")["moorage_systems"]["Debian"]["older"]


@pytest.mark.parametrize(
    ("facts", "shim", "python", "has", "lacks"),
    [
        ("debian-13", "/usr/lib/x86_64-linux-gnu/slurm-wlm/moorage.so", "python3", "uidmap", "container-selinux"),
        ("debian-unstable", "/usr/lib/x86_64-linux-gnu/slurm-wlm/moorage.so", "python3", "uidmap", "passt-selinux"),
        ("ubuntu-24.04", "/usr/lib/x86_64-linux-gnu/slurm-wlm/moorage.so", "python3", "slirp4netns", "shadow-utils"),
        ("rhel-9.6", "/usr/lib64/slurm/moorage.so", "python3.11", "shadow-utils-subid", "uidmap"),
        ("almalinux-9.6", "/usr/lib64/slurm/moorage.so", "python3.11", "slirp4netns", "uidmap"),
        ("centos-stream-9", "/usr/lib64/slurm/moorage.so", "python3.11", "slirp4netns", "uidmap"),
        ("rocky-10.0", "/usr/lib64/slurm/moorage.so", "python3", "container-selinux", "slirp4netns"),
        ("centos-stream-10", "/usr/lib64/slurm/moorage.so", "python3", "container-selinux", "slirp4netns"),
    ],
)
def test_names_and_places(facts: str, shim: str, python: str, has: str, lacks: str) -> None:
    host = Host(facts)
    assert (host["moorage_shim"], host["moorage_python"]) == (shim, python)
    assert any(package.startswith(python) for package in host["moorage_python_packages"])
    packages = host["moorage_packages"]
    assert has in packages
    assert lacks not in packages
    assert {"podman", "crun", "netavark", "passt"} <= set(packages)
    assert len(packages) == len(set(packages))
    assert host["moorage_plugstack_line"] == f"required {shim} moorage=/opt/moorage/bin/moorage"


@pytest.mark.parametrize("facts", TAKEN)
def test_a_site_has_the_last_word(facts: str) -> None:
    host = Host(facts, moorage_packages=["podman"], moorage_slurm_plugins="/opt/slurm/lib/slurm")
    assert (host["moorage_packages"], host["moorage_shim"]) == (["podman"], "/opt/slurm/lib/slurm/moorage.so")


@pytest.mark.parametrize(
    ("facts", "labelled"), [("debian-13", False), ("ubuntu-24.04", False), ("rhel-9.6", True), ("rocky-10.0", True)]
)
def test_selinux_is_told_where_it_is(facts: str, labelled: bool) -> None:
    (task,) = (task for task in read("tasks/configure.yml") if "selinux.yml" in str(task))
    assert Host(facts)[task["when"]] is labelled


@pytest.mark.parametrize(
    ("last", "changed"),
    [
        ("0 upgraded, 0 newly installed, 0 to remove and 3 not upgraded.", False),
        ("0 upgraded, 0 newly installed, 1 reinstalled, 0 to remove and 3 not upgraded.", True),
        ("1 upgraded, 0 newly installed, 0 to remove and 3 not upgraded.", True),
        ("10 upgraded, 0 newly installed, 0 to remove and 3 not upgraded.", True),
        ("0 upgraded, 10 newly installed, 0 to remove and 3 not upgraded.", True),
    ],
)
def test_what_apt_says_of_packages_that_were_brought(last: str, changed: bool) -> None:
    task = named("tasks/package_files.yml", "Install packages of Debian")
    said = {"stdout": f"Reading package lists...\n{last}\n"}
    nothing_new = task["vars"]["moorage_nothing_new"]
    assert Host("debian-13", moorage_apt=said, moorage_nothing_new=nothing_new)[task["changed_when"]] is changed


@pytest.mark.parametrize("facts", ["rhel-9.6", "almalinux-9.6", "rocky-10.0"])
def test_what_selinux_is_told(facts: str) -> None:
    """Places of ours are like those of Podman's and of logins, whose labels its policy knows."""
    task = named("tasks/selinux.yml", "Say what they are like")
    host = Host(facts)
    like = {item["target"]: item["like"] for item in host[task["loop"].strip("{ }")]}
    assert like == {
        "/run/moorage": "/run/user",
        "/var/lib/moorage/store": "/var/lib/containers/storage",
        "/var/lib/moorage/scratch": "/var/lib/containers/storage",
    }
    told = Host(facts, item=host["moorage_labels"][1]).says(task["community.general.sefcontext"])
    assert told == {
        "target": "/var/lib/moorage/store",
        "substitute": "/var/lib/containers/storage",
        "state": "present",
    }


def test_every_variable_is_described_and_has_a_default() -> None:
    assert set(read("meta/argument_specs.yml")["argument_specs"]["main"]["options"]) == set(read("defaults/main.yml"))


@pytest.mark.parametrize(
    ("variables", "drains"),
    [
        ({}, True),
        ({"moorage_duties": ["login"]}, False),
        ({"moorage_here": {"stat": {"exists": False}}}, False),
        ({"moorage_sinfo": {"stdout": "drained main"}}, False),
        ({"moorage_sinfo": {"stdout": "down* main"}}, False),
        ({"moorage_sinfo": {"stdout": ""}}, False),
        ({"moorage_sinfo": {"stdout": "mixed main\nmixed spare"}}, True),
    ],
)
def test_a_node_is_drained_only_if_it_takes_jobs_and_has_moorage(variables: dict[str, object], drains: bool) -> None:
    known = {"moorage_here": {"stat": {"exists": True}}, "moorage_sinfo": {"stdout": "idle main"}}
    assert Host("debian-13", **{**known, **variables})["moorage_drains"] is drains


@pytest.mark.parametrize(
    ("said", "ours"),
    [
        (["drained moorage is being uninstalled "], True),
        (["draining moorage is being uninstalled"], True),
        (["drained* moorage is being uninstalled"], True),
        (["drained the fan is broken"], False),
        (["drained moorage is being uninstalled by hand"], False),
        (["down* moorage is being uninstalled"], False),
        (["idle none"], False),
        ([], False),
    ],
)
def test_a_node_is_resumed_only_while_our_reason_is_its_reason(said: list[str], ours: bool) -> None:
    assert Host("debian-13", moorage_why={"stdout_lines": said})["moorage_is_ours"] is ours
    assert Host("debian-13", moorage_why={"skipped": True})["moorage_is_ours"] is False


def test_what_failed_half_way_stays_drained() -> None:
    """Resumed where nothing has been removed yet, and after all has been."""
    first, remove, last = read("tasks/uninstall.yml")[-3:]
    resume = "resume.yml"
    assert (first["rescue"][0]["ansible.builtin.include_tasks"], "always" in first) == (resume, False)
    assert (remove["ansible.builtin.include_tasks"], last["ansible.builtin.include_tasks"]) == ("remove.yml", resume)


@pytest.mark.parametrize(
    ("site", "left_alone"),
    [
        ({"moorage_duties": ["controller"], "moorage_partitions": ["gpu"]}, True),
        ({"moorage_duties": ["login"], "moorage_partitions": ["gpu"]}, True),
        ({"moorage_duties": ["compute"], "moorage_partitions": ["gpu"]}, False),
        ({"moorage_duties": ["controller"]}, False),
        ({"moorage_duties": ["controller"], "moorage_partitions": ["gpu"], "moorage_state": "present"}, False),
    ],
)
def test_what_serves_other_partitions_stays(site: dict[str, object], left_alone: bool) -> None:
    task = named("tasks/main.yml", "Leave all but compute nodes as they are, where only some partitions lose it")
    assert holds(Host("debian-13", **({"moorage_state": "absent"} | site)), task) is left_alone


@pytest.mark.parametrize(
    ("state", "partitions", "slurmd", "refused"),
    [
        ("idle main", [], "   Active: active (running)", False),
        ("", [], "   Active: active (running)", True),
        ("", ["main"], "", True),
        ("", [], "   Active: inactive (dead)", False),
        ("", [], "", False),
    ],
)
def test_a_node_that_slurm_does_not_know(state: str, partitions: list[str], slurmd: str, refused: bool) -> None:
    task = named("tasks/node.yml", "Refuse where Slurm does not say what this node is")
    said = {"moorage_sinfo": {"stdout": state}, "moorage_slurmd": {"stdout": slurmd}}
    host = Host("debian-13", **said, moorage_partitions=partitions, moorage_node="n7")
    assert (host[task["when"]] and not host[task["ansible.builtin.assert"]["that"]]) is refused
    assert "n7" in host.says(task["ansible.builtin.assert"]["fail_msg"])


def test_what_slurm_says_of_a_node() -> None:
    said = {"stdout": "idle main\nidle spare", "stdout_lines": ["idle main", "idle spare"]}
    host = Host("debian-13", moorage_sinfo=said, moorage_aliases={"stdout": "n1\n"})
    assert host["moorage_slurm_node"] == "n1"
    assert host["moorage_in_partitions"] == ["main", "spare"]
    assert Host("debian-13", moorage_node="gpu7", moorage_aliases={"stdout": "n1"})["moorage_slurm_node"] == "gpu7"
    assert Host("debian-13", moorage_aliases={"skipped": True})["moorage_slurm_node"] == ""


def rendered(name: str, place: Path, home: Path) -> Path:
    text = (Path(__file__).parents[3] / "ansible/roles/moorage/templates" / name).read_text()
    place.write_text(Host("debian-13", moorage_home=str(home), moorage_release="1").says(text) + "\n")
    place.chmod(0o755)
    return place


@pytest.mark.commands("python3", "readlink")
def test_what_is_started_is_of_the_release_in_use_and_stays_with_it(
    tmp_path: Path, fake_command: Callable[..., FakeCommand]
) -> None:
    for release in ("1", "2"):
        (tmp_path / "versions" / release / "bin").mkdir(parents=True)
    first, second = (FakeCommand(tmp_path / "versions" / release / "bin", "python3") for release in ("1", "2"))
    start = rendered("python3.j2", tmp_path / "python3", tmp_path)
    (tmp_path / "current").symlink_to("versions/1")
    # slurmd gives its hooks no PATH.
    subprocess.run([start, "-I", "-m", "moorage.prolog"], env={}, check=True)
    (tmp_path / "next").symlink_to("versions/2")
    (tmp_path / "next").rename(tmp_path / "current")
    subprocess.run([start, "two words"], env={}, check=True)
    assert (first.calls, second.calls) == ([["-I", "-m", "moorage.prolog"]], [["two words"]])


def test_the_command_names_the_release_that_it_is_of(tmp_path: Path) -> None:
    lines = rendered("moorage.j2", tmp_path / "moorage", tmp_path).read_text().splitlines()
    assert lines[0] == f"#!{tmp_path}/versions/1/bin/python3 -I"


CONTAINERS = "/var/lib/containers"
CACHE = (f"{CONTAINERS}/cache", f"{CONTAINERS}/cache/blob-info-cache-v1.sqlite")
BOOTED = (f"{CONTAINERS}/storage", f"{CONTAINERS}/storage/tmp")


@pytest.mark.parametrize(
    ("there", "removed"),
    [
        ((), []),
        (CACHE, [CONTAINERS]),
        ((*CACHE, *BOOTED), [f"{CONTAINERS}/cache"]),
        ((*CACHE, *BOOTED, f"{CONTAINERS}/storage/overlay"), []),
        ((*CACHE, f"{CONTAINERS}/sigstore"), []),
        ((f"{CONTAINERS}/cache", f"{CONTAINERS}/cache/mine"), []),
    ],
)
def test_a_cache_that_podman_has_only_for_us_goes_with_us(there: tuple[str, ...], removed: list[str]) -> None:
    (task,) = (task for task in read("tasks/remove.yml") if task["name"] == "Remove all that was installed")
    found = {"files": [{"path": path} for path in there], "matched": len(there)}
    assert Host("debian-13", **task["vars"], moorage_podman=found)["moorage_podman_cache"] == removed


@pytest.mark.parametrize(
    ("stat", "gone"),
    [
        ({"exists": False}, []),
        ({"exists": True, "path": "/p", "size": 9}, []),
        ({"exists": True, "path": "/p", "size": 0}, ["/p"]),
    ],
)
def test_a_file_that_others_write_in_goes_when_nothing_is_in_it(stat: dict[str, object], gone: list[str]) -> None:
    variables = named("tasks/remove.yml", "Remove all that was installed")["vars"]
    assert Host("debian-13", **variables, moorage_left={"results": [{"stat": stat}]})["moorage_bare"] == gone


@pytest.mark.parametrize(
    ("matched", "refused"),
    [((1, 3), ""), ((0, 1), "/p would be empty, and"), ((0, 0), "/p and /e would be empty, and")],
)
def test_no_directory_that_slurm_names_is_left_empty(matched: tuple[int, int], refused: str) -> None:
    (task,) = (task for task in read("tasks/uninstall.yml") if task["name"].startswith("Refuse"))
    results = [{"matched": count, "item": item} for count, item in zip(matched, ("/p", "/e"), strict=True)]
    host = Host("debian-13", moorage_hooks={"results": results})
    assert host[task["ansible.builtin.assert"]["that"]] is not bool(refused)
    assert not refused or host.says(task["ansible.builtin.assert"]["fail_msg"]).startswith(refused)


@pytest.mark.parametrize(
    ("wanted", "duties", "parts", "left_alone"),
    [
        ([], ["compute"], ["install"], False),
        (["main"], ["compute"], ["install"], False),
        (["gpu"], ["compute"], ["install"], True),
        # slurm.conf names the hooks for all partitions.
        (["gpu"], ["compute"], ["hooks"], False),
        (["gpu"], ["login"], ["install"], False),
    ],
)
def test_nodes_of_other_partitions_are_left_alone(
    wanted: list[str], duties: list[str], parts: list[str], left_alone: bool
) -> None:
    task = named("tasks/main.yml", "Leave nodes of other partitions alone")
    said = {"stdout_lines": ["idle main", "idle spare"]}
    site = {"moorage_partitions": wanted, "moorage_duties": duties, "moorage_parts": parts}
    assert holds(Host("debian-13", moorage_sinfo=said, **site), task) is left_alone


def test_who_submits_has_the_option_only_while_all_nodes_have_moorage() -> None:
    """A node without it runs the script of a job with --k8s as any other, or drains."""
    install, uninstall = ([play["hosts"] for play in read(f"../../{name}.yml")] for name in ("install", "uninstall"))
    assert (install[-1], install.count("login")) == ("login", 1)
    assert (uninstall[0], uninstall.count("login")) == ("login", 1)


@pytest.mark.parametrize(
    ("there", "added", "prepared"),
    [
        ([], True, True),
        ([{"names": ["localhost/kindest/node:v1"], "prepared": None}], False, True),
        ([{"names": ["localhost/kindest/node:v1"], "prepared": {"from": "1"}}], False, False),
        ([{"names": ["docker.io/kindest/node:v1"], "prepared": {"from": "1"}}], False, False),
        ([{"names": ["registry.example/kindest/node:v1", "localhost/kindest/node:v12"], "prepared": {}}], True, True),
    ],
)
def test_an_image_is_there_by_each_name_that_its_short_one_stands_for(
    there: list[dict[str, Any]], added: bool, prepared: bool
) -> None:
    (block,) = read("tasks/images.yml")
    said = {"moorage_there": {"stdout": json.dumps({"images": there})}, "item": {"name": "kindest/node:v1"}}
    host = Host("debian-13", **block["vars"] | said)
    add, prepare = (task for task in block["block"] if "loop" in task)
    assert (host[add["when"]], holds(host, prepare)) == (added, prepared)
