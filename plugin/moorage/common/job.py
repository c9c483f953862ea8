"""A job on this node, as slurmd describes it to its hooks, and the paths that belong to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from moorage.common.errors import MoorageError

RUN: Final = Path("/run/moorage")
STATE: Final = Path("/var/lib/moorage/jobs")
LOG: Final = "log"

# -1 and -2 mean "none", for Slurm's job ids as for user and group ids.
LARGEST_ID: Final = (1 << 32) - 3
MOST_RESTARTS: Final = (1 << 16) - 1

_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_NODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
# As directories of users have them: DOMAIN\user, user@realm, machine$.
_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@\\+-]{0,254}\$?")
# Slurm 26.05 names a job's cgroup by this unless told otherwise.
_SLUID: Final = re.compile(r"s[0-9A-Z]{1,31}")


@dataclass(frozen=True)
class Job:
    """One run of a job on one node. A requeued job has the same id and another restart count."""

    id: int
    restart: int
    uid: int
    gid: int
    user: str
    node: str
    names: frozenset[str]

    @classmethod
    def from_hook(cls, environ: Mapping[str, str]) -> Self:
        """The job for which a Prolog or an Epilog runs."""
        number = _number(environ, "SLURM_JOB_ID", 1, LARGEST_ID)
        return cls(
            id=number,
            restart=_number({"SLURM_JOB_RESTART_COUNT": "0", **environ}, "SLURM_JOB_RESTART_COUNT", 0, MOST_RESTARTS),
            uid=_number(environ, "SLURM_JOB_UID", 0, LARGEST_ID),
            gid=_number(environ, "SLURM_JOB_GID", 0, LARGEST_ID),
            user=_word(environ, "SLURM_JOB_USER", _USER),
            node=_word(environ, "SLURMD_NODENAME", _NODE),
            names=cgroup_names(number, environ.get("SLURM_JOB_SLUID")),
        )

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        return cls(**{**fields, "names": frozenset(fields["names"])})

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "names": sorted(self.names)}

    @property
    def run(self) -> Path:
        """The job's run directory: root's, with one part that is the user's."""
        return run_directory(self.id)

    @property
    def user_run(self) -> Path:
        return self.run / "user"

    @property
    def scratch(self) -> Path:
        return self.run / "scratch"

    @property
    def socket(self) -> Path:
        return self.run / "warden.sock"

    @property
    def refusal(self) -> Path:
        return self.run / "refusal"

    @property
    def description(self) -> Path:
        """The description of the job, for its own processes."""
        return self.run / "job.json"

    @property
    def log(self) -> Path:
        """The messages of root's parts, for the user."""
        return self.run / LOG

    @property
    def state(self) -> Path:
        return state_file(self.id)


def run_directory(job: int) -> Path:
    return RUN / str(job)


def state_file(job: int) -> Path:
    return STATE / f"{job}.json"


def job_number(environ: Mapping[str, str]) -> int:
    """The id alone: cleaning up needs no more."""
    return _number(environ, "SLURM_JOB_ID", 1, LARGEST_ID)


def cgroup_names(number: int, sluid: str | None) -> frozenset[str]:
    """The names that the job's cgroup directory may have."""
    known = {sluid} if sluid and _SLUID.fullmatch(sluid) else set()
    return frozenset({f"job_{number}"} | known)


def _number(environ: Mapping[str, str], name: str, least: int, most: int) -> int:
    text = _word(environ, name, _NUMBER)
    if not least <= int(text) <= most:
        raise MoorageError(f"{name} is {text}, which is not between {least} and {most}")
    return int(text)


def _word(environ: Mapping[str, str], name: str, form: re.Pattern[str]) -> str:
    text = environ.get(name)
    if text is None:
        raise MoorageError(f"{name} is not set: this is for slurmd to run, as a Prolog or an Epilog")
    if not form.fullmatch(text):
        raise MoorageError(f"{name} is {text[:80]!r}, which slurmd would not say")
    return text
