"""What a job with a cluster survives and what it does not, in one guest: each start of a cluster takes minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pytest

from virtual.aboard import HEARS, Roles, tell, wait_until
from virtual.cache import CACHE
from virtual.jobs import Job
from virtual.leftovers import AT_A_POWER_CUT, Watch, make_ready
from virtual.moored import MOORED, START_LIMIT, moored
from virtual.under_way import RUNS, WAITS, under_way, watched
from virtual.upsets import epilog, requeued, slurmd_restarted, suspended_and_resumed, warden_restarted

DIRECTORY = CACHE / "test-survivals"
PORT = 23100
SUITE = "trixie"
MIDDLE = "starting the control plane"
# Under emulation one question takes seconds, and after a suspension leases have to be taken anew.
ANSWERS_WITHIN = 600.0
POD = "kubectl run hand --image=localhost/lab/busybox:1 --restart=Never --command -- sleep 36000"
UPSETS: Mapping[str, Callable[[Job], None]] = {
    "warden": warden_restarted,
    "slurmd": slurmd_restarted,
    "suspension": suspended_and_resumed,
}
# To the pod it gets by way of the API, the kubelet and the node's container runtime.
SURVIVES = f"""
{HEARS}
{POD}
kubectl wait --for=condition=Ready --timeout=1200s pod/hand
{RUNS}
for upset in {" ".join(UPSETS)}; do
    told $upset
    until kubectl exec hand -- echo "the pod works after $upset"; do sleep 1; done
done
told conmon
exit 3
"""


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    with watched(DIRECTORY, SUITE, PORT) as found:
        yield found


def test_a_cluster_goes_on_after_all_that_a_job_survives(watch: Watch) -> None:
    """Its pod is the same one throughout. Last of all the monitor of the node's container is killed, which Podman does
    not mend: the script fails by itself, and a second Epilog finds nothing to do.
    """
    with watch.nothing_left() as endings:
        job = under_way(watch, SURVIVES)
        endings[job.id] = f"failing script after {', '.join(UPSETS)} and SIGKILL of conmon, two Epilogs"
        for name, upset in UPSETS.items():
            upset(job)
            tell(job, name)
            job.wait_said(f"^the pod works after {name}", ANSWERS_WITHIN)
        Roles(job).kill("conmon")
        tell(job, "conmon")
        job.wait_gone()
        epilog(watch.machine.shell, job.id, MOORED)
    assert job.end == ("FAILED", "3:0")
    assert "lost:" not in job.output


def test_a_requeue_while_it_runs_and_the_end_of_its_second_start(watch: Watch) -> None:
    with watch.nothing_left() as endings:
        job = under_way(watch, WAITS, "--requeue", "--open-mode=append")
        endings[job.id] = "requeue, then scancel in the middle of the second start"
        requeued(job)
        wait_until(lambda: job.output.count(MIDDLE) > 1, "there is no second start", START_LIMIT)
        job.cancel()
        job.wait_gone()
    assert job.end[0] == "CANCELLED"
    assert job.output.count("under way") == 1


def test_a_power_cut_while_it_runs(watch: Watch) -> None:
    """The node clears up at boot, and the next job has a cluster of its own, whose failing script is its end."""
    cut = replace(watch, before=None, excluded=(*watch.excluded, AT_A_POWER_CUT))
    with cut.nothing_left() as endings:
        lost = under_way(cut, WAITS, "--no-requeue")
        endings[lost.id] = "power cut while its cluster ran"
        cut.lab.reset(cut.machine.name)
        make_ready(cut.machine)
        job = moored(cut.machine.shell, f"{RUNS} exit 7")
        endings[job.id] = "the next one, whose script fails"
        job.wait_gone(START_LIMIT)
    assert lost.accounted("State") == ["NODE_FAIL"]
    assert " Ready " in job.output
    assert job.end == ("FAILED", "7:0")
