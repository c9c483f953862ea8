"""What Slurm's own commands say of --k8s, and what becomes of a SPEC that makes no sense."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.figures import Figures
from virtual.guest.cluster import Cluster
from virtual.guest.many_commands import Ended, run_many
from virtual.guest.shell import Shell
from virtual.jobs.batch import Job

pytestmark = pytest.mark.both_suites

NO_PAIR = "is neither 0, 1 nor key=value"

# What is wrong with each; what to do about it follows.
BAD = {
    "": "nothing follows the equals sign",
    "2": f"'2' {NO_PAIR}",
    "-1": f"'-1' {NO_PAIR}",
    "job.sh": f"'job.sh' {NO_PAIR}",
    "$(id)": f"'$(id)' {NO_PAIR}",
    "%s%n%n": f"'%s%n%n' {NO_PAIR}",
    "yes": f"'yes' {NO_PAIR}",
    "none": f"'none' {NO_PAIR}",
    "cluster:none": f"'cluster:none' {NO_PAIR}",
    "cluster=none,pasta": "'pasta' is not key=value",
    "1,cluster=none": "1 cannot be combined with anything",
    "network=pasta": "unknown key 'network'",
    "clutser=none": "unknown key 'clutser'",
    "=none": "'=none' has no key",
    "cluster": "cluster has no value",
    "cluster=none,uplink=": "uplink has no value",
    "cluster=k3s": "unknown cluster 'k3s'",
    "cluster=none;reboot": "unknown cluster 'none;reboot'",
    "cluster=none,uplink=slirp": "unknown uplink 'slirp'",
    "version=latest": "'latest' is not a version of Kubernetes",
    "version=v1.36": "'v1.36' is not a version of Kubernetes",
    "version=1.36/../..": "'1.36/../..' is not a version of Kubernetes",
    "cluster=none,version=1.36": "version chooses a Kubernetes and cluster=none wants none",
    "cluster=none,cluster=none": "cluster is given twice",
    "cluster=none,": "there is a comma with nothing beside it",
    "cluster=none, uplink=pasta": "character 14 is a space",
    "cluster=none\nuplink=pasta": "character 13 is not printable ASCII",
    "cluster=\x1b[2Jnone": "character 9 is not printable ASCII",
    "clüster=none": "character 3 is not printable ASCII",
    "x" * 1025: "it is 1025 bytes long",
}
OTHERS = "moorage: --k8s works with sbatch alone: put the commands into a script for sbatch --k8s [M-SHIM-3]"


def test_a_spec_that_makes_no_sense_is_refused_before_anything_is_submitted(lab: Cluster, figures: Figures) -> None:
    assert len(BAD) >= 25
    with nothing_submitted(lab):
        ends = run_many(lab.first.shell, [["sbatch", f"--k8s={spec}", "--wrap=true"] for spec in BAD], "alice")
    for (spec, cause), end in zip(BAD.items(), ends, strict=True):
        assert (end.code, end.stdout) == (1, ""), spec
        assert re.fullmatch(re.escape(f"sbatch: error: moorage: --k8s: {cause}: ") + "[ -~]+\n", end.stderr), end.stderr
    assert "did you mean nodes=2" in ends[[*BAD].index("2")].stderr
    figures.add(
        f"refusal of a bad SPEC, longest of {len(BAD)}, {lab.request.suite}", max(end.seconds for end in ends), "s"
    )


def test_other_commands_than_sbatch_offer_the_option_and_say_what_works(lab: Cluster) -> None:
    commands = ["sbatch", "salloc", "srun"]
    helps = [[command, "--help"] for command in commands]
    refused = [
        ["salloc", "--k8s=cluster=none", "true"],
        ["srun", "--k8s=cluster=none", "true"],
        ["srun", "--k8s", "true"],
    ]
    with nothing_submitted(lab):
        ends = run_many(lab.first.shell, [*helps, *refused], "alice")
    for command, end in zip(commands, ends, strict=False):
        assert "--k8s=[SPEC] " in end.stdout, command
    for argv, end in zip(refused, ends[len(helps) :], strict=True):
        assert whole(end) == (1, "", f"{argv[0]}: error: {OTHERS}\n")


PAST = {
    "no=sense": "unknown key 'no'",
    "x" * 3000: "it is 3000 bytes long",
    "cluster=none\n\x1b[2J": "character 13 is not printable ASCII",
}
CLIENTS = r"""
for client in yes none; do
    mkdir -p ~/"$client"
    sed '/^PlugStackConfig=/d' /etc/slurm/slurm.conf >~/"$client/slurm.conf"
done
sed 's! moorage=.*! moorage=/usr/bin/true!' /etc/slurm/plugstack.conf >~/yes/plugstack.conf
: >~/none/plugstack.conf
"""
UNPREPARED = "moorage: the Prolog has not prepared this node for job {}: tell the administrator of this node: "


def test_what_gets_past_the_check_at_submission_fails_on_the_node(lab: Cluster) -> None:
    """A user may bring a configuration of his own for Slurm's commands, whose check says yes, or which has none."""
    shell = lab.first.shell
    shell.run(["sh", "-euc", CLIENTS], user="alice")
    checked = [past(shell, "yes", f"--k8s={spec}") for spec in PAST]
    unchecked = past(shell, "none", SLURM_SPANK_K8S="cluster=none")
    for job in (*checked, unchecked):
        job.wait_gone()
        assert job.accounted("State,ExitCode") == ["FAILED", "1:0"]
    for job, cause in zip(checked, PAST.values(), strict=True):
        assert re.fullmatch(re.escape(f"moorage: --k8s: {cause}: ") + "[ -~]+", job.output), job.output
    assert unchecked.output.startswith(UNPREPARED.format(unchecked.id))
    assert len(unchecked.output.splitlines()) == 1
    lab.wait_idle(limit=90)


def past(shell: Shell, client: str, *options: str, **environment: str) -> Job:
    variables = [f"{name}={value}" for name, value in environment.items()]
    where = ["--output=/home/alice/job-%j.out", "--mem=100M", "--wrap=echo ran"]
    sbatch = ["env", f"SLURM_CONF=/home/alice/{client}/slurm.conf", *variables, "sbatch", "--parsable"]
    return Job(shell, shell.output(*sbatch, *options, *where, user="alice"), "alice")


def whole(end: Ended) -> tuple[int, str, str]:
    return end.code, end.stdout, end.stderr


@contextmanager
def nothing_submitted(lab: Cluster) -> Iterator[None]:
    """The number that the next job will get is the same afterwards."""
    before = next_job(lab)
    yield
    assert next_job(lab) == before


def next_job(lab: Cluster) -> int:
    said = lab.first.shell.output("scontrol", "show", "config")
    return next(int(line.split("=")[1]) for line in said.splitlines() if line.startswith("NEXT_JOB_ID"))


@pytest.fixture(autouse=True)
def _idle_before(lab: Cluster) -> None:
    lab.wait_idle(limit=120)
