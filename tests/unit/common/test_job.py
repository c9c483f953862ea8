"""Jobs as slurmd describes them, and as nobody should."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moorage.common.errors import MoorageError
from moorage.common.job import Job, job_number
from moorage.linux import quota

ENVIRON = {
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_UID": "1001",
    "SLURM_JOB_GID": "1002",
    "SLURM_JOB_USER": "alice",
    "SLURMD_NODENAME": "n1",
}


def test_what_slurmd_says() -> None:
    job = Job.from_hook(
        {**ENVIRON, "SLURM_JOB_RESTART_COUNT": "2", "SLURM_JOB_SLUID": "s5K1KKYAYG5D00", "PATH": "/evil"}
    )
    assert job == Job(17, 2, 1001, 1002, "alice", "n1", frozenset({"job_17", "s5K1KKYAYG5D00"}))


def test_what_older_slurms_leave_out() -> None:
    assert Job.from_hook(ENVIRON) == Job(17, 0, 1001, 1002, "alice", "n1", frozenset({"job_17"}))


def test_places() -> None:
    job = Job.from_hook(ENVIRON)
    assert [job.run, job.user_run, job.scratch, job.socket, job.refusal, job.description, job.state] == [
        Path("/run/moorage/17"),
        Path("/run/moorage/17/user"),
        Path("/run/moorage/17/scratch"),
        Path("/run/moorage/17/warden.sock"),
        Path("/run/moorage/17/refusal"),
        Path("/run/moorage/17/job.json"),
        Path("/var/lib/moorage/jobs/17.json"),
    ]


@pytest.mark.parametrize(
    "user", ["alice", "a.b-c_d", "DOMAIN\\alice", "alice@example.org", "host$", "1alice", "u" * 255]
)
def test_users_of_directories(user: str) -> None:
    assert Job.from_hook({**ENVIRON, "SLURM_JOB_USER": user}).user == user


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLURM_JOB_ID", ""),
        ("SLURM_JOB_ID", "0"),
        ("SLURM_JOB_ID", "-1"),
        ("SLURM_JOB_ID", "+17"),
        ("SLURM_JOB_ID", "017"),
        ("SLURM_JOB_ID", " 17"),
        ("SLURM_JOB_ID", "17\n"),
        ("SLURM_JOB_ID", "17/../18"),
        ("SLURM_JOB_ID", "1_7"),
        ("SLURM_JOB_ID", "\N{ARABIC-INDIC DIGIT ONE}"),
        ("SLURM_JOB_ID", "4294967294"),
        ("SLURM_JOB_ID", "4294967295"),
        ("SLURM_JOB_ID", "9" * 400),
        ("SLURM_JOB_RESTART_COUNT", "x"),
        ("SLURM_JOB_RESTART_COUNT", "65536"),
        ("SLURM_JOB_UID", "4294967295"),
        ("SLURM_JOB_UID", "4294967294"),
        ("SLURM_JOB_UID", "1001 0"),
        ("SLURM_JOB_GID", "0x10"),
        ("SLURM_JOB_GID", "4294967295"),
        ("SLURM_JOB_USER", ""),
        ("SLURM_JOB_USER", "-g"),
        ("SLURM_JOB_USER", "../root"),
        ("SLURM_JOB_USER", "a b"),
        ("SLURM_JOB_USER", "a:b"),
        ("SLURM_JOB_USER", "alice\n"),
        ("SLURM_JOB_USER", "u" * 300),
        ("SLURMD_NODENAME", ".."),
        ("SLURMD_NODENAME", "n1/x"),
        ("SLURMD_NODENAME", "n" * 300),
    ],
)
def test_what_slurmd_would_never_say_is_refused_in_one_line(name: str, value: str) -> None:
    with pytest.raises(MoorageError, match=name) as refused:
        Job.from_hook({**ENVIRON, name: value})
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("name", ENVIRON)
def test_what_is_missing_is_named(name: str) -> None:
    with pytest.raises(MoorageError, match=f"{name} is not set"):
        Job.from_hook({key: value for key, value in ENVIRON.items() if key != name})


@pytest.mark.parametrize("sluid", ["", "job_18", "../s1", "s" + "A" * 40, "S1"])
def test_a_strange_sluid_names_no_cgroup(sluid: str) -> None:
    assert Job.from_hook({**ENVIRON, "SLURM_JOB_SLUID": sluid}).names == {"job_17"}


def test_the_number_alone_needs_nothing_else() -> None:
    assert job_number({"SLURM_JOB_ID": "17"}) == 17


def test_a_job_survives_being_written_down() -> None:
    job = Job.from_hook({**ENVIRON, "SLURM_JOB_SLUID": "s5K1"})
    assert Job.from_dict(json.loads(json.dumps(job.as_dict()))) == job


@pytest.mark.parametrize("number", [(1 << 26) - 1, 1 << 26, 63 << 26 | 17, (1 << 32) - 3])
def test_a_federations_numbers(number: int) -> None:
    """The upper six bits name the cluster that it was submitted to."""
    assert Job.from_hook({**ENVIRON, "SLURM_JOB_ID": str(number)}).id == number
    assert job_number({"SLURM_JOB_ID": str(number)}) == number


def test_projects_of_jobs_fit_and_differ() -> None:
    numbers = [1, 17, (1 << 26) - 1, *(cluster << 26 | 17 for cluster in range(1, 64) if cluster != 16), (1 << 32) - 3]
    projects = [quota.project_of(number) for number in numbers]
    assert len(set(projects)) == len(numbers)
    assert all(1 << 26 <= project < (1 << 32) - 1 for project in projects)
