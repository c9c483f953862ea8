"""This node's slurm.conf, read as text: a hook that asked slurmctld could make it wait for itself."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from moorage.node.finding import Finding

PLACE: Final = Path("/etc/slurm/slurm.conf")
# Where slurmd keeps what a configless slurmctld gives it.
CONFIGLESS: Final = Path("/run/slurm/conf/slurm.conf")
DEEPEST_INCLUDE: Final = 8
MOST_BYTES: Final = 16 << 20
# What must be among the values, and what Slurm takes where there is none (since 22.05).
WANTED: Final = {
    "ProctrackType": ("proctrack/cgroup", "proctrack/cgroup"),
    "TaskPlugin": ("task/cgroup", "task/none"),
}
NAME: Final = "moorage"
HOOK: Final = f"50-{NAME}"
EXPLAINED: Final = "docs/install/slurm.md"
LIMITS: Final = frozenset({"prologtimeout", "epilogtimeout", "prologepilogtimeout"})
# What is looked for; with the thousands of nodes and partitions of a large site the rest is long.
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
# Any of these words in AccountingStorageEnforce has Slurm check what a user writes there.
CHECKED: Final = {
    "account": frozenset({"all", "associations", "limits", "qos", "safe", "wckeys"}),
    "qos": frozenset({"all", "qos"}),
}

# What counts all below a task's cgroup, and what Slurm takes where nothing is said.
GATHERS: Final = "jobacct_gather/cgroup"
GATHERS_NOTHING: Final = "jobacct_gather/none"
CGROUP_CONF: Final = "cgroup.conf"
YES: Final = frozenset({"1", "true", "up", "yes"})

# Any of these words in PrologFlags has a Prolog run on all nodes of a job before its first step.
AT_ALLOCATION: Final = frozenset({"alloc", "contain", "forcerequeueonfail", "runinjob", "x11"})

_SETTING: Final = re.compile(r"^\s*(\w+)\s*=\s*(.*?)\s*$")
_INCLUDE: Final = re.compile(r"^\s*include\s+(\S+)\s*$", re.IGNORECASE)
Settings = Mapping[str, list[str]]


def place(environ: Mapping[str, str]) -> Path:
    """slurmd tells its hooks where it has read its own; without a file server it keeps a copy."""
    named = Path(environ.get("SLURM_CONF", ""))
    if named.is_absolute():
        return named
    return PLACE if PLACE.exists() or not CONFIGLESS.exists() else CONFIGLESS


def read(path: Path) -> Settings:
    """The values of each of KEYS, in small letters, in the order of the file and of those that it includes."""
    found: dict[str, list[str]] = {}
    for line in _lines(path, path.parent, DEEPEST_INCLUDE):
        match = _SETTING.match(line)
        if match and match[1].lower() in KEYS:
            found.setdefault(match[1].lower(), []).append(match[2].strip('"'))
    return found


def checks(what: str, settings: Settings) -> bool:
    """Whether a job's account or QOS is one that its user may have, and not just what he has written."""
    said = settings.get("accountingstorageenforce", [""])[-1]
    return not CHECKED[what].isdisjoint(word.strip() for word in said.lower().split(","))


def prepares_all(settings: Settings) -> bool:
    """Whether every node of a job is prepared when it starts, and not each when a step first comes there."""
    said = settings.get("prologflags", [""])[-1]
    return not AT_ALLOCATION.isdisjoint(word.strip() for word in said.lower().split(","))


def several_nodes(path: Path, settings: Settings) -> Iterator[Finding]:
    """What keeps jobs on more than one node from starting; no reason to touch this one."""
    if not prepares_all(settings):
        cause = f"{path} has not PrologFlags=Alloc, without which the other nodes of a job are not prepared in time"
        yield Finding("slurm", cause, "set it, or submit with --nodes=1", "user")


def plugstack(path: Path, settings: Settings) -> Path:
    named = settings.get("plugstackconfig", ["plugstack.conf"])[-1]
    return path.parent / named


def check(path: Path, settings: Settings) -> Iterator[Finding]:
    if not settings:
        cause = f"{path} says nothing of prologs and plug-ins"
        yield Finding("slurm", cause, "see that slurmd's SLURM_CONF names a file that root can read")
        return
    for name, (wanted, unless_set) in WANTED.items():
        value = settings.get(name.lower(), [unless_set])[-1]
        if wanted not in value.replace(" ", "").split(","):
            yield Finding("slurm", f"{path} has {name}={value}", f"let {wanted} be in it, and restart slurmd")
    yield from _hook("Epilog", path, settings.get("epilog", []), "nothing would be removed otherwise")


def prolog(path: Path, settings: Settings) -> Iterator[Finding]:
    """Whether a Prolog of ours would run; where one does, nobody has to ask."""
    if settings:
        yield from _hook("Prolog", path, settings.get("prolog", []), "jobs would find nothing prepared")


def limits(path: Path, settings: Settings, taken: Mapping[str, float]) -> Iterator[Finding]:
    """Whether slurmd gives its hooks the seconds that ours may take: it kills them, and drains the node, otherwise."""
    for hook, seconds in taken.items():
        names = (f"{hook}Timeout", "PrologEpilogTimeout")
        set_to = next(((name, settings[name.lower()][-1]) for name in names if name.lower() in settings), None)
        if set_to and set_to[1].isdecimal() and int(set_to[1]) <= seconds:
            cause = f"{path} has {'='.join(set_to)}, and our {hook} may take {seconds:g} s"
            yield Finding("slurm", cause, f"make it more, or the limits in moorage.yaml less ({EXPLAINED})")


def accounting(path: Path, settings: Settings) -> Iterator[Finding]:
    """Jobs start without it, but nobody is told what their containers have used."""
    gathers = settings.get("jobacctgathertype", [GATHERS_NOTHING])[-1]
    if settings and gathers != GATHERS:
        cause = f"{path} has JobAcctGatherType={gathers}, with which sacct misses what containers use"
        yield Finding("slurm", cause, f"set it to {GATHERS}, on all nodes, while no job runs", kind="advice")


def devices(path: Path, resources: Iterable[str]) -> Iterator[Finding]:
    """Whether Slurm keeps a job from what it was not allotted: nothing else tells what it was."""
    conf = path.with_name(CGROUP_CONF)
    if (names := sorted({*resources})) and read(conf).get("constraindevices", [""])[-1].lower() not in YES:
        cause = f"{conf} has not ConstrainDevices=yes, so that jobs can open devices of others: {', '.join(names)}"
        yield Finding("slurm", cause, "set it on all nodes, and restart slurmd", kind="advice")


def _hook(kind: str, conf: Path, patterns: Iterable[str], otherwise: str) -> Iterator[Finding]:
    hooks = [hook for pattern in patterns for hook in _ours(conf.parent / pattern)]
    if not hooks:
        cause = f"no {kind}= of {conf} runs {HOOK}"
        yield Finding("slurm", cause, f"add the line {kind}={conf.parent}/{kind.lower()}.d/*: {otherwise}")
    elif not any(os.access(hook, os.X_OK) for hook in hooks):
        yield Finding("slurm", f"{hooks[0]} cannot be executed", f"chmod 755 {hooks[0]}")


def _ours(pattern: Path) -> list[Path]:
    """What slurmd, given this pattern, would run for us: a hook with our name, or a script of the site's with it."""
    return [path for path in _matches(pattern) if NAME in path.name or NAME in _text(path)]


def _matches(pattern: Path) -> list[Path]:
    directory = pattern.parent
    there = directory.iterdir() if directory.is_dir() else ()
    # As for slurmd and every shell, a pattern finds no hidden file.
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
