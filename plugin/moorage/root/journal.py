"""What root's parts tell the administrator: one line each, with fields to search by.

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

from moorage.common.job import Job

ERROR: Final = 3
WARNING: Final = 4
NOTICE: Final = 5
INFO: Final = 6

IDENTIFIER: Final = "moorage"
MOMENT: Final = "%Y-%m-%dT%H:%M:%SZ"
LONGEST: Final = 2048
# What a job's own log takes.
MOST_OF_A_JOB: Final = 256 << 10

# The journal's own protocol is a datagram of NAME=VALUE lines. Ten lines here spare each hook the import of a library
# (systemd-python 235 brings logging and uuid along), which takes about half as long as all its other imports.
JOURNAL: Final = Path("/run/systemd/journal/socket")
_LENGTH: Final = struct.Struct("<Q")


def log(message: str, *, phase: str, job: Job | int | None = None, priority: int = INFO, **fields: Any) -> None:  # noqa: ANN401
    """Never fails: what is being done matters more than what is said about it."""
    owner = {"UID": job.uid} if isinstance(job, Job) else {}
    number = job.id if isinstance(job, Job) else job
    about = {"JOB_ID": number, **owner} if number is not None else {}
    entry = {"MESSAGE": line(message), "PRIORITY": priority, "PHASE": phase, **about}
    entry |= {name.upper(): value for name, value in fields.items()}
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
    """For its user, who may not read the journal; where the Prolog has made a file for that, which is root's."""
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
    """One line, however many a user's words had, and without what a terminal would obey."""
    words = " ".join(message.split())[:LONGEST]
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in words)
