"""A cluster that does not come up: what its job says, what is kept for who looks into it, and that nothing stays."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.faults.fault import CODE
from virtual.build.payload import CARRIED, IMAGE
from virtual.guest.broken_node import configured
from virtual.guest.cluster import Cluster
from virtual.guest.shell import Shell
from virtual.guest.user_session import user_session
from virtual.jobs.batch import submit
from virtual.jobs.cluster_job import MOORED, OPTIONS, START_LIMIT
from virtual.probes.leftovers import Watch, make_ready

pytestmark = pytest.mark.long

USER = "alice"
STOPS = "/usr/local/bin/kind-that-stops"
# Slow as it is, a start in the lab keeps limits without patience up to there.
SETTINGS = f"kubernetes: {json.dumps({'image': IMAGE, 'kind': STOPS, 'patience': 1})}"
LIMIT = 60
PHASE = "installing the pod network"
LINE = re.compile(rf"^moorage: {PHASE}: not done after {LIMIT} s{CODE} \(more in (/\S+)\)$", re.MULTILINE)
PARTS = {"cause", "phases", "this job", "srun and the tasks", "root's parts on n1"}
PARTS |= {f"{log} on n1" for log in ("kind", "node container", "pods", "containers", "containerd", "kubelet")}
FILES = {"kubeadm": "/kind/kubeadm.conf", "administrator": "/etc/kubernetes/admin.conf"}
# It says more than it should before it stops, with what it has begun going on behind it.
PROGRAM = f"""#!/bin/sh
{CARRIED}/kind "$@" 2>&1 | while IFS= read -r line; do
    printf '%s\\n' "$line"
    case $line in *"Installing CNI"*)
        podman exec "moorage-$SLURM_JOB_ID-control-plane" cat {" ".join(FILES.values())}
        sleep 3600
        ;;
    esac
done
"""


@pytest.mark.parametrize("lab", ["trixie"], indirect=True)
def test_a_phase_that_runs_out_is_named_and_all_that_helps_is_kept(lab: Cluster) -> None:
    shell = lab.first.shell
    make_ready(lab.first)
    with a_kind_that_stops(shell), Watch(lab, lab.first).nothing_left() as endings, lab.others_waiting():
        job = submit(shell, "echo never", MOORED, *OPTIONS)
        endings[job.id] = f"{PHASE} takes too long"
        job.wait_said(PHASE, START_LIMIT)
        hidden = secrets(shell)
        job.wait_gone()
    assert job.end == ("FAILED", "1:0")
    assert "never" not in job.output
    assert job.output.count("not done after") == 1
    (place,) = LINE.findall(job.output)
    assert Path(place).parent == Path(shell.output("pwd", user=USER))
    assert shell.output("stat", "--format=%a %U", place, user=USER) == f"600 {USER}"
    kept = shell.output("cat", place, user=USER)
    check_parts(parts(kept))
    assert [secret for secret in hidden if secret in kept] == []


def check_parts(found: dict[str, str]) -> None:
    assert found.keys() >= PARTS
    assert re.fullmatch(f"{PHASE}: not done after {LIMIT} s{CODE}", found["cause"]), found["cause"]
    assert "creating the node container" in found["phases"]
    # What was said of the secrets is there, without them.
    assert "Starting control-plane" in found["kind on n1"]
    assert "client-key-data: (removed)" in found["kind on n1"]
    assert " kubelet[" in found["kubelet on n1"]
    assert " containerd[" in found["containerd on n1"]
    assert "/kube-scheduler-" in found["pods on n1"]
    assert "Multi-User System" in found["node container on n1"]


def parts(kept: str) -> dict[str, str]:
    """By their titles."""
    _, *pieces = re.split(r"^==== (.+)\n", kept, flags=re.MULTILINE)
    return {title: text.strip() for title, text in zip(pieces[::2], pieces[1::2], strict=True)}


def secrets(shell: Shell) -> list[str]:
    """What would let others into this very cluster: the token by which nodes join, and an administrator's key."""
    node = f"/proc/{shell.output('pgrep', '--exact', '--oldest', 'kubelet')}/root"
    kubeadm, administrator = (shell.output("cat", f"{node}{place}") for place in FILES.values())
    tokens = set(re.findall(r"token: \"?([a-z0-9]{6}\.[a-z0-9]{16})\b", kubeadm))
    keys = re.findall(r"client-key-data: (\S+)", administrator)
    assert (len(tokens), len(keys)) == (1, 1)
    return [*tokens, *keys]


@contextmanager
def a_kind_that_stops(shell: Shell) -> Iterator[None]:
    """The site's own program."""
    shell.run(["sh", "-euc", 'cat >"$1" && chmod 755 "$1"', "sh", STOPS], input=PROGRAM.encode())
    try:
        with user_session(shell, USER), configured(shell, SETTINGS):
            yield
    finally:
        shell.run(["rm", STOPS])
