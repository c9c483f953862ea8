"""What the script of a job with --k8s=cluster=none gets: Podman, whose containers are a part of the job."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from support.figures import Figures
from virtual.guest.cluster import Cluster
from virtual.guest.shell import Shell
from virtual.jobs.batch import MOORED, Job
from virtual.jobs.facts import SHELL, Fact, facts, others
from virtual.jobs.pause import PAUSE, paused
from virtual.probes.job_limits import Share, job_of, own_settings, share
from virtual.probes.processes import Owner, Seen, outside, owner, places, user_processes

pytestmark = pytest.mark.both_suites

OPTIONS = ("--nodelist=n1", "--ntasks=1", "--mem=900M")
SCRIPT = rf"""
{SHELL}
image=localhost/lab/shell:1
cpus=$(sed -n 's/^Cpus_allowed_list:\t//p' /proc/self/status)
made() {{ printf 'FROM %s\nRUN echo built > /made\n' "$image" | podman build --quiet --tag localhost/alice/made:1 -; }}

fact task cat /proc/self/cgroup
fact load podman load --quiet --input /srv/lab/shell.tar
fact web podman load --quiet --input /srv/lab/web.tar
fact outside podman run --rm $image sh -c 'ip -4 -o address; ip route; grep nameserver /etc/resolv.conf'
fact input sh -c 'echo asked | podman run --rm --interactive --network none localhost/lab/shell:1 sh -c "cat; exit 9"'
fact build made
fact built podman run --rm --network none localhost/alice/made:1 cat /made
fact volume podman volume create kept
fact fill podman run --rm --network none --volume kept:/kept $image sh -c 'echo content > /kept/file'
fact kept podman run --rm --network none --volume kept:/kept $image cat /kept/file
fact network podman network create inner
fact serve podman run --detach --name web --network inner --publish 8099:8080 localhost/lab/web:1
fact exec podman exec web cat /www/index.html
fact by_name podman run --rm --network inner $image wget -q -T 60 -O - http://web:8080/
fact through_host podman run --rm $image wget -q -T 60 -O - http://10.77.0.1:8099/
fact remove podman rm --force --time 0 web
fact plain sbatch --parsable --mem=50M --output="$HOME/job-%j.out" --wrap env
fact left podman run --detach --name left --memory 100m --cpus 0.5 --pids-limit 50 --cpuset-cpus "$cpus" --user nobody \
    $image sleep 4321
fact status /opt/moorage/bin/moorage status --json
{PAUSE}
exit 7
"""


@dataclass
class Run:
    """One job's life."""

    shell: Shell
    owner: Owner
    job: Job
    facts: dict[str, Fact]
    cgroup: str
    share: Share
    during: set[Seen]
    limits: dict[str, str]
    controllers: frozenset[str]
    left: set[Seen]

    def __getitem__(self, name: str) -> str:
        fact = self.facts[name]
        assert fact.code == 0, f"{name}: {fact.text}"
        return fact.text


@contextmanager
def logged_in(shell: Shell, who: Owner, user: str) -> Iterator[None]:
    """With a manager of services of his own, through which Podman would take containers out of the job."""
    shell.run(["loginctl", "enable-linger", user])
    shell.run(["systemctl", "start", f"user@{who.uid}.service"])
    yield
    shell.run(["loginctl", "disable-linger", user])


@pytest.fixture(scope="module")
def run(lab: Cluster) -> Iterator[Run]:
    shell = lab.first.shell
    who = owner(shell, "alice")
    with logged_in(shell, who, "alice"):
        before = user_processes(shell, who)
        with paused(shell, SCRIPT, MOORED, *OPTIONS) as job:
            found = facts(job.output)
            cgroup = job_of(found["task"].text)
            during = user_processes(shell, who) - before
            (container,) = [seen for seen in during if seen.name == "sleep"]
            limits = own_settings(shell, container, "memory.max", "cpu.max", "pids.max", "cpuset.cpus")
            controllers = share(shell, container.cgroup).controllers
            of_job = share(shell, cgroup)
        left = user_processes(shell, who) - before
        yield Run(shell, who, job, found, cgroup, of_job, during, limits, controllers, left)


def test_every_process_is_below_the_jobs_cgroup(run: Run, figures: Figures) -> None:
    print("\n".join(places(run.during)))
    names = {seen.name for seen in run.during}
    assert {"slurm_script", "conmon", "sleep", "srun"} <= names
    assert any(seen.uid in run.owner.subordinate for seen in run.during)
    inside = len(run.during - outside(run.during, run.cgroup))
    assert outside(run.during, run.cgroup) == set()
    figures.add(f"of {len(run.during)} processes of the user with a moored job, below the job's cgroup", inside, "")


def test_a_container_has_its_own_limits_in_the_job(run: Run) -> None:
    """As many controllers as were asked for, and each with the value that was."""
    assert {"cpu", "cpuset", "memory", "pids"} <= run.controllers
    assert run.limits == {
        "memory.max": str(100 << 20),
        "cpu.max": "50000 100000",
        "pids.max": "50",
        "cpuset.cpus": run.share.cpus,
    }


def test_a_container_reaches_the_outside(run: Run) -> None:
    assert "10.0.2.15" in run["outside"]
    assert "default via" in run["outside"]
    assert run["through_host"] == "web answers"


def test_streams_and_exit_codes_are_those_of_the_container(run: Run) -> None:
    assert run.facts["input"] == Fact(9, "asked")


def test_podman_builds_keeps_volumes_and_executes(run: Run) -> None:
    assert run["build"]
    assert run["built"] == "built"
    assert run["kept"] == "content"
    assert run["exec"] == "web answers"
    assert run["remove"] == "web"


def test_containers_of_a_network_know_each_other_by_name(run: Run) -> None:
    assert run["by_name"] == "web answers"


def test_status_tells_of_this_job(run: Run) -> None:
    (status,) = json.loads(run["status"])["jobs"]
    assert (status["job"], status["state"], status["cluster"]) == (int(run.job.id), "ready", "none")
    assert status["usage"]["cpu_seconds"] > 0


def test_a_container_that_was_left_running_is_gone(run: Run) -> None:
    assert len(run["left"]) == 64
    assert run.left == set()


def test_the_output_shows_the_start_by_phase_and_the_use_at_the_end(run: Run, figures: Figures) -> None:
    said = [line for line in others(run.job.output) if line.startswith("moorage: ")]
    phases = [line for line in said if re.fullmatch(r"moorage: +[0-9]+\.[0-9] s  .+", line)]
    assert [line.partition(" s  ")[2] for line in phases] == [
        "starting the agents",
        "asking for a cgroup",
        "preparing Podman",
    ]
    last = r"moorage: started in ([0-9.]+) s, was up for .+; used .+ of CPU time, at most .+ of memory"
    found = re.fullmatch(last, said[-1])
    assert found, said
    assert others(run.job.output)[-1] == said[-1]
    figures.add("start-up of a moored job, cluster=none, as its last line has it", float(found.group(1)), "s")


def test_the_scripts_exit_code_is_the_jobs(run: Run) -> None:
    assert run.job.accounted("ExitCode") == ["7:0"]


def test_a_job_submitted_by_the_script_is_a_plain_one(run: Run) -> None:
    plain = Job(run.shell, run["plain"], "alice")
    plain.wait_gone()
    assert f"SLURM_JOB_ID={plain.id}" in plain.output.splitlines()
    assert "moorage: " not in plain.output
    assert "SPANK" not in plain.output
    assert plain.accounted("ExitCode") == ["0:0"]
