"""A pod that asks for a service before kube-proxy has its rules is refused: it comes again, and nobody waits for it.

kube-proxy is paused at its start until the first such connection has been answered with a reset.
"""

from __future__ import annotations

import pytest

from virtual.guest.cluster import Cluster
from virtual.jobs.cluster_job import START_LIMIT, cluster_job
from virtual.jobs.pause import PAUSE, SAYS, let_go_on

UNIT = "lab-hold"
SEEN = "/run/lab-refused"
RESET = "src net 10.96.0.0/16 and tcp[tcpflags] & tcp-rst != 0"
HOLD = """
until node=$(pgrep --full '/usr/local/bin/containerd$' | head --lines=1) && [ -n "$node" ]; do sleep 0.3; done
exec 9<"/proc/$node/ns/net"
until proxy=$(pgrep --exact kube-proxy | head --lines=1) && [ -n "$proxy" ]; do sleep 0.1; done
kill -STOP "$proxy"
trap 'kill -CONT "$proxy"' EXIT
timeout 300 nsenter --net=/proc/self/fd/9 tcpdump -i any -n -c 1 "$1" >"$2"
"""


@pytest.mark.long
@pytest.mark.parametrize("lab", ["trixie"], indirect=True)
def test_who_comes_before_the_rules_is_refused(alone: Cluster) -> None:
    shell = alone.first.shell
    unit = [f"--unit={UNIT}", "--collect", "sh", "-euc", HOLD, "sh", RESET, SEEN]
    shell.run(["systemd-run", "--quiet", *unit])
    try:
        job = cluster_job(shell, PAUSE)
        try:
            job.wait_said(SAYS, START_LIMIT)
            # The job's cluster is ready although kube-proxy was the last to come.
            assert "Flags [R" in shell.output("cat", SEEN)
            let_go_on(job)
            job.wait_gone()
        finally:
            job.cancel("--quiet")
    finally:
        shell.run(["systemctl", "stop", UNIT], ok=range(256))
