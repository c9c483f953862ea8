"""What a slurm.conf lacks: lines that can be added, and lines of the site's that only the site may change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatch

HOOK = "50-moorage"
# What must be among the values, and the line where there is none.
WORDS = {
    "ProctrackType": (("proctrack/cgroup",), "proctrack/cgroup"),
    "TaskPlugin": (("task/cgroup",), "task/cgroup,task/affinity"),
    "JobAcctGatherType": (("jobacct_gather/cgroup",), "jobacct_gather/cgroup"),
    "PrologFlags": (("Alloc", "Contain"), "Alloc,Contain"),
}
ONE_VALUE = frozenset({"JobAcctGatherType", "ProctrackType"})

_SETTING = re.compile(r"^\s*(\w+)\s*=\s*(.*?)\s*$")
_INCLUDE = re.compile(r"^\s*include\s+(\S+)", re.IGNORECASE | re.MULTILINE)


def included(text: str) -> list[str]:
    """The files that it includes by name; patterns are the site's to look into."""
    return [name for name in _INCLUDE.findall(text) if not re.search(r"[*?%\[]", name)]


def needs(text: str, prolog: str, epilog: str) -> dict[str, list[str]]:
    """`add`: lines for what is not set at all; `tell`: what to do where the site has a line of its own."""
    settings = _values(text)
    add, tell = [], []
    for name in WORDS:
        values = settings.get(name.lower())
        if not values:
            add.append(f"{name}={WORDS[name][1]}")
        elif line := _widened(name, values[-1]):
            tell.append(f"instead of {name}={values[-1]} write {line}")
    for name, directory in (("Prolog", prolog), ("Epilog", epilog)):
        if not (values := settings.get(name.lower())):
            add.append(f"{name}={directory}/*")
        elif not _runs(values, directory):
            tell.append(
                f"{name}={values[-1]} stays as it is: add the line {name}={directory}/{HOOK}"
                f" (Slurm 24.05 or newer), or let yours call {directory}/{HOOK}"
            )
    return {"add": add, "tell": tell}


def named(text: str, prolog: str, epilog: str) -> list[str]:
    """Which of these directories it names: one that is empty then drains the node with the next job."""
    settings = _values(text)
    places = (("prolog", prolog), ("epilog", epilog))
    return [directory for name, directory in places if _runs(settings.get(name, []), directory)]


def _runs(patterns: list[str], directory: str) -> bool:
    return any(fnmatch(f"{directory}/{HOOK}", pattern) for pattern in patterns)


def _values(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in _settings(text):
        found.setdefault(name.lower(), []).append(value)
    return found


def _settings(text: str) -> Iterator[tuple[str, str]]:
    # A line that ends in a backslash goes on in the next one.
    for line in text.replace("\\\n", " ").splitlines():
        if match := _SETTING.match(line.partition("#")[0]):
            yield match[1], match[2].strip('"')


def _widened(name: str, value: str) -> str:
    """The line with what it lacks; empty if it lacks nothing."""
    words = [word.strip() for word in value.split(",")]
    there = {word.lower() for word in words}
    lacking = [word for word in WORDS[name][0] if word.lower() not in there]
    if not lacking:
        return ""
    return f"{name}={','.join(lacking if name in ONE_VALUE else [*words, *lacking])}"


class FilterModule:
    def filters(self) -> dict[str, Callable[..., object]]:
        return {"moorage_slurm_needs": needs, "moorage_slurm_names": named, "moorage_slurm_includes": included}
