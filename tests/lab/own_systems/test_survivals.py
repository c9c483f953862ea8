"""What a job with a cluster survives, one after the other: each start of a cluster takes minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from virtual.build.cache import CACHE
from virtual.jobs.batch import Job
from virtual.jobs.cluster_job import MOORED
from virtual.jobs.container_job import HEARS, Roles, tell
from virtual.jobs.disturbances import epilog, slurmd_restarted, suspended_and_resumed, warden_restarted
from virtual.jobs.started_job import RUNS, started_job, watched
from virtual.probes.leftovers import Watch

pytestmark = pytest.mark.long

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
        job = started_job(watch, SURVIVES)
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
