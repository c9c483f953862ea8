"""The demonstration: a user submits, a cluster comes up in the job and does its work, and nothing is left."""

from __future__ import annotations

from pathlib import Path

from moorage.common.errors import MoorageError

from .build.payload import CARRIED
from .build.progress import phase
from .guest.machine import Machine
from .guest.user_session import user_session
from .jobs import cluster_job
from .jobs.batch import Job
from .jobs.pause import PAUSE, SAYS, let_go_on
from .probes.job_limits import job_of
from .probes.leftovers import Thing, make_ready, record, report, settled
from .probes.processes import Seen, outside, owner, places, user_processes
from .recording import Recording

USER = "alice"
CLUSTER = {"kubelet", "etcd"}
SCRIPT = f"""
kubectl get nodes
kubectl apply --filename {CARRIED}/checks.yaml
kubectl wait --for=condition=complete --timeout=900s job/asker job/writer
kubectl logs job/asker
kubectl logs job/writer
kubectl get pods,persistentvolumeclaims --all-namespaces
echo "$(</proc/self/cgroup)"
{PAUSE}
"""

# Ends by itself, so that no process of it is taken for one of the job's.
FOLLOW = f"""
seen=0
show() {{
    lines=$(wc -l 2>/dev/null <"$2") || return 0
    [ "$lines" = "$seen" ] || sed -n "$((seen + 1)),${{lines}}p" "$2"
    seen=$lines
}}
until grep -qsx "{SAYS}" "$2" || ! squeue --noheader --jobs="$1" 2>/dev/null | grep -q .; do
    show "$@"
    sleep 2
done
show "$@"
"""


def show(machine: Machine, place: Path) -> None:
    """Print the job's output as it comes, then the phases of its start, where its processes were, and what was left.

    The same is recorded in `place`, as a picture.
    """
    make_ready(machine)
    recording = Recording()
    with user_session(machine.shell, USER):
        told, cgroup, processes, left = watched(machine, recording)
    inside = len(processes) - len(outside(processes, cgroup))
    print("\nseconds since the start of the job, and taken:", *cluster_job.table(told), sep="\n")
    print(f"where its {len(processes)} processes were:", *places(processes), sep="\n")
    recording.say(f"left on the node: {report(left) if left else 'nothing'}")
    recording.save(place)
    print(f"recorded in {place}")
    print(f"demo: ready={cluster_job.ready(told):.0f} in_job={inside}/{len(processes)} leftovers={len(left)}")
    if faults := amiss(processes, cgroup, left):
        raise MoorageError(f"the job has not shown what it should: {', '.join(faults)}")


def amiss(processes: set[Seen], cgroup: str, left: list[Thing]) -> list[str]:
    """What the job has not shown; without a cluster, processes outside of the job prove nothing."""
    absent = CLUSTER - {seen.name for seen in processes}
    faults = [f"no {name} was seen" for name in sorted(absent)]
    faults += [f"{seen.name} ran in {seen.cgroup}" for seen in outside(processes, cgroup)]
    return faults + ["something is left on the node"] * bool(left)


def watched(machine: Machine, recording: Recording) -> tuple[str, str, set[Seen], list[Thing]]:
    """One job: its output, its cgroup, the processes there were while its cluster ran, and what it left."""
    shell, who = machine.shell, owner(machine.shell, USER)
    before, others = record(machine), user_processes(shell, who)
    job = cluster_job.cluster_job(shell, SCRIPT)
    recording.say(
        f"$ sbatch {cluster_job.MOORED} job.sh\nSubmitted batch job {job.id}\n$ tail --follow {Path(job.place).name}"
    )
    try:
        cgroup = job_of(follow(job, recording))
        processes = user_processes(shell, who) - others
        let_go_on(job)
        with phase("the job ends"):
            job.wait_gone()
    finally:
        job.cancel("--quiet")
    if job.accounted("ExitCode") != ["0:0"]:
        raise MoorageError(f"job {job.id} has failed")
    return job.output, cgroup, processes, settled(machine, before)[1]


def follow(job: Job, recording: Recording) -> str:
    """Print its output until its script pauses; returns the line before, which names its cgroup."""
    argv = ["sh", "-c", FOLLOW, "sh", job.id, job.place]
    with job.shell.lines(argv, user=job.user, limit=cluster_job.START_LIMIT) as output:
        said = ""
        for line in output:
            if line == SAYS:
                return said
            recording.say(line)
            said = line
    raise MoorageError(f"job {job.id} has ended before its cluster had done its work")
