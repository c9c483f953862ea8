"""The messages between a job's processes and the warden of its node.

A connection carries one request and one answer. Each is one packet with one JSON object:

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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError

# The links in the job's own network namespace, by the network that the warden plugs.
ENDS: Final = {"fabric": "fabric0", "uplink": "uplink0"}
PLUGGED: Final = tuple(ENDS)
LONGEST: Final = 4096
LONGEST_LINE: Final = 1000
# The kernel sends no event when a socket appears, so a call tries again after this many seconds.
RETRY: Final = 0.1


class Refused(MoorageError):
    """The warden refuses the request, or a packet is not understood."""


@dataclass(frozen=True)
class Lend:
    """The placeholder offers its cgroup."""

    verb: ClassVar[str] = "lend"


@dataclass(frozen=True)
class Delegate:
    """The agent asks for the cgroup that the placeholder of its step offers."""

    verb: ClassVar[str] = "delegate"


@dataclass(frozen=True)
class Usage:
    """What has the delegated cgroup used so far?"""

    verb: ClassVar[str] = "usage"


@dataclass(frozen=True)
class Plug:
    """Plug one of the job's networks into the network namespace whose descriptor comes with this request."""

    verb: ClassVar[str] = "plug"
    what: str


@dataclass(frozen=True)
class Tell:
    """How far the start has come: the word of a phase or of the start's end, and the cause of a failure."""

    verb: ClassVar[str] = "tell"
    word: str
    cause: str = ""


Request = Lend | Delegate | Usage | Plug | Tell
VERBS: Final = tuple(kind.verb for kind in (Lend, Delegate, Usage, Plug, Tell))


def encode(request: Request) -> bytes:
    return json.dumps({"verb": request.verb, **asdict(request)}).encode()


def decode(packet: bytes) -> Request:
    """Return the request; raise Refused for anything else, because any user may send anything."""
    match _decoded(packet):
        case {"verb": Lend.verb, **rest} if not rest:
            return Lend()
        case {"verb": Delegate.verb, **rest} if not rest:
            return Delegate()
        case {"verb": Usage.verb, **rest} if not rest:
            return Usage()
        case {"verb": Plug.verb, "what": str(what), **rest} if what in PLUGGED and not rest:
            return Plug(what)
        case {"verb": Tell.verb, "word": str(word), "cause": str(cause), **rest} if not rest:
            return Tell(word, cause)
        case {"verb": Tell.verb, "word": str(word), **rest} if not rest:
            return Tell(word)
    raise Refused(f"not understood: send one of {', '.join(VERBS)}")


def ok(fields: Mapping[str, Any]) -> bytes:
    return json.dumps({"ok": dict(fields)}).encode()


def error(line: str) -> bytes:
    plain = line.encode("unicode_escape").decode()
    return json.dumps({"error": plain[:LONGEST_LINE]}).encode()


def outcome(packet: bytes) -> dict[str, Any]:
    """Return the fields of the answer; raise Refused with the warden's reason if it refuses."""
    match _decoded(packet):
        case {"ok": dict(fields)}:
            return fields
        case {"error": str(line)}:
            raise Refused(line)
    raise Refused("the warden's answer is not understood: are two releases of moorage installed?", code="M-NODE-3")


def call(path: Path, request: Request, timeout: float, *, descriptor: int | None = None) -> dict[str, Any]:
    """Ask the warden. A warden that is just being restarted is asked again: every request may be sent twice."""
    packet = encode(request)
    deadline = Deadline(timeout)
    while True:
        try:
            return outcome(_exchange(path, packet, deadline, [] if descriptor is None else [descriptor]))
        except OSError as problem:
            if deadline.left <= RETRY:
                reason = problem.strerror or str(problem)
                raise MoorageError(
                    f"the warden did not answer `{request.verb}` for {timeout:g} s ({path}: {reason}):"
                    " see `journalctl -t moorage` on this node",
                    code="M-NODE-4",
                ) from problem
        time.sleep(RETRY)


def _exchange(path: Path, packet: bytes, deadline: Deadline, descriptors: list[int]) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        # A timeout of 0 means non-blocking.
        connection.settimeout(max(deadline.left, RETRY))
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
