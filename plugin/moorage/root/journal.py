"""Entries in the journal by root's parts: one line each, with fields to search by.

journalctl SYSLOG_IDENTIFIER=moorage JOB_ID=17 PHASE=epilog
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from moorage.common.errors import code_of
from moorage.common.job import Job

ERROR: Final = 3
WARNING: Final = 4
NOTICE: Final = 5
INFO: Final = 6

IDENTIFIER: Final = "moorage"
MOMENT: Final = "%Y-%m-%dT%H:%M:%SZ"
LONGEST: Final = 2048
# Of a job's own log.
MOST_OF_A_JOB: Final = 256 << 10

# The journal's own protocol: a datagram of NAME=VALUE lines. systemd-python takes 17 ms to import, and waits where
# journald hangs (235): docs/decisions/0028-systemd-python.md.
JOURNAL: Final = Path("/run/systemd/journal/socket")
_LENGTH: Final = struct.Struct("<Q")


def log(message: str, *, phase: str, job: Job | int | None = None, priority: int = INFO, **fields: Any) -> None:  # noqa: ANN401
    """Write an entry, without waiting. Never fails: the work matters more than the entry about it."""
    owner = {"UID": job.uid} if isinstance(job, Job) else {}
    number = job.id if isinstance(job, Job) else job
    about = {"JOB_ID": number, **owner} if number is not None else {}
    said = line(message)
    entry = {"MESSAGE": said, "PRIORITY": priority, "PHASE": phase, **about}
    entry |= {name.upper(): value for name, value in fields.items()}
    if code := code_of(said):
        entry["CODE"] = code
    with suppress(OSError):
        if not _to_journal({"SYSLOG_IDENTIFIER": IDENTIFIER, **entry}):
            print(_plain(entry), file=sys.stderr, flush=True)
    if isinstance(job, Job):
        with suppress(OSError):
            _to_job(job, f"{time.strftime(MOMENT, time.gmtime())} {phase}: {entry['MESSAGE']}\n")


def _to_journal(entry: dict[str, object]) -> bool:
    """Whether there is a journal, and it took the entry."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
        try:
            sender.sendto(encoded(entry), os.fspath(JOURNAL))
        except OSError:
            return False
    return True


def _to_job(job: Job, text: str) -> None:
    """Write to the job's log, if the Prolog has made one: its user may not read the journal."""
    descriptor = os.open(job.log, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_size < MOST_OF_A_JOB:
            os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def encoded(entry: dict[str, object]) -> bytes:
    """The entry as the journal reads it; a value with several lines is preceded by its length."""
    parts: list[bytes] = []
    for name, value in entry.items():
        text = str(value).encode(errors="backslashreplace")
        parts.append(name.encode() + (b"\n" + _LENGTH.pack(len(text)) if b"\n" in text else b"=") + text)
    return b"\n".join(parts) + b"\n"


def _plain(entry: dict[str, object]) -> str:
    job = f" job {entry['JOB_ID']}" if "JOB_ID" in entry else ""
    return f"{IDENTIFIER}:{job} {entry['PHASE']}: {entry['MESSAGE']}"


def line(message: str) -> str:
    """The message as one line, without what a terminal would obey."""
    words = " ".join(message.split())[:LONGEST]
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in words)
