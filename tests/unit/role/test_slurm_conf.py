"""What the role would add to a slurm.conf, what it only tells, and when it holds still."""

from __future__ import annotations

import re
from base64 import b64encode
from pathlib import Path

import pytest

from support.role import Host, filters, read

slurm_conf = filters("slurm_conf")
PROLOG, EPILOG = "/etc/slurm/prolog.d", "/etc/slurm/epilog.d"
COMPLETE = f"""\
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
JobAcctGatherType=jobacct_gather/cgroup
PrologFlags=Alloc,Contain
Prolog={PROLOG}/*
Epilog={EPILOG}/*
"""
TESTS = Path(__file__).parents[2]
LAB = TESTS / "lab/guest/files/etc/slurm/slurm.conf"
GUIDE = TESTS.parent / "docs/install/by-role.md"


def needs(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = slurm_conf.needs(text, PROLOG, EPILOG)
    return found


@pytest.mark.parametrize(
    "text", [COMPLETE, COMPLETE.lower().replace("alloc", "ALLOC"), LAB.read_text(), COMPLETE.replace("=", " = ")]
)
def test_one_that_has_all_is_left_alone(text: str) -> None:
    assert needs(text) == {"add": [], "tell": []}


def test_the_guide_shows_what_is_added() -> None:
    assert COMPLETE in GUIDE.read_text()


def test_what_is_not_set_is_added_and_then_enough() -> None:
    found = needs("ClusterName=x\n# Prolog=/old\n")
    assert found == {"add": COMPLETE.splitlines(), "tell": []}
    assert needs("\n".join(found["add"])) == {"add": [], "tell": []}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("ProctrackType=proctrack/linuxproc", "instead of .* write ProctrackType=proctrack/cgroup$"),
        ("TaskPlugin=task/affinity", "instead of .* write TaskPlugin=task/affinity,task/cgroup$"),
        ("JobAcctGatherType=jobacct_gather/linux", "instead of .* write JobAcctGatherType=jobacct_gather/cgroup$"),
        ("PrologFlags=X11", "instead of PrologFlags=X11 write PrologFlags=X11,Alloc,Contain$"),
        ("PrologFlags=Alloc", "write PrologFlags=Alloc,Contain$"),
        ("Prolog=/site/prolog.sh", r"Prolog=/site/prolog.sh stays as it is: add the line Prolog=\S+/50-moorage \(Slu"),
        ("Epilog=/site/epilog.d/*", r"stays as it is: .* or let yours call /etc/slurm/epilog.d/50-moorage$"),
    ],
)
def test_a_line_of_the_sites_is_never_changed(line: str, told: str) -> None:
    name = line.partition("=")[0]
    found = needs("\n".join([line, *(one for one in COMPLETE.splitlines() if not one.startswith(f"{name}="))]))
    assert found["add"] == []
    (said,) = found["tell"]
    assert re.search(told, said)


@pytest.mark.parametrize("name", ["ProctrackType", "TaskPlugin", "JobAcctGatherType"])
@pytest.mark.parametrize("text", ["", "ProctrackType=x\nTaskPlugin=x\nJobAcctGatherType=x\n"])
def test_what_takes_a_restart_is_told(text: str, name: str) -> None:
    (task,) = (task for task in read("tasks/controller.yml") if task["name"].endswith("reconfiguration does not do"))
    found = needs(text)
    only = {what: [line for line in lines if name in line] for what, lines in found.items()}
    host = Host("debian-13", moorage_slurm_conf_needs=only)
    assert all(host[condition] for condition in task["when"])
    assert name in task["ansible.builtin.debug"]["msg"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (COMPLETE, [PROLOG, EPILOG]),
        ("Prolog=/site/prolog.sh\nEpilog=/etc/slurm/epilog.d/50-*", [EPILOG]),
        ("Prolog=/site/prolog.sh\nProlog=/etc/slurm/prolog.d/50-moorage", [PROLOG]),
        ("", []),
    ],
)
def test_directories_that_may_not_become_empty(text: str, found: list[str]) -> None:
    assert slurm_conf.named(text, PROLOG, EPILOG) == found


def test_what_is_included_counts() -> None:
    assert slurm_conf.included("Include nodes.conf\ninclude /a/b.conf # x\nInclude parts/*.conf\n") == [
        "nodes.conf",
        "/a/b.conf",
    ]
    assert needs(COMPLETE.replace("task/cgroup,", "task/cgroup,\\\n")) == {"add": [], "tell": []}


def test_what_stands_there_for_us_is_not_the_sites() -> None:
    """Or the second run would take out what the first has added."""
    read = {"content": "Q2x1c3Rlck5hbWU9eAojIEJFR0lOIE1vb3JhZ2UKUHJvbG9nPS9hCiMgRU5EIE1vb3JhZ2UKRXBpbG9nPS9iCg=="}
    assert Host("debian-13", moorage_slurm_conf_read=read)["moorage_slurm_conf_own"] == "ClusterName=x\nEpilog=/b\n"


def test_the_first_line_of_what_is_included_counts_as_well() -> None:
    own, included = ({"content": b64encode(text.encode()).decode()} for text in ("Include hooks.conf", COMPLETE))
    host = Host("debian-13", moorage_slurm_conf_read=own, moorage_slurm_conf_includes={"results": [included]})
    assert host["moorage_slurm_conf_text"] == f"Include hooks.conf\n{COMPLETE}"


@pytest.mark.parametrize(
    ("there", "read_from", "written"),
    [
        (["/etc/slurm/slurm.conf"], "/etc/slurm/slurm.conf", True),
        (["/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf"], "/etc/slurm/slurm.conf", True),
        (["/run/slurm/conf/slurm.conf"], "/run/slurm/conf/slurm.conf", False),
        ([], "", False),
    ],
)
def test_what_slurmctld_serves_is_read_where_there_is_nothing_else_and_never_written(
    there: list[str], read_from: str, written: bool
) -> None:
    host = Host("debian-13")
    stats = [{"exists": place in there, "path": place} for place in host["moorage_slurm_conf_places"]]
    host = Host("debian-13", moorage_slurm_conf_files={"results": [{"stat": stat} for stat in stats]})
    assert host["moorage_slurm_conf_place"] == read_from
    _, refusal, *_ = read("tasks/controller.yml")
    assert host[refusal["ansible.builtin.assert"]["that"]] is written
