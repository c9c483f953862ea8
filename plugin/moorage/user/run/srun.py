"""The step in which the agents of a job run: two tasks a node, beside everything else that the job does."""

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
# SLURM_LOCALID of the two.
AGENT: Final = 0

# The job, and the controller to ask about it. All else of Slurm's would shape the step as if the user had asked for it.
NAMES_THE_JOB: Final = ("SLURM_JOB_ID", "SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURM_WORKING_CLUSTER", "SLURM_JWT")
# The rest of an environment may hold anything: a library path of the user's can keep srun from starting.
PERSONAL: Final = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ")
# The nodes of a cluster have them from whoever makes them, for what pods fetch.
PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")

# Seen with 24.11 and 26.05. Each is given, because srun also takes them from the job (--hint, --gres, ...), from its
# environment and from slurm.conf.
OPTIONS: Final[Mapping[str, str | None]] = {
    "job-name": NAME,
    # The share: all that the job has on each node, held together with the job's other steps.
    "overlap": None,
    "overcommit": None,
    "mem": "0",
    "cpu-bind": "none",
    "mem-bind": "none",
    "distribution": "block",
    "resv-ports": "0",
    # The tasks are no MPI programs: one may end, or a node be lost, and the others go on.
    "mpi": "none",
    "kill-on-bad-exit": "0",
    "wait": "0",
    "no-kill": None,
    # The streams are a channel: whole, to and from every task, with no label. --unbuffered would put a terminal there.
    "input": "all",
    "output": "all",
    "error": "all",
    # A site's own programs around a step of the user's.
    "prolog": "none",
    "epilog": "none",
    "export": "ALL",
    # Limits of the login node where the job was submitted.
    "propagate": "NONE",
    # A directory that no node lacks, and that no file server has.
    "chdir": "/",
}


def argv(
    srun: Path, job: int, nodes: int, program: Sequence[str], hosts: Sequence[str] = (), tasks: int = TASKS
) -> list[str]:
    """On `hosts`, so many as `nodes` says, or on all that the job has."""
    shape: dict[str, object] = {"jobid": job, "nodes": nodes, "ntasks": nodes * tasks, "ntasks-per-node": tasks}
    if hosts:
        shape["nodelist"] = ",".join(hosts)
    options = [f"--{name}={value}" for name, value in shape.items()]
    options += [f"--{name}" if value is None else f"--{name}={value}" for name, value in OPTIONS.items()]
    return [str(srun), *options, *program]


def end_argv(srun: Path, job: int, number: str) -> list[str]:
    """What ends the step, whose agents heed no other signal."""
    return [str(srun.with_name("scancel")), "--quiet", "--signal=KILL", f"{job}.{number}"]


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    kept = {name: environ[name] for name in (*NAMES_THE_JOB, *PERSONAL, *PROXIES) if name in environ}
    return {"PATH": command.PATH, **kept}


def nodes(environ: Mapping[str, str]) -> int:
    """How many nodes the job has."""
    if "SLURM_HET_SIZE" in environ:
        raise heterogeneous()
    number = environ.get("SLURM_JOB_NUM_NODES", "")
    if not number.isdecimal() or int(number) < 1:
        raise UserError(f"SLURM_JOB_NUM_NODES is {number!r}", "leave what Slurm has set as it is")
    return int(number)


def srun(known: Path | None, environ: Mapping[str, str]) -> Path:
    """The site's own, by its absolute path: there may be another one in the user's PATH."""
    if known and known.is_file():
        return known
    for path in (command.PATH, environ.get("PATH", "")):
        if found := shutil.which("srun", path=path):
            return Path(found).absolute()
    raise UserError("there is no srun on this node", "tell the administrator: moorage.yaml can say where it is")
