"""This node's slurm.conf, read as text: slurmctld could wait for a hook that asks slurmctld."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from moorage.node.finding import Finding
from moorage.node.hostfiles import HERE, Node

PLACE: Final = Path("/etc/slurm/slurm.conf")
# Where slurmd keeps the file that a configless slurmctld gives it.
CONFIGLESS: Final = Path("/run/slurm/conf/slurm.conf")
DEEPEST_INCLUDE: Final = 8
MOST_BYTES: Final = 16 << 20
# What must be among the values, and Slurm's default (since 22.05).
WANTED: Final = {
    "ProctrackType": ("proctrack/cgroup", "proctrack/cgroup"),
    "TaskPlugin": ("task/cgroup", "task/none"),
}
NAME: Final = "moorage"
HOOK: Final = f"50-{NAME}"
EXPLAINED: Final = "docs/install/slurm.md"
LIMITS: Final = frozenset({"prologtimeout", "epilogtimeout", "prologepilogtimeout"})
# The keys that are kept: at a large site the file has thousands of lines of nodes and partitions.
KEYS: Final = LIMITS | {
    "accountingstorageenforce",
    "constraindevices",
    "epilog",
    "jobacctgathertype",
    "plugstackconfig",
    "proctracktype",
    "prolog",
    "prologflags",
    "taskplugin",
}
# With one of these words in AccountingStorageEnforce, Slurm checks what a user writes there.
CHECKED: Final = {
    "account": frozenset({"all", "associations", "limits", "qos", "safe", "wckeys"}),
    "qos": frozenset({"all", "qos"}),
}

# The plug-in that counts everything below a task's cgroup, and Slurm's default.
GATHERS: Final = "jobacct_gather/cgroup"
GATHERS_NOTHING: Final = "jobacct_gather/none"
CGROUP_CONF: Final = "cgroup.conf"
YES: Final = frozenset({"1", "true", "up", "yes"})

# With one of these words in PrologFlags, Slurm runs the Prolog on all nodes of a job before its first step.
AT_ALLOCATION: Final = frozenset({"alloc", "contain", "forcerequeueonfail", "runinjob", "x11"})

_SETTING: Final = re.compile(r"^\s*(\w+)\s*=\s*(.*?)\s*$")
_INCLUDE: Final = re.compile(r"^\s*include\s+(\S+)\s*$", re.IGNORECASE)
Settings = Mapping[str, list[str]]


def place(environ: Mapping[str, str], node: Node = HERE) -> Path:
    """The slurm.conf that slurmd has read: it names the file to its hooks."""
    named = Path(environ.get("SLURM_CONF", ""))
    if named.is_absolute():
        return named
    own, copy = node.path(str(PLACE)), node.path(str(CONFIGLESS))
    return own if own.exists() or not copy.exists() else copy


def read(path: Path) -> Settings:
    """The values of KEYS, by key in small letters, in the order of the file and of those that it includes."""
    found: dict[str, list[str]] = {}
    for line in _lines(path, path.parent, DEEPEST_INCLUDE):
        match = _SETTING.match(line)
        if match and match[1].lower() in KEYS:
            found.setdefault(match[1].lower(), []).append(match[2].strip('"'))
    return found


def checks(what: str, settings: Settings) -> bool:
    """Whether Slurm checks that a user may have the account or QOS of a job."""
    said = settings.get("accountingstorageenforce", [""])[-1]
    return not CHECKED[what].isdisjoint(word.strip() for word in said.lower().split(","))


def prepares_all(settings: Settings) -> bool:
    """Whether all nodes of a job are prepared when it starts, not each with its first step."""
    said = settings.get("prologflags", [""])[-1]
    return not AT_ALLOCATION.isdisjoint(word.strip() for word in said.lower().split(","))


def several_nodes(path: Path, settings: Settings) -> Iterator[Finding]:
    """A finding if jobs on several nodes cannot start. The user can submit a job on one node."""
    if not prepares_all(settings):
        cause = f"{path} lacks PrologFlags=Alloc, so other nodes may not be prepared in time"
        yield Finding("slurm", cause, "set it, or submit with --nodes=1", "user", code="M-SLURM-2")


def plugstack(path: Path, settings: Settings) -> Path:
    named = settings.get("plugstackconfig", ["plugstack.conf"])[-1]
    return path.parent / named


def check(path: Path, settings: Settings) -> Iterator[Finding]:
    if not settings:
        cause = f"{path} names neither prologs nor plug-ins"
        yield Finding("slurm", cause, "see that slurmd's SLURM_CONF names a file that root can read", code="M-SLURM-3")
        return
    for name, (wanted, unless_set) in WANTED.items():
        value = settings.get(name.lower(), [unless_set])[-1]
        if wanted not in value.replace(" ", "").split(","):
            yield Finding(
                "slurm", f"{path} has {name}={value}", f"let {wanted} be in it, and restart slurmd", code="M-SLURM-4"
            )
    yield from _hook("Epilog", path, settings.get("epilog", []), "without it nothing of a job is removed")


def prolog(path: Path, settings: Settings) -> Iterator[Finding]:
    """Whether slurmd would run our Prolog. Only the doctor asks: the Prolog itself knows."""
    if settings:
        yield from _hook("Prolog", path, settings.get("prolog", []), "without it nothing is prepared for a job")


def limits(path: Path, settings: Settings, taken: Mapping[str, float]) -> Iterator[Finding]:
    """Whether slurmd gives our hooks enough time: else it kills them and drains the node."""
    for hook, seconds in taken.items():
        names = (f"{hook}Timeout", "PrologEpilogTimeout")
        set_to = next(((name, settings[name.lower()][-1]) for name in names if name.lower() in settings), None)
        if set_to and set_to[1].isdecimal() and int(set_to[1]) <= seconds:
            cause = f"{path} has {'='.join(set_to)}, and our {hook} may take {seconds:g} s"
            yield Finding(
                "slurm", cause, f"make it more, or the limits in moorage.yaml less ({EXPLAINED})", code="M-SLURM-5"
            )


def accounting(path: Path, settings: Settings) -> Iterator[Finding]:
    """Advice: jobs start without it, but sacct does not show what containers have used."""
    gathers = settings.get("jobacctgathertype", [GATHERS_NOTHING])[-1]
    if settings and gathers != GATHERS:
        cause = f"{path} has JobAcctGatherType={gathers}, so sacct does not count what containers use"
        yield Finding(
            "slurm", cause, f"set it to {GATHERS}, on all nodes, while no job runs", kind="advice", code="M-SLURM-6"
        )


def devices(path: Path, resources: Iterable[str]) -> Iterator[Finding]:
    """Advice if Slurm does not keep a job from other jobs' devices: then no job's own devices are known."""
    conf = path.with_name(CGROUP_CONF)
    if (names := sorted({*resources})) and read(conf).get("constraindevices", [""])[-1].lower() not in YES:
        cause = f"{conf} lacks ConstrainDevices=yes, so jobs can open devices of other jobs: {', '.join(names)}"
        yield Finding("slurm", cause, "set it on all nodes, and restart slurmd", kind="advice", code="M-SLURM-7")


def _hook(kind: str, conf: Path, patterns: Iterable[str], otherwise: str) -> Iterator[Finding]:
    hooks = [hook for pattern in patterns for hook in _ours(conf.parent / pattern)]
    if not hooks:
        cause = f"no {kind}= of {conf} runs {HOOK}"
        yield Finding(
            "slurm", cause, f"add the line {kind}={conf.parent}/{kind.lower()}.d/*: {otherwise}", code="M-SLURM-8"
        )
    elif not any(os.access(hook, os.X_OK) for hook in hooks):
        yield Finding("slurm", f"{hooks[0]} cannot be executed", f"chmod 755 {hooks[0]}", code="M-SLURM-9")


def _ours(pattern: Path) -> list[Path]:
    """The hooks of this pattern that are ours: by their name, or because they contain it."""
    return [path for path in _matches(pattern) if NAME in path.name or NAME in _text(path)]


def _matches(pattern: Path) -> list[Path]:
    directory = pattern.parent
    there = directory.iterdir() if directory.is_dir() else ()
    # As in a shell, a pattern matches no hidden file.
    return [path for path in there if fnmatch(path.name, pattern.name) and not path.name.startswith(".")]


def _lines(path: Path, base: Path, depth: int) -> Iterator[str]:
    if not depth:
        return
    # A line that ends in a backslash goes on in the next one.
    for line in _text(path).replace("\\\n", " ").split("\n"):
        line = re.sub(r"(?<!\\)#.*", "", line)
        if include := _INCLUDE.match(line):
            for one in sorted(_matches(base / include[1])):
                yield from _lines(one, base, depth - 1)
        else:
            yield line


def _text(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return file.read(MOST_BYTES).decode(errors="replace")
