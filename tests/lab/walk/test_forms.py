"""Every form in which Slurm takes the option moors the job, and what says no leaves it a plain one."""

from __future__ import annotations

import pytest

from virtual.guest.cluster import Cluster
from virtual.jobs.batch import Job, run
from virtual.jobs.facts import SHELL, facts

# The variable in which Slurm looks for an option of a SPANK plug-in (24.11, 26.05).
VARIABLE = "SLURM_SPANK__SLURM_SPANK_OPTION_moorage_k8s"
DIRECTIVE = "#SBATCH --k8s=cluster=none\n"
LOOK = rf"""
{SHELL}
fact podman command -v podman
fact option sh -c 'env | grep -i spank'
"""
DOWN = """
fact down /opt/moorage/bin/moorage down
fact after podman ps
fact again /opt/moorage/bin/moorage down
"""
SMALL = ("--ntasks=1", "--mem=300M")


def is_moored(job: Job) -> bool:
    """By its programs and its output, which have to agree; the option is in no moored job's environment."""
    moored = facts(job.output)["podman"].text == f"/run/moorage/{job.id}/bin/podman"
    assert ("moorage: ready after" in job.output) == moored, job.output
    assert facts(job.output)["option"].text == ""
    return moored


def test_a_directive_moors_where_nothing_is_exported(lab: Cluster) -> None:
    """And what it got can be taken down early, with the script going on."""
    job = run(lab.first.shell, f"{DIRECTIVE}{LOOK}{DOWN}", "--export=NONE", *SMALL)
    assert is_moored(job)
    found = facts(job.output)
    assert (found["down"].code, found["down"].text) == (0, "")
    assert (found["after"].code, found["after"].text) == (
        125,
        "podman: nothing runs in this job's tree: it is down, or not yet up (No such file or directory)",
    )
    assert found["again"].code == 1
    assert "there is nothing up in this job" in found["again"].text
    assert "moorage: taken down early, as asked for; the script goes on" in job.output
    assert job.accounted("State,ExitCode") == ["COMPLETED", "0:0"]


def test_the_environment_moors_each_job_of_an_array(lab: Cluster) -> None:
    shell = lab.first.shell
    argv = ["env", f"{VARIABLE}=cluster=none", "sbatch", "--parsable", "--array=1-2", *SMALL]
    script = f"#!/bin/bash\n{LOOK}".encode()
    output = "--output=/home/alice/job-%A_%a.out"
    number = shell.run([*argv, output], user="alice", input=script).stdout.strip()
    tasks = [Job(shell, f"{number}_{task}", "alice") for task in (1, 2)]
    for task in tasks:
        task.wait_gone()
        said = task.output
        assert "/run/moorage/" in facts(said)["podman"].text
        assert "moorage: ready after" in said
        assert task.accounted("State,ExitCode") == ["COMPLETED", "0:0"]
    places = {facts(task.output)["podman"].text for task in tasks}
    assert len(places) == 2


@pytest.mark.parametrize("option", ["--k8s=0", None], ids=["off", "never asked for"])
def test_a_job_may_be_a_plain_one(lab: Cluster, option: str | None) -> None:
    """A zero overrides what the script asks for."""
    script, options = (f"{DIRECTIVE}{LOOK}", [option]) if option else (LOOK, [])
    job = run(lab.first.shell, script, *options, *SMALL)
    assert not is_moored(job)
    assert "moorage" not in job.output
    assert facts(job.output)["podman"].text == "/usr/bin/podman"
