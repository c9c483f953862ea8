"""What is above a moored job's containers is the job's share of the node, whatever the job's shape, and no more."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pytest

from support.figures import Figures
from virtual.guest.cluster import Cluster
from virtual.guest.cores import more_cores
from virtual.guest.device import ABSENT, GRES, OPENED, described, described_by_its_vendor
from virtual.guest.shell import Shell
from virtual.jobs.batch import MOORED, run
from virtual.jobs.facts import SHELL, facts, others
from virtual.jobs.pause import PAUSE, paused
from virtual.probes.job_limits import count, job_of, share
from virtual.probes.processes import owner, user_processes

# What the containers of a job are not given of its memory, in MiB.
RESERVE = 128
# How much later a step may start beside our own than in a plain job; under emulation one start differs from the next.
LATER = 5.0
TASKS = r"""
begun=$EPOCHREALTIME
fact step srun $STEP bash -c 'echo task $SLURM_PROCID $EPOCHREALTIME'
echo "begun $begun"
"""
SCRIPT = rf"""
{SHELL}
fact task cat /proc/self/cgroup
podman load --quiet --input /srv/lab/shell.tar
podman run --quiet --detach --network none localhost/lab/shell:1 sleep 4321
fact device podman run --rm --network none --device /dev/lab0 localhost/lab/shell:1 \
    dd if=/dev/lab0 of=/dev/null bs=3 count=1
{TASKS}
{PAUSE}
"""


@dataclass(frozen=True)
class Shape:
    options: tuple[str, ...]
    cpus: int
    memory: int
    step: str
    tasks: int
    device: bool = False


# Sixteen cores, of which the node has two.
LARGE = Shape(("--ntasks=8", "--cpus-per-task=2", "--mem-per-cpu=50M"), cpus=2, memory=800, step="--ntasks=8", tasks=8)
# Of jobs that fit on this node as it is: more tasks than it has cores are then a step's affair.
SHAPES = {
    "-n1 -c2 --mem-per-cpu, srun -n8": Shape(
        ("--ntasks=1", "--cpus-per-task=2", "--mem-per-cpu=400M"),
        cpus=2,
        memory=800,
        step="--ntasks=8 --overcommit",
        tasks=8,
    ),
    "--ntasks-per-node --hint --gres": Shape(
        ("--nodes=1", "--ntasks-per-node=2", "--hint=nomultithread", "--gres=lab:1", "--mem=700M"),
        cpus=2,
        memory=700,
        step="",
        tasks=2,
        device=True,
    ),
    "-n1 --mem-per-cpu": Shape(("--ntasks=1", "--mem-per-cpu=600M"), cpus=1, memory=600, step="", tasks=1),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_containers_have_the_share_of_their_job(lab: Cluster, shape: Shape, figures: Figures) -> None:
    show(lab, shape, figures)


@pytest.mark.long
def test_a_job_of_eight_tasks_with_two_cores_each(lab: Cluster, figures: Figures) -> None:
    """Of all its cores the node has two; its own step has them all, and so has ours."""
    with more_cores(lab, 16):
        show(lab, LARGE, figures, "-n8 -c2, ")


def show(lab: Cluster, shape: Shape, figures: Figures, name: str = "") -> None:
    shell = lab.first.shell
    who = owner(shell, "alice")
    before = user_processes(shell, who)
    with paused(shell, f"STEP='{shape.step}'\n{SCRIPT}", MOORED, "--nodelist=n1", *shape.options) as job:
        output = job.output
        during = user_processes(shell, who) - before
        (container,) = [seen for seen in during if seen.name == "sleep"]
        lent = container.cgroup.partition("/k8s")[0]
        of_job = share(shell, job_of(facts(output)["task"].text))
        of_lent, of_container = share(shell, lent), share(shell, container.cgroup)
    assert (count(of_job.cpus), of_job.memory) == (shape.cpus, shape.memory)
    assert (of_lent.cpus, of_lent.memory) == (of_job.cpus, of_job.memory)
    assert (of_container.cpus, of_container.memory) == (of_job.cpus, shape.memory - RESERVE)
    assert (facts(output)["device"].code == 0) == shape.device, facts(output)["device"]
    assert shape.device or "not permitted" in facts(output)["device"].text
    plain = run(shell, f"STEP='{shape.step}'\n{SHELL}{TASKS}", "--nodelist=n1", *shape.options)
    waits = [last_start(text, shape.tasks) for text in (output, plain.output)]
    for kind, wait in zip(("moored", "plain"), waits, strict=True):
        figures.add(f"{name}srun of {shape.tasks} task(s) to the start of its last, {kind}", wait, "s")
    assert waits[0] <= waits[1] + LATER


DESCRIBED = rf"""
{SHELL}
podman load --quiet --input /srv/lab/shell.tar
fact device podman run --rm --network none localhost/lab/shell:1 \
    sh -c 'echo "LAB=$LAB"; dd if=/dev/lab0 of=/dev/null bs=3 count=1'
"""


@pytest.mark.parametrize("way", [described, described_by_its_vendor], ids=["by its site", "by CDI"])
@pytest.mark.parametrize(("options", "said"), [((GRES,), OPENED), ((), ABSENT)], ids=["with", "without"])
def test_who_has_the_resource_has_the_device_that_is_described(
    lab: Cluster, options: tuple[str, ...], said: str, way: Callable[[Shell], AbstractContextManager[None]]
) -> None:
    """Who has not got it has containers all the same."""
    shell = lab.first.shell
    with way(shell):
        job = run(shell, DESCRIBED, MOORED, "--nodelist=n1", "--cpus-per-task=1", "--mem=512M", *options)
    device = facts(job.output)["device"]
    given = said == OPENED
    assert device.lines[0] == ("LAB=yes" if given else "LAB="), device
    assert (device.code == 0) == given, device
    assert said in device.text


def last_start(output: str, tasks: int) -> float:
    """From the call of srun to the start of its last task; srun has nothing to say meanwhile."""
    (begun,) = [float(line.split()[1]) for line in others(output) if line.startswith("begun ")]
    step = facts(output)["step"]
    starts = re.findall(r"^task ([0-9]+) ([0-9.]+)$", step.text, re.MULTILINE)
    assert sorted(int(number) for number, _ in starts) == list(range(tasks)), step.text
    assert len(step.lines) == tasks, step.text
    return max(float(moment) for _, moment in starts) - begun
