"""What the container of a cluster's node copies when it starts: next to nothing from a prepared image."""

from __future__ import annotations

import pytest

from support.figures import Figures
from virtual.build.payload import CARRIED, IMAGE
from virtual.guest.cluster import Cluster
from virtual.guest.shell import Shell
from virtual.jobs.batch import MOORED, submit
from virtual.jobs.facts import SHELL, facts
from virtual.jobs.pause import PAUSE, SAYS, let_go_on

pytestmark = pytest.mark.long

AT_MOST = 5.0
# In an image that somebody publishes it is hundreds: in the lab's all of Kubernetes is one program, carried once.
AT_LEAST = 50.0
MEGABYTE = 1e6
LIMIT = 1200.0
ARCHIVE = f"{CARRIED}/node-image.tar"
PLAIN = "localhost/lab/as-it-came:1"
# With the volume that kind gives a node for its /var. What the node then does is left out: just what it starts from.
STARTS = r"""
start() {
    local begun=$EPOCHREALTIME
    fact "$1" podman run --name "$1" --network none --volume /var --entrypoint /bin/true "$2"
    fact "$1-seconds" echo "$begun $EPOCHREALTIME"
    fact "$1-volume" podman inspect --format '{{range .Mounts}}{{.Source}}{{end}}' "$1"
}
"""


def test_a_prepared_image_is_hardly_copied(alone: Cluster, figures: Figures) -> None:
    """In turn with the same image as it came."""
    shell = alone.first.shell
    shell.run(["moorage", "image", "add", f"--name={PLAIN}", ARCHIVE], limit=LIMIT)
    script = f"{SHELL}{STARTS}\nstart prepared '{IMAGE}'\nstart plain '{PLAIN}'\n{PAUSE}"
    job = submit(shell, script, MOORED, "--nodelist=n1", "--cpus-per-task=2", "--mem=2G")
    try:
        job.wait_said(SAYS, LIMIT)
        found = facts(job.output)
        assert (found["prepared"].code, found["plain"].code) == (0, 0), job.output
        copied = {kind: megabytes(shell, found[f"{kind}-volume"].text) for kind in ("prepared", "plain")}
        let_go_on(job)
        job.wait_gone()
    finally:
        job.cancel("--quiet")
    suite = alone.request.suite
    for kind in ("plain", "prepared"):
        begun, ended = map(float, found[f"{kind}-seconds"].text.split())
        figures.add(f"start of a container from the {kind} node image ({suite})", ended - begun, "s")
    figures.add(f"copied at that start, plain ({suite})", copied["plain"], "MB", at_least=AT_LEAST)
    figures.add(f"copied at that start, prepared ({suite})", copied["prepared"], "MB", at_most=AT_MOST)


def megabytes(shell: Shell, volume: str) -> float:
    """As root sees it; what is counted are the bytes in files."""
    assert volume.startswith("/run/moorage/"), volume
    return int(shell.output("du", "--summarize", "--apparent-size", "--block-size=1", volume).split()[0]) / MEGABYTE
