"""The step in which the agents of a job run: two tasks on each node, beside the job's other steps."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from moorage.common import command
from moorage.common.errors import UserError
from moorage.common.participants import heterogeneous

NAME: Final = "moorage"
TASKS: Final = 2
# SLURM_LOCALID of the agent; the other task is the placeholder.
AGENT: Final = 0

# The job, and its controller. Slurm's other variables would change the step as if the user had asked for it.
NAMES_THE_JOB: Final = ("SLURM_JOB_ID", "SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURM_WORKING_CLUSTER", "SLURM_JWT")
# Other variables can do harm: a user's library path can keep srun from starting.
PERSONAL: Final = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ")
# The nodes of a cluster need them to fetch images.
PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")

# Seen with 24.11 and 26.05. Each option is given, because srun also takes defaults from the job (--hint, --gres, ...),
# from its environment and from slurm.conf.
OPTIONS: Final[Mapping[str, str | None]] = {
    "job-name": NAME,
    # The step has all that the job has on each node, and shares it with the job's other steps.
    "overlap": None,
    "overcommit": None,
    "mem": "0",
    "cpu-bind": "none",
    "mem-bind": "none",
    "distribution": "block",
    "resv-ports": "0",
    # The tasks are no MPI programs: when one ends, or a node is lost, the others go on.
    "mpi": "none",
    "kill-on-bad-exit": "0",
    "wait": "0",
    "no-kill": None,
    # The streams are a channel to and from every task, without labels. --unbuffered would make them a terminal.
    "input": "all",
    "output": "all",
    "error": "all",
    # A site's own programs are for steps of the user's.
    "prolog": "none",
    "epilog": "none",
    "export": "ALL",
    # These would be the limits of the login node.
    "propagate": "NONE",
    # Every node has this directory, and it is not on a file server.
    "chdir": "/",
}


def argv(
    srun: Path, job: int, nodes: int, program: Sequence[str], hosts: Sequence[str] = (), tasks: int = TASKS
) -> list[str]:
    """The command that runs a program on these hosts, or on all nodes of the job; `nodes` is their number."""
    shape: dict[str, object] = {"jobid": job, "nodes": nodes, "ntasks": nodes * tasks, "ntasks-per-node": tasks}
    if hosts:
        shape["nodelist"] = ",".join(hosts)
    options = [f"--{name}={value}" for name, value in shape.items()]
    options += [f"--{name}" if value is None else f"--{name}={value}" for name, value in OPTIONS.items()]
    return [str(srun), *options, *program]


def end_argv(srun: Path, job: int, number: str) -> list[str]:
    """The command that ends the step; its agents ignore all other signals."""
    return [str(srun.with_name("scancel")), "--quiet", "--signal=KILL", f"{job}.{number}"]


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    kept = {name: environ[name] for name in (*NAMES_THE_JOB, *PERSONAL, *PROXIES) if name in environ}
    return {"PATH": command.PATH, **kept}


def nodes(environ: Mapping[str, str]) -> int:
    """The number of the job's nodes."""
    if "SLURM_HET_SIZE" in environ:
        raise heterogeneous()
    number = environ.get("SLURM_JOB_NUM_NODES", "")
    if not number.isdecimal() or int(number) < 1:
        raise UserError(f"SLURM_JOB_NUM_NODES is {number!r}", "leave what Slurm has set as it is", code="M-JOB-27")
    return int(number)


def srun(known: Path | None, environ: Mapping[str, str]) -> Path:
    """The site's srun, by its absolute path: the user's PATH may lead to another one."""
    if known and known.is_file():
        return known
    for path in (command.PATH, environ.get("PATH", "")):
        if found := shutil.which("srun", path=path):
            return Path(found).absolute()
    raise UserError(
        "there is no srun on this node", "tell the administrator: moorage.yaml can say where it is", code="M-JOB-28"
    )
