"""Who may have what --k8s gives, by what slurmd says of a job: nothing of it is its user's word."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from moorage.common.command import run
from moorage.common.job import Job
from moorage.node.config.schema import Policy
from moorage.node.finding import Finding

CHECK: Final = "policy"
# A directory of users may be asked.
LIMIT: Final = 30.0
LONGEST_SHOWN: Final = 80
# Of what is allowed; more of it helps nobody.
MOST_SHOWN: Final = 5


@dataclass(frozen=True)
class Applicant:
    """A job as slurmd describes it to a Prolog; what is None this Slurm does not tell."""

    user: str
    gid: int
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    nodes: int | None = None

    @classmethod
    def of(cls, job: Job, environ: Mapping[str, str], wanted: int | None = None) -> Self:
        """With `wanted` nodes, if its user has said how many of the job's are to take part."""
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


def check(rule: Policy, job: Applicant, groups: Callable[[], Collection[str]]) -> Iterator[Finding]:
    """Each rule that keeps the job out; `groups` says which of those in the rule the user is in."""
    yield from _person(rule, job, groups)
    yield from _among(rule, "accounts", "account", job.account, _folded)
    yield from _among(rule, "partitions", "partition", job.partition, str)
    yield from _among(rule, "qos", "QOS", job.qos, _folded)
    yield from _size(rule, job)


def _person(rule: Policy, job: Applicant, groups: Callable[[], Collection[str]]) -> Iterator[Finding]:
    """Named himself, or in a group that is."""
    if not (rule.users or rule.groups) or job.user in rule.users:
        return
    if not (rule.groups and groups()):
        named = " and ".join(f"policy.{name}" for name in ("users", "groups") if getattr(rule, name))
        yield _refusal(rule, f"user {job.user} may not use --k8s here", named)


def _among(rule: Policy, name: str, what: str, value: str | None, alike: Callable[[str], str]) -> Iterator[Finding]:
    allowed: Sequence[str] = getattr(rule, name)
    if not allowed or (value is not None and alike(value) in map(alike, allowed)):
        return
    if value is None:
        yield _refusal(rule, f"Slurm does not say which {what} this job has", f"policy.{name}")
        return
    others = f"submit with --{what.lower()}={' or '.join(allowed)}, or " if len(allowed) <= MOST_SHOWN else ""
    yield _refusal(rule, f"{what} {_shown(value)} may not use --k8s here", f"policy.{name}", others)


def _folded(name: str) -> str:
    """Slurm keeps accounts and QOS in small letters, however they are written."""
    return name.lower()


def _size(rule: Policy, job: Applicant) -> Iterator[Finding]:
    if rule.most_nodes is None:
        return
    if job.nodes is None:
        yield _refusal(rule, "Slurm does not say how many nodes this job has", "policy.most_nodes")
    elif job.nodes > rule.most_nodes:
        cause = f"this job has {job.nodes} nodes, and one with --k8s may have {rule.most_nodes}"
        yield _refusal(rule, cause, "policy.most_nodes", f"ask for nodes={rule.most_nodes}, or ")


def _refusal(rule: Policy, cause: str, name: str, other: str = "") -> Finding:
    return Finding(CHECK, f"{cause} ({name})", f"{other}ask {rule.contact}", "user")


def _shown(word: str) -> str:
    """Where Slurm does not check accounts, this is what the user has written."""
    return repr(word[:LONGEST_SHOWN])


def groups(job: Applicant, wanted: Sequence[str]) -> set[str]:
    """Those of the `wanted` groups that the user is in, by the node's own source, files or a directory."""
    # It calls getgrouplist. A user whom it does not know is in none, and prints as little.
    known = run(["getent", "initgroups", job.user], limit=LIMIT, ok=(0, 2)).stdout
    ids = {job.gid, *(int(word) for word in known.split()[1:] if word.isdecimal())}
    # It ends with 2 if one of them is not there.
    found = run(["getent", "group", *wanted], limit=LIMIT, ok=(0, 2)).stdout
    fields = (line.split(":") for line in found.splitlines())
    listed = {line[0]: int(line[2]) for line in fields if len(line) > 2 and line[2].isdecimal()}
    return {name for name in wanted if listed.get(name) in ids}
