"""What a job's processes say to its warden: one JSON object a packet, one request a connection.

{"verb": "usage"}                    ->  {"ok": {...}}  or  {"error": "one line"}
{"verb": "plug", "what": "fabric"}   with one descriptor, of a network namespace
{"verb": "tell", "word": "podman"}   or with a "cause" besides
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError

VERBS: Final = ("lend", "delegate", "usage", "plug", "tell")
PLUGGED: Final = ("fabric", "uplink")
TOLD: Final = frozenset({"word", "cause"})
LONGEST: Final = 4096
LONGEST_LINE: Final = 1000
# There is no event for a socket that will be there soon.
ASK_AGAIN: Final = 0.1


class Refused(MoorageError):
    """The warden's answer is no, or there is no making sense of what was said."""


@dataclass(frozen=True)
class Request:
    verb: str
    # Of the verb `plug` alone.
    what: str = ""
    # Of the verb `tell` alone: texts.
    told: Mapping[str, str] = field(default_factory=dict)


def request(verb: str, fields: Mapping[str, str] | None = None) -> bytes:
    return json.dumps({"verb": verb, **(fields or {})}).encode()


def understood(packet: bytes) -> Request:
    """The request; Refused if it is anything else, for anybody may have sent it."""
    match _decoded(packet):
        case {"verb": "plug", "what": str(what), **rest} if what in PLUGGED and not rest:
            return Request("plug", what)
        case {"verb": "tell", **rest} if rest.keys() <= TOLD and all(isinstance(text, str) for text in rest.values()):
            return Request("tell", told={str(name): str(text) for name, text in rest.items()})
        case {"verb": str(verb), **rest} if verb in VERBS and verb not in ("plug", "tell") and not rest:
            return Request(verb)
    raise Refused(f"not understood: send one of {', '.join(VERBS)}")


def ok(fields: Mapping[str, Any]) -> bytes:
    return json.dumps({"ok": dict(fields)}).encode()


def error(line: str) -> bytes:
    plain = line.encode("unicode_escape").decode()
    return json.dumps({"error": plain[:LONGEST_LINE]}).encode()


def outcome(packet: bytes) -> dict[str, Any]:
    """What the answer says; Refused with the warden's reason if it is no."""
    match _decoded(packet):
        case {"ok": dict(fields)}:
            return fields
        case {"error": str(line)}:
            raise Refused(line)
    raise Refused("the warden's answer is not understood: are two releases of moorage installed?")


def call(
    path: Path, verb: str, limit: float, *, fields: Mapping[str, str] | None = None, descriptor: int | None = None
) -> dict[str, Any]:
    """Ask the warden, again if it is just being started anew: every verb may be sent twice."""
    packet = request(verb, fields)
    deadline = Deadline(limit)
    while True:
        try:
            return outcome(_exchange(path, packet, deadline, [] if descriptor is None else [descriptor]))
        except OSError as problem:
            if deadline.left <= ASK_AGAIN:
                reason = problem.strerror or str(problem)
                raise MoorageError(
                    f"the warden did not answer `{verb}` for {limit:g} s ({path}: {reason}):"
                    " see `journalctl -t moorage` on this node"
                ) from problem
        time.sleep(ASK_AGAIN)


def _exchange(path: Path, packet: bytes, deadline: Deadline, descriptors: list[int]) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        # A time-out of 0 would mean not to wait at all.
        connection.settimeout(max(deadline.left, ASK_AGAIN))
        connection.connect(os.fspath(path))
        socket.send_fds(connection, [packet], descriptors)
        answer = connection.recv(LONGEST)
    if not answer:
        raise ConnectionResetError("the connection was lost")
    return answer


def _decoded(packet: bytes) -> Any:  # noqa: ANN401
    if len(packet) > LONGEST:
        raise Refused(f"not understood: a message has at most {LONGEST} bytes")
    try:
        return json.loads(packet)
    except (ValueError, RecursionError) as problem:
        raise Refused("not understood: a message is one JSON object") from problem


# The ends of a job's networks in its own network namespace, by what is asked of the warden.
ENDS: Final = {"fabric": "fabric0", "uplink": "uplink0"}
