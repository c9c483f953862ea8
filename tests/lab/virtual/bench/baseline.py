"""The reference: a plain kind cluster in a Slurm job, measured from submission to ready, and its leftovers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from moorage.common.errors import MoorageError

from ..build.payload import CARRIED, IMAGE
from ..build.progress import phase, say
from ..guest.shell import Shell
from ..probes.processes import Owner, Seen, outside, owner, places, user_processes

FORMS = ("cold", "warm")
USER = "alice"
REFERENCE = Path(__file__).resolve().parents[1] / "in_guest/reference"
HOME = f"/home/{USER}/reference"
CONFIGURATION = f"{CARRIED}/kind.yaml"
LIMIT = 2400.0
END_LIMIT = 180.0
JOB = ["--job-name=reference", "--cpus-per-task=2", "--mem=4G", "--time=60"]


@dataclass
class Measured:
    """One cluster's life. Phases are (what, seconds since submission)."""

    form: str
    phases: list[tuple[str, float]] = field(default_factory=list)
    cgroup: str = ""
    during: set[Seen] = field(default_factory=set)
    left: set[Seen] = field(default_factory=set)

    @property
    def seconds(self) -> float:
        return self.phases[-1][1]

    @property
    def outside(self) -> set[Seen]:
        return outside(self.during, self.cgroup)


def report(shell: Shell, forms: Sequence[str] | None) -> None:
    """Measure the wanted forms, cold first: it leaves the image behind that warm starts from."""
    wanted = [form for form in FORMS if form in (forms or FORMS)]
    prepare(shell, warm=wanted == ["warm"])
    results = {form: measure(shell, form) for form in wanted}
    for result in results.values():
        print(table(result))
    print(last_line(results))


def prepare(shell: Shell, *, warm: bool) -> None:
    """What a site does once for this way of working; that Podman stores off the network home, it has done already."""
    with phase(f"preparing the user {USER} as the reference asks: lingering"):
        for name in ("job.sh", "await_ready.py", "check.sh", "milestones.py"):
            shell.put(REFERENCE / name, f"{HOME}/{name}", mode="755", owner=USER)
        shell.run(["loginctl", "enable-linger", USER])
        shell.run(["systemctl", "start", f"user@{owner(shell, USER).uid}.service"])
    if warm:
        with phase("loading the node image into the user's store, before the job"):
            as_user(shell, ["podman", "load", "--quiet", "--input", f"{CARRIED}/node-image.tar"], limit=LIMIT)


def measure(shell: Shell, form: str, configuration: str = CONFIGURATION) -> Measured:
    """One job from submission to its last process, or its leftovers."""
    who = owner(shell, USER)
    result, before = Measured(form), user_processes(shell, who)
    submitted = float(shell.output("date", "+%s.%N"))
    job = [f"{HOME}/job.sh", form, configuration, IMAGE, f"{CARRIED}/node-image.tar"]
    with phase(f"reference cluster, {form}"), shell.lines(["lab-submit", *JOB, *job], user=USER, limit=LIMIT) as output:
        for moment, kind, text in stamps(output):
            if kind == "cgroup":
                result.cgroup = text.rpartition("/step_")[0]
            if kind == "phase":
                result.phases.append((text, moment - submitted))
                say(f"  {text}")
            if (kind, text) == ("phase", "ready"):
                result.during = user_processes(shell, who) - before
                check(shell)
                shell.run(["scancel", "--user", USER])
                break
        else:
            raise MoorageError(f"the reference job ended before its cluster was ready, after: {result.phases[-1:]}")
    wait_no_jobs(shell)
    result.left = user_processes(shell, who) - before
    clean(shell, who)
    return result


def stamps(output: Iterator[str]) -> Iterator[tuple[float, str, str]]:
    """The lines of the job's script that carry a moment; the others are shown as they are."""
    for line in output:
        if line.startswith("@"):
            moment, kind, text = line[1:].split(" ", 2)
            yield float(moment), kind, text
        if not line.startswith("@") or " kind ERROR" in line:
            say(f"  {line}")


def check(shell: Shell) -> None:
    """Check that a volume is bound, and that a service answers by its name."""
    with phase("checking the cluster: volume, service by name"):
        as_user(shell, [f"{HOME}/check.sh", CARRIED], limit=LIMIT)


def wait_no_jobs(shell: Shell) -> None:
    deadline = time.monotonic() + END_LIMIT
    while shell.output("squeue", "--noheader"):
        if time.monotonic() > deadline:
            raise MoorageError(f"the cancelled job is still there after {END_LIMIT:.0f} s")
        time.sleep(0.5)


def clean(shell: Shell, who: Owner) -> None:
    """Remove the containers that the job left; nothing else does."""
    with phase("removing by hand what the job left"):
        as_user(shell, ["podman", "rm", "--all", "--force", "--volumes", "--time", "0"])


def as_user(shell: Shell, argv: list[str], limit: float = 600.0) -> str:
    session = f"/run/user/{owner(shell, USER).uid}"
    environment = [f"XDG_RUNTIME_DIR={session}", f"DBUS_SESSION_BUS_ADDRESS=unix:path={session}/bus"]
    return shell.output("env", *environment, *argv, user=USER, limit=limit)


def table(result: Measured) -> str:
    moments = [moment for _, moment in result.phases]
    rows = [
        f"  {moment:7.1f}  {after - moment:7.1f}  {name}"
        for (name, moment), after in zip(result.phases[:-1], moments[1:], strict=True)
    ]
    lines = [
        f"reference, {result.form}: seconds since submission, and taken",
        *rows,
        f"  {result.seconds:7.1f}           ready",
        f"where its {len(result.during)} processes are ({len(result.outside)} outside the job's cgroup):",
        *places(result.during),
        f"left after scancel: {len(result.left)} processes",
        *places(result.left),
        "",
    ]
    return "\n".join(lines)


def last_line(results: dict[str, Measured]) -> str:
    times = (f"{form}={results[form].seconds:.1f}" if form in results else f"{form}=-" for form in ("warm", "cold"))
    worst = list(results.values())[-1]
    return f"baseline: {' '.join(times)} outside_job={len(worst.outside)} left_after_scancel={len(worst.left)}"
