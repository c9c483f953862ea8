"""The site's policy: who may use --k8s, judged by what slurmd says of the job, never by what its user says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from moorage.common.command import run
from moorage.common.job import Job
from moorage.node.config.schema import Policy
from moorage.node.finding import Finding

CHECK: Final = "policy"
# In seconds; a directory of users may be asked.
LIMIT: Final = 30.0
LONGEST_SHOWN: Final = 80
# Of the allowed values; a longer list helps nobody.
MOST_SHOWN: Final = 5


@dataclass(frozen=True)
class Applicant:
    """A job as slurmd describes it to a Prolog; None for what this Slurm does not say."""

    user: str
    gid: int
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    nodes: int | None = None

    @classmethod
    def of(cls, job: Job, environ: Mapping[str, str], wanted: int | None = None) -> Self:
        """`wanted` is the number of participants, if the user has given one."""
        text = environ.get("SLURM_JOB_NUM_NODES", "")
        nodes = int(text) if text.isascii() and text.isdecimal() else None
        return cls(
            user=job.user,
            gid=job.gid,
            account=environ.get("SLURM_JOB_ACCOUNT") or None,
            partition=environ.get("SLURM_JOB_PARTITION") or None,
            # From 26.05 on.
            qos=environ.get("SLURM_JOB_QOS") or None,
            nodes=min(nodes, wanted or nodes) if nodes else nodes,
        )


def check(policy: Policy, job: Applicant, groups: Callable[[], Collection[str]]) -> Iterator[Finding]:
    """A finding for each part of the policy that refuses the job; `groups` gives the user's groups of policy.groups."""
    yield from _person(policy, job, groups)
    yield from _among(policy, "accounts", "account", job.account, _folded)
    yield from _among(policy, "partitions", "partition", job.partition, str)
    yield from _among(policy, "qos", "QOS", job.qos, _folded)
    yield from _size(policy, job)


def _person(policy: Policy, job: Applicant, groups: Callable[[], Collection[str]]) -> Iterator[Finding]:
    """The user is allowed by name, or by a group."""
    if not (policy.users or policy.groups) or job.user in policy.users:
        return
    if not (policy.groups and groups()):
        named = " and ".join(f"policy.{name}" for name in ("users", "groups") if getattr(policy, name))
        yield _finding(policy, f"user {job.user} may not use --k8s here", named, code="M-POLICY-3")


def _among(policy: Policy, name: str, what: str, value: str | None, alike: Callable[[str], str]) -> Iterator[Finding]:
    allowed: Sequence[str] = getattr(policy, name)
    if not allowed or (value is not None and alike(value) in map(alike, allowed)):
        return
    if value is None:
        yield _finding(policy, f"Slurm does not say which {what} this job has", f"policy.{name}", code="M-POLICY-4")
        return
    others = f"submit with --{what.lower()}={' or '.join(allowed)}, or " if len(allowed) <= MOST_SHOWN else ""
    yield _finding(
        policy, f"{what} {_shown(value)} may not use --k8s here", f"policy.{name}", others, code="M-POLICY-5"
    )


def _folded(name: str) -> str:
    """Slurm keeps accounts and QOS in small letters."""
    return name.lower()


def _size(policy: Policy, job: Applicant) -> Iterator[Finding]:
    if policy.most_nodes is None:
        return
    if job.nodes is None:
        yield _finding(policy, "Slurm does not say how many nodes this job has", "policy.most_nodes", code="M-POLICY-6")
    elif job.nodes > policy.most_nodes:
        cause = f"this job has {job.nodes} nodes, and one with --k8s may have {policy.most_nodes}"
        yield _finding(policy, cause, "policy.most_nodes", f"ask for nodes={policy.most_nodes}, or ", code="M-POLICY-7")


def _finding(policy: Policy, cause: str, name: str, other: str = "", *, code: str = "") -> Finding:
    return Finding(CHECK, f"{cause} ({name})", f"{other}ask {policy.contact}", "user", code=code)


def _shown(word: str) -> str:
    """Cut and quoted: if Slurm does not check accounts, a user can write anything here."""
    return repr(word[:LONGEST_SHOWN])


def groups(job: Applicant, wanted: Sequence[str]) -> set[str]:
    """The `wanted` groups that the user is in, by the node's source: files or a directory."""
    # It calls getgrouplist. For an unknown user it prints no group.
    known = run(["getent", "initgroups", job.user], limit=LIMIT, ok=(0, 2)).stdout
    ids = {job.gid, *(int(word) for word in known.split()[1:] if word.isdecimal())}
    # It ends with 2 if a group does not exist.
    found = run(["getent", "group", *wanted], limit=LIMIT, ok=(0, 2)).stdout
    fields = (line.split(":") for line in found.splitlines())
    listed = {line[0]: int(line[2]) for line in fields if len(line) > 2 and line[2].isdecimal()}
    return {name for name in wanted if listed.get(name) in ids}
