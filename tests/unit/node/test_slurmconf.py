"""slurm.conf as text, and what in it keeps jobs from being served."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.node import slurmconf
from moorage.node.hostfiles import Node
from moorage.node.slurmconf import place, read

GOOD = """\
ClusterName=moorage # a comment
proctracktype = proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
Prolog=/etc/slurm/prolog.d/*
Epilog={here}/epilog.d/*
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    slurm = tmp_path / "slurm"
    (slurm / "epilog.d").mkdir(parents=True)
    for name in ("20-site", "50-moorage"):
        (slurm / "epilog.d" / name).touch(mode=0o755)
    return slurm


def written(here: Path, text: str, name: str = "slurm.conf") -> Path:
    (here / name).write_text(text.replace("{here}", str(here)))
    return here / name


def found(file: Path) -> list[str]:
    return [str(finding) for finding in slurmconf.check(file, read(file))]


def test_a_good_one(here: Path) -> None:
    file = written(here, GOOD)
    assert found(file) == []
    assert read(file)["taskplugin"] == ["task/cgroup,task/affinity"]


@pytest.mark.parametrize(
    "text",
    [
        "Include more.conf\n",
        "include {here}/more.conf\n",
        "  INCLUDE more.c*\n",
    ],
)
def test_includes_are_read(here: Path, text: str) -> None:
    written(here, GOOD, "more.conf")
    assert found(written(here, text)) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("proctracktype = proctrack/cgroup", ""),
        ("TaskPlugin=task/cgroup,task/affinity", "TaskPlugin=task/affinity, \\\n task/cgroup"),
        ("TaskPlugin=task/cgroup,task/affinity", 'TaskPlugin="task/cgroup"'),
        ("TaskPlugin=task/cgroup,task/affinity", "TaskPlugin=task/none\nTaskPlugin=task/cgroup"),
        ("Epilog={here}/epilog.d/*", "Epilog=/usr/local/bin/epilog\nEpilog={here}/epilog.d/*"),
        ("Epilog={here}/epilog.d/*", "Epilog=epilog.d/*"),
        ("Epilog={here}/epilog.d/*", "EPILOG={here}/epilog.d/50-moorage"),
    ],
)
def test_other_ways_to_say_it(here: Path, old: str, new: str) -> None:
    assert found(written(here, GOOD.replace(old, new))) == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "proctrack/cgroup",
            "proctrack/linuxproc",
            "has ProctrackType=proctrack/linuxproc: let proctrack/cgroup",
        ),
        ("TaskPlugin", "#TaskPlugin", "has TaskPlugin=task/none: let task/cgroup be in it"),
        ("task/cgroup,", "", "has TaskPlugin=task/affinity: let task/cgroup be in it"),
        ("task/cgroup,", "task/cgroups,", "has TaskPlugin=task/cgroups,task/affinity"),
        ("Epilog={here}/epilog.d/*", "", "no Epilog= of"),
        ("Epilog={here}/epilog.d/*", "Epilog={here}/epilog.d/2*", "runs 50-moorage: add the line Epilog="),
        ("Epilog={here}/epilog.d/*", "Epilog={here}/missing.d/*", "no Epilog= of"),
        ("Epilog=", "EpilogSlurmctld=", "no Epilog= of"),
    ],
)
def test_bad_ones(here: Path, old: str, new: str, words: str) -> None:
    (line,) = found(written(here, GOOD.replace(old, new)))
    assert words in line


@pytest.mark.parametrize(
    ("name", "text", "covered"),
    [("90-moorage", "", True), ("all", "run-parts /opt/moorage/epilog.d\n", True), ("all", "exit 0\n", False)],
)
def test_hooks_by_another_name(here: Path, name: str, text: str, covered: bool) -> None:
    (here / "epilog.d" / "50-moorage").unlink()
    hook = here / "epilog.d" / name
    hook.write_text(text)
    hook.chmod(0o755)
    assert bool(found(written(here, GOOD))) is not covered


def test_a_hook_that_cannot_be_executed(here: Path) -> None:
    hook = here / "epilog.d/50-moorage"
    hook.chmod(0o644)
    assert found(written(here, GOOD)) == [f"{hook} cannot be executed: chmod 755 {hook}"]


def test_a_hidden_file_is_no_hook(here: Path) -> None:
    (here / "epilog.d/50-moorage").rename(here / "epilog.d/.50-moorage")
    (line,) = found(written(here, GOOD))
    assert "no Epilog= of" in line


def test_one_that_cannot_be_read(here: Path) -> None:
    (line,) = found(here / "missing.conf")
    assert line.endswith("see that slurmd's SLURM_CONF names a file that root can read")


def test_one_that_includes_itself_ends(here: Path) -> None:
    assert found(written(here, "Include slurm.conf\n" + GOOD)) == []


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({}, "/etc/slurm/slurm.conf"),
        ({"SLURM_CONF": ""}, "/etc/slurm/slurm.conf"),
        ({"SLURM_CONF": "relative.conf"}, "/etc/slurm/slurm.conf"),
        ({"SLURM_CONF": "/run/slurm/conf/slurm.conf"}, "/run/slurm/conf/slurm.conf"),
    ],
)
def test_its_place(environ: dict[str, str], path: str) -> None:
    assert place(environ) == Path(path)


@pytest.mark.parametrize(
    ("own", "copy", "chosen"),
    [(True, True, "own"), (True, False, "own"), (False, True, "copy"), (False, False, "own")],
)
def test_its_place_where_nobody_says_it(tmp_path: Path, own: bool, copy: bool, chosen: str) -> None:
    """A node without one of its own has the copy of what slurmctld gave it."""
    node = Node(tmp_path)
    places = {"own": node.path(str(slurmconf.PLACE)), "copy": node.path(str(slurmconf.CONFIGLESS))}
    for name, there in (("own", own), ("copy", copy)):
        if there:
            places[name].parent.mkdir(parents=True)
            places[name].touch()
    assert place({}, node) == places[chosen]


def test_a_prolog_is_looked_for_like_an_epilog(here: Path) -> None:
    file = written(here, GOOD)
    (line,) = map(str, slurmconf.prolog(file, read(file)))
    assert "no Prolog= of" in line
    assert list(slurmconf.prolog(file, {})) == []
    file = written(here, GOOD.replace("/etc/slurm/prolog.d/*", "{here}/epilog.d/*"))
    assert list(slurmconf.prolog(file, read(file))) == []


@pytest.mark.parametrize(
    ("text", "causes"),
    [
        ("", []),
        ("PrologEpilogTimeout=61", []),
        ("PrologEpilogTimeout=60", ["PrologEpilogTimeout=60, and our Prolog may take 60 s"]),
        ("PrologEpilogTimeout=10\nPrologTimeout=90\nEpilogTimeout=90", []),
        ("PrologEpilogTimeout=90\nEpilogTimeout=10", ["EpilogTimeout=10, and our Epilog may take 30 s"]),
        (
            "prologepilogtimeout=5",
            [
                "PrologEpilogTimeout=5, and our Prolog may take 60 s",
                "PrologEpilogTimeout=5, and our Epilog may take 30 s",
            ],
        ),
        ("PrologTimeout=INFINITE", []),
    ],
)
def test_hooks_need_their_time(here: Path, text: str, causes: list[str]) -> None:
    file = written(here, f"{text}\n")
    found = slurmconf.limits(file, read(file), {"Prolog": 60, "Epilog": 30})
    assert [finding.cause for finding in found] == [f"{file} has {cause}" for cause in causes]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", "plugstack.conf"),
        ("PlugStackConfig=/opt/plugstack.conf\n", "/opt/plugstack.conf"),
        ("PlugStackConfig=other\n", "other"),
    ],
)
def test_the_place_of_plugstack(here: Path, text: str, path: str) -> None:
    file = written(here, text)
    assert slurmconf.plugstack(file, read(file)) == here / path


@pytest.mark.parametrize(
    ("line", "account", "qos"),
    [
        ("", False, False),
        ("AccountingStorageEnforce=", False, False),
        ("AccountingStorageEnforce=none", False, False),
        ("AccountingStorageEnforce=nojobs,nosteps", False, False),
        ("AccountingStorageEnforce=Associations", True, False),
        ("AccountingStorageEnforce=safe, qos", True, True),
        ("accountingstorageenforce=all", True, True),
    ],
)
def test_what_of_a_users_words_slurm_checks(here: Path, line: str, account: bool, qos: bool) -> None:
    settings = read(written(here, f"{GOOD}{line}\n"))
    assert (slurmconf.checks("account", settings), slurmconf.checks("qos", settings)) == (account, qos)


@pytest.mark.parametrize(
    ("line", "all_nodes"),
    [
        ("", False),
        ("PrologFlags=Serial", False),
        ("PrologFlags=Serial,alloc", True),
        ("PrologFlags=Contain", True),
        ("prologflags = X11 , Serial", True),
        ("PrologFlags=RunInJob", True),
        ("PrologFlags=ForceRequeueOnFail", True),
        ("PrologFlags=DeferBatch", False),
        ("PrologFlags=Alloc\nPrologFlags=Serial", False),
    ],
)
def test_jobs_on_several_nodes_need_all_of_them_prepared(here: Path, line: str, all_nodes: bool) -> None:
    """A job that is refused for this has touched nothing of the node."""
    file = written(here, f"{GOOD}{line}\n")
    found = [str(finding) for finding in slurmconf.several_nodes(file, read(file))]
    said = f"{file} lacks PrologFlags=Alloc, so other nodes may not be prepared in time"
    assert found == ([] if all_nodes else [f"{said}: set it, or submit with --nodes=1"])
    assert all(finding.fault == "user" for finding in slurmconf.several_nodes(file, read(file)))


@pytest.mark.parametrize(
    ("line", "gathers"),
    [
        ("", "jobacct_gather/none"),
        ("JobAcctGatherType=jobacct_gather/linux", "jobacct_gather/linux"),
        ("jobacctgathertype=jobacct_gather/cgroup", None),
    ],
)
def test_what_containers_use_is_counted(here: Path, line: str, gathers: str | None) -> None:
    file = written(here, f"{GOOD}{line}\n")
    found = list(slurmconf.accounting(file, read(file)))
    said = f"{file} has JobAcctGatherType={gathers}, so sacct does not count what containers use"
    assert [one.cause for one in found] == ([said] if gathers else [])
    assert all(one.fault == "advice" for one in found)
    assert list(slurmconf.accounting(file, {})) == []


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("ConstrainDevices=yes", True),
        ("constraindevices = TRUE # all of them", True),
        ("ConstrainDevices=no\nConstrainDevices=1", True),
        ("Include more.conf", True),
        ("", False),
        ("ConstrainDevices=no", False),
        ("ConstrainCores=yes", False),
        (None, False),
    ],
)
def test_jobs_are_held_to_their_devices(here: Path, text: str | None, held: bool) -> None:
    """Only where there are any that not every job has."""
    written(here, "ConstrainDevices=yes\n", "more.conf")
    if text is not None:
        written(here, f"{text}\n", "cgroup.conf")
    found = list(slurmconf.devices(here / "slurm.conf", ["tape", "gpu", "tape"]))
    said = f"{here}/cgroup.conf lacks ConstrainDevices=yes, so jobs can open devices of other jobs: gpu, tape"
    assert [one.cause for one in found] == ([] if held else [said])
    assert all(one.fault == "advice" for one in found)
    assert list(slurmconf.devices(here / "slurm.conf", [])) == []
