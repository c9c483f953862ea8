"""Lookups of names: the resolver of all guests, which runs on the first, logs them while a test wants it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ..guest.shell import Shell

UNIT = "lab-names.service"
# It has an answer for this one, by which it is known to listen.
KNOWN = "outside.lab"
_LISTEN = f"""
place=/run/systemd/system/{UNIT}.d
mkdir -p "$place"
{{
    echo "[Service]"
    echo ExecStart=
    sed -n 's/^ExecStart=.*/& --log-queries --log-facility=-/p' /etc/systemd/system/{UNIT}
}} >"$place/questions.conf"
systemctl daemon-reload
systemctl restart {UNIT}
timeout 60 sh -c 'until getent hosts {KNOWN}; do sleep 0.1; done'
"""
_STOP = f"""
rm -r /run/systemd/system/{UNIT}.d
systemctl daemon-reload
systemctl restart {UNIT}
"""
# As dnsmasq 2.90 writes it.
_QUESTION = re.compile(r"query\[(?P<kind>[^]]+)\] (?P<name>\S+) from ")


@dataclass(frozen=True)
class Lookup:
    kind: str
    name: str

    @property
    def outside(self) -> bool:
        """Names of hosts here have no dot."""
        return "." in self.name


@contextmanager
def lookups_logged(shell: Shell) -> Iterator[None]:
    shell.run(["sh", "-euc", _LISTEN])
    try:
        yield
    finally:
        shell.run(["sh", "-euc", _STOP])


def mark(shell: Shell, name: str) -> None:
    """Mark a moment by a lookup of a name that nobody has."""
    shell.run(["getent", "hosts", name], ok=(2,))


def lookups(shell: Shell, begin: str, end: str) -> list[Lookup]:
    """The lookups between two marks."""
    invocation = shell.output("systemctl", "show", "--property=InvocationID", "--value", UNIT)
    said = shell.output("journalctl", "--output=cat", f"_SYSTEMD_INVOCATION_ID={invocation}")
    return between(parse(said), begin, end)


def parse(said: str) -> list[Lookup]:
    return [Lookup(found["kind"], found["name"]) for found in _QUESTION.finditer(said)]


def between(questions: Sequence[Lookup], begin: str, end: str) -> list[Lookup]:
    """A mark is two lookups, for either kind of address; a ValueError where there is none."""
    names = [one.name for one in questions]
    first = len(names) - names[::-1].index(begin)
    return list(questions[first : names.index(end, first)])
