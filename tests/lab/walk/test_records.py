"""What root tells of jobs: records, metrics, the journal; and a sweep that leaves the living alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support import exposition
from virtual.guest.broken_node import configured
from virtual.guest.cluster import Cluster
from virtual.guest.shell import Shell
from virtual.jobs.batch import MOORED, submit
from virtual.jobs.pause import PAUSE, paused

TEXTFILES = "/run/lab-textfiles"
HERE = ("--nodelist=n1", "--mem=400M")
STEPS = ["cgroup", "podman", "ready", "down"]


@pytest.fixture
def shell(lab: Cluster) -> Iterator[Shell]:
    """The first node, which tells Prometheus what happens there."""
    shell = lab.first.shell
    shell.run(["mkdir", TEXTFILES])
    with configured(shell, f"metrics: {{directory: {TEXTFILES}}}"):
        yield shell
    shell.run(["rm", "-r", TEXTFILES])


def record(shell: Shell, job: str) -> dict[str, Any]:
    lines = shell.output("sh", "-c", "cat /var/lib/moorage/records/*.jsonl").splitlines()
    (found,) = [one for one in map(json.loads, lines) if one["job"] == int(job)]
    return dict(found)


def told(shell: Shell) -> dict[str, exposition.Family]:
    return exposition.read(shell.output("cat", f"{TEXTFILES}/moorage.prom") + "\n")


def count(shell: Shell, name: str, **labels: str) -> float:
    return told(shell)[name].samples[name, frozenset(labels.items())]


def test_a_job_is_counted_while_it_runs_and_on_record_when_it_is_over(shell: Shell) -> None:
    with paused(shell, PAUSE, MOORED, *HERE) as job:
        assert count(shell, "moorage_clusters_running", cluster="none") == 1
        before = count(shell, "moorage_starts_total", cluster="none", outcome="ready")
        assert "prolog: prepared with" in shell.output("cat", f"/run/moorage/{job.id}/log", user="alice")
    found = record(shell, job.id)
    assert (found["user"], found["outcome"], found["ending"]) == ("alice", "ready", "orderly")
    # Where Slurm tells an Epilog.
    assert found["exit"] in ("0:0", None)
    assert found["phases"].keys() == {"prolog", "launch", "cgroup", "podman"}
    assert found["start_seconds"] == pytest.approx(sum(found["phases"].values()), abs=0.01)
    assert found["usage"]["cpu_seconds"] > 0
    assert (found["spec"]["cluster"], found["leftovers"]) == ("none", [])
    assert count(shell, "moorage_clusters_running", cluster="none") == 0
    assert count(shell, "moorage_starts_total", cluster="none", outcome="ready") == before + 1
    journal = ["journalctl", "--identifier=moorage", "--output=json", f"JOB_ID={job.id}", "PHASE=start", "_UID=0"]
    entries = [json.loads(line) for line in shell.output(*journal).splitlines()]
    assert [entry["STEP"] for entry in entries] == STEPS


def test_a_refusal_is_on_record(shell: Shell) -> None:
    before = count(shell, "moorage_start_failures_total", stage="prolog", cause="subuid") if _there(shell) else 0.0
    job = submit(shell, "true", MOORED, *HERE, user="carol")
    job.wait_gone()
    found = record(shell, job.id)
    assert (found["outcome"], found["check"], found["fault"]) == ("refused", "subuid", "user")
    assert count(shell, "moorage_start_failures_total", stage="prolog", cause="subuid") == before + 1


def _there(shell: Shell) -> bool:
    return shell.run(["test", "-e", f"{TEXTFILES}/moorage.prom"], ok=(0, 1)).code == 0


def test_the_sweeps_unit_tells_that_nothing_is_left_any_more(shell: Shell) -> None:
    """Also once somebody else has removed it, and no state is there to sweep."""
    state, lock = (f"/var/lib/moorage/jobs/67000000.{kind}" for kind in ("json", "lock"))
    for command, left in ((["touch", state], 1), (["rm", state, lock], 0)):
        shell.run(command)
        shell.run(["systemctl", "start", "moorage-sweep.service"])
        assert count(shell, "moorage_leftover_jobs") == left


def test_a_sweep_leaves_the_living_alone(shell: Shell) -> None:
    with paused(shell, f"{PAUSE}\npodman ps || exit 9\n", MOORED, *HERE) as job:
        for words in ((), ("--now",)):
            said = shell.output("/opt/moorage/bin/moorage", "sweep", *words)
            assert f"job {job.id} is in use" in said.splitlines()
        shell.run(["systemctl", "start", "moorage-sweep.service"])
    assert job.accounted("ExitCode") == ["0:0"]
