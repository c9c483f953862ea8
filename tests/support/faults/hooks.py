"""The installed hooks, run as slurmd would run them for a job of alice's."""

import subprocess
from pathlib import Path

from support.faults.changes import PLAIN, Twist

PROLOG = "/etc/slurm/prolog.d/50-moorage"
EPILOG = "/etc/slurm/epilog.d/50-moorage"
# A number that no job of the lab reaches.
JOB = 67000000
RUN = Path(f"/run/moorage/{JOB}")
# What slurmd tells its hooks, and no more: no PATH, for one.
TOLD = {
    "SLURMD_NODENAME": "n1",
    "SLURM_CLUSTER_NAME": "moorage",
    "SLURM_CONF": "/etc/slurm/slurm.conf",
    "SLURM_JOB_GID": "1001",
    "SLURM_JOB_ID": str(JOB),
    "SLURM_JOB_UID": "1001",
    "SLURM_JOB_USER": "alice",
    "SPANK_K8S": "cluster=none",
}
LIMIT = 120


def hook(path: str, twist: Twist = PLAIN) -> tuple[int, str]:
    """What it ends with, and what it says to slurmd."""
    environment, prefix = twist
    ended = subprocess.run(
        [*prefix, path], env={**TOLD, **environment}, cwd="/", stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    return ended.returncode, ended.stdout
