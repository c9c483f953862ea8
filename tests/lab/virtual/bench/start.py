"""How long it takes from submission to a ready cluster: Moorage and the reference, in turn, in the same guest.

Both are held ready by the same program, which asks the API of the cluster from within the job.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from moorage.common.errors import MoorageError

from ..build.payload import CARRIED, IMAGE
from ..build.progress import phase, say
from ..guest.shell import Shell
from ..jobs import cluster_job
from . import baseline

# What is measured in each round, in this order: the cold reference leaves the image behind that the warm one needs.
ARMS = ("reference, cold", "Moorage, cold", "reference, warm", "Moorage, warm", "reference, warm, our settings")
FORMS = ("warm", "cold")
# Of the ratio; what it must not exceed is for the full tests to say.
AIM = 0.35
# Of a job's processes that are there when it is ready, in hundredths of a second: what they have run is not counted.
PYTHON = r"""
pgrep -u "$(id -u)" -x 'py.*|moorage' | sed 's|.*|/proc/&/stat|' | xargs cat |
    awk '{ ticks += $14 + $15 } END { print ticks / 100 }'
"""
# What the cluster itself tells of its start is asked for once that is over.
SCRIPT = f"""
python3 -I -S {baseline.HOME}/await_ready.py "$KUBECONFIG"
echo "@$(date +%s.%N) phase ready"
echo "@$(date +%s.%N) python $({PYTHON})"
kubectl get nodes,pods --all-namespaces --output json | python3 {baseline.HOME}/milestones.py
echo "@$(date +%s.%N) phase told"
sleep infinity
"""
# What root has put on record of the last job on this node.
RECORDED = "tail --quiet --lines=1 $(ls /var/lib/moorage/records/*.jsonl | tail --lines=1)"
SETTLED = f"{CARRIED}/kind-memory.yaml"


@dataclass(frozen=True)
class Start:
    """`around` is what of it was spent neither in kind nor in waiting for what it has started: Slurm's part, too.

    `prolog` is the Prolog's part, of one, of what it is from its first moment to a cluster that is ready, and `python`
    the processor time of our own processes in the job, in seconds.
    """

    seconds: float
    around: float = 0.0
    prolog: float = 0.0
    python: float = 0.0


Starts = dict[str, list[Start]]


def report(shell: Shell, repeat: int, forms: Sequence[str]) -> Starts:
    """Print what every start took, the aim, and the ratios as the last line; returns the starts by arm."""
    arms = [arm for arm in ARMS if any(form in arm for form in forms)]
    baseline.prepare(shell, warm="cold" not in forms)
    starts: Starts = {arm: [] for arm in arms}
    for number in range(repeat):
        for arm in arms:
            with phase(f"round {number + 1} of {repeat}: {arm}"):
                starts[arm].append(measure(shell, arm))
            say(f"{arm}: ready after {starts[arm][-1].seconds:.1f} s")
    for arm, measured in starts.items():
        print(row(arm, measured))
    print(f"the aim of both ratios is {AIM}")
    said = (f"ratio_{form}={ratio(starts, form):.2f}" if form in forms else f"ratio_{form}=-" for form in FORMS)
    print(f"bench-start: {' '.join(said)}")
    return starts


def measure(shell: Shell, arm: str) -> Start:
    if "cold" in arm:
        forget(shell, arm)
    if arm.startswith("Moorage"):
        return moored_start(shell)
    configuration = SETTLED if "our settings" in arm else baseline.CONFIGURATION
    return Start(baseline.measure(shell, "cold" if "cold" in arm else "warm", configuration).seconds)


def forget(shell: Shell, arm: str) -> None:
    """As it is on a node that has done something else for long."""
    if arm.startswith("reference"):
        baseline.as_user(shell, ["podman", "rmi", "--force", "--ignore", IMAGE])
    shell.run(["sh", "-c", "sync; echo 3 >/proc/sys/vm/drop_caches"])


def moored_start(shell: Shell) -> Start:
    said: list[str] = []
    submitted = float(shell.output("date", "+%s.%N"))
    argv = ["lab-submit", cluster_job.MOORED, *baseline.JOB, f"--wrap={SCRIPT}"]
    with shell.lines(argv, user=baseline.USER, limit=baseline.LIMIT) as output:
        for line in output:
            said.append(line)
            if line.startswith("@") and line.endswith(" phase told"):
                break
        else:
            raise MoorageError("the job ended before its cluster was ready: " + "\n".join(said))
    shell.run(["scancel", "--user", baseline.USER])
    baseline.wait_no_jobs(shell)
    stamped = list(baseline.stamps(line for line in said if line.startswith("@")))
    ready = next(moment for moment, kind, text in stamped if (kind, text) == ("phase", "ready"))
    told = "\n".join(said)
    print("\n".join(cluster_job.table(told)))
    for moment, kind, text in stamped:
        if kind == "milestone":
            print(f"  {moment - submitted:7.1f}  {text}")
    python = next(float(text) for _, kind, text in stamped if kind == "python")
    return Start(ready - submitted, ready - submitted - cluster_job.in_kind(told), of_prolog(shell), python)


def of_prolog(shell: Shell) -> float:
    """In the last job that is over, by root's clock: Python's own start is part of it."""
    found = json.loads(shell.output("sh", "-euc", RECORDED))
    return float(found["phases"]["prolog"]) / float(found["start_seconds"])


def row(arm: str, starts: Sequence[Start]) -> str:
    seconds = sorted(start.seconds for start in starts)
    around = median(start.around for start in starts)
    python = median(start.python for start in starts)
    ours = f"our Python took {python:.1f} s of CPU time, {python / median(seconds):.1%} of a start"
    prolog = f"the Prolog {median(start.prolog for start in starts):.1%} by root's clock"
    passed = f"{around:.1f} s before kind begins and after the cluster is ready, in Slurm and Moorage"
    share = f"; {passed}; {ours}, {prolog}" if around else ""
    spread = f"{seconds[0]:.1f} to {seconds[-1]:.1f} in {len(seconds)} starts"
    return f"{arm:30}  median {median(seconds):6.1f} s, {spread}{share}"


def ratio(starts: Starts, form: str) -> float:
    ours, others = (median(start.seconds for start in starts[f"{who}, {form}"]) for who in ("Moorage", "reference"))
    return ours / others


def prologs(starts: Starts) -> float:
    """The Prolog's part of a start, in the middle of all of Moorage's."""
    return median(start.prolog for arm, measured in starts.items() if arm.startswith("Moorage") for start in measured)
