"""The messages between the processes of a job that its owner runs; JSON objects on the wire.

    moorage run  <->  agent  <->  keeper  <->  holder

Commands go from left to right, events from right to left. The agent passes on the commands of `moorage run` to the
keeper, and the keeper's events to `moorage run`, with the name of its node. The processes of one node are of one
release; while a site is being upgraded, `moorage run` and an agent on another node may not be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final

from moorage.common import phases
from moorage.user.cluster.invitation import Invitation

# A log is sent in pieces of this many characters: each fits into the channel, however JSON writes it.
LOG_PIECE: Final = 8192


@dataclass(frozen=True)
class Step:
    """The agents run in this step of the job."""

    tag: ClassVar[str] = "step"
    id: str


@dataclass(frozen=True)
class PhaseBegun:
    """A phase of the start has begun; the text may say more than the phase's own text."""

    tag: ClassVar[str] = "phase"
    word: str
    text: str


@dataclass(frozen=True)
class Ready:
    """The node has all that the job asked for."""

    tag: ClassVar[str] = "ready"


@dataclass(frozen=True)
class Failed:
    """The node's start, or what it started, has failed."""

    tag: ClassVar[str] = "failed"
    cause: str


@dataclass(frozen=True)
class Log:
    """A piece of a log, for the report of a failure."""

    tag: ClassVar[str] = "log"
    of: str
    text: str


@dataclass(frozen=True)
class Note:
    """A line for the job's output."""

    tag: ClassVar[str] = "note"
    text: str


@dataclass(frozen=True)
class Signalled:
    """The agent has got a signal, and ignores it."""

    tag: ClassVar[str] = "signal"
    signal: str


@dataclass(frozen=True)
class DownRequested:
    """The user wants the job's containers torn down before the script ends."""

    tag: ClassVar[str] = "down asked for"


@dataclass(frozen=True)
class Invited:
    """The first node's control plane is up: other nodes can join with this invitation."""

    tag: ClassVar[str] = "join"
    invitation: Invitation


@dataclass(frozen=True)
class ClusterUp:
    """The first node's cluster can be used; it goes on without these nodes."""

    tag: ClassVar[str] = "cluster"
    name: str
    server: str
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Used:
    """The CPU time, and the most memory and processes at one time, of the delegated cgroup."""

    tag: ClassVar[str] = "usage"
    cpu_seconds: float
    memory_peak: int
    processes: int


@dataclass(frozen=True)
class PlugWanted:
    """The warden shall plug this network; a descriptor of the containers' network namespace comes along."""

    tag: ClassVar[str] = "plug"
    what: str


@dataclass(frozen=True)
class Delegated:
    """The warden has delegated this cgroup."""

    tag: ClassVar[str] = "delegated"
    path: str


@dataclass(frozen=True)
class Plugged:
    """The warden has plugged this network."""

    tag: ClassVar[str] = "plugged"
    what: str


@dataclass(frozen=True)
class Join:
    """Join the first node's cluster."""

    tag: ClassVar[str] = "join"
    invitation: Invitation


@dataclass(frozen=True)
class Without:
    """This node will not join the cluster."""

    tag: ClassVar[str] = "without"
    node: str


@dataclass(frozen=True)
class Down:
    """Tear everything down and end."""

    tag: ClassVar[str] = "down"


@dataclass(frozen=True)
class Gateway:
    """The address and the router of the uplink's end in the job's network namespace."""

    tag: ClassVar[str] = "gateway"
    address: str
    router: str


@dataclass(frozen=True)
class Forward:
    """Forward connections to this address.

    Three descriptors come along: the listening socket, a socket to ask the kernel whose a connection is, and the
    network namespace from which the address can be reached.
    """

    tag: ClassVar[str] = "forward"
    address: str
    port: int


@dataclass(frozen=True)
class Namespace:
    """The holder runs; a descriptor of its network namespace comes along."""

    tag: ClassVar[str] = "namespace"


# From the keeper to `moorage run`, by way of the agent; the agent itself sends some of them, too.
Event = Step | PhaseBegun | Ready | Failed | Log | Note | Signalled | DownRequested | Invited | ClusterUp | Used
# From the keeper to the agent.
KeeperEvent = Event | PlugWanted
# From `moorage run` to all agents, which pass them on to their keepers.
Command = Join | Without | Down
# From an agent to its keeper.
KeeperCommand = Command | Delegated | Plugged
# From the keeper to the holder of the job's network.
HolderCommand = Gateway | Forward


def encode_event(event: KeeperEvent | Namespace, node: str = "") -> dict[str, Any]:
    return {**({"node": node} if node else {}), "event": event.tag, **_fields(event)}


def encode_command(command: KeeperCommand | HolderCommand) -> dict[str, Any]:
    return {"command": command.tag, **_fields(command)}


def _fields(message: KeeperEvent | Namespace | KeeperCommand | HolderCommand) -> dict[str, Any]:
    """The fields of the message; those of an invitation are not nested."""
    return asdict(message.invitation if isinstance(message, Invited | Join) else message)


def sender(message: Mapping[str, Any]) -> str:
    """The node whose agent has sent this event."""
    return str(message.get("node", "?"))


def decode_event(message: Mapping[str, Any]) -> KeeperEvent | None:
    """Return the event; None if this is not one of ours."""
    match message:
        case {"event": Step.tag, "id": str(number)}:
            return Step(number)
        case {"event": PhaseBegun.tag, "text": str(text)}:
            # An older agent sends no word.
            return PhaseBegun(str(message.get("word", phases.OTHER)), text)
        case {"event": Ready.tag}:
            return Ready()
        case {"event": Failed.tag, "cause": str(cause)}:
            return Failed(cause)
        case {"event": Log.tag, "of": str(of), "text": str(text)}:
            return Log(of, text)
        case {"event": Note.tag, "text": str(text)}:
            return Note(text)
        case {"event": Signalled.tag, "signal": str(signal)}:
            return Signalled(signal)
        case {"event": DownRequested.tag}:
            return DownRequested()
        case _:
            return _decode_result(message)


def _decode_result(message: Mapping[str, Any]) -> KeeperEvent | None:
    """The events that carry what a start has made, or what it has used."""
    match message:
        case {"event": Invited.tag, "node": _, **fields} if Invitation.fits(fields):
            return Invited(Invitation(**fields))
        case {"event": Invited.tag, **fields} if Invitation.fits(fields):
            return Invited(Invitation(**fields))
        case {"event": ClusterUp.tag, "name": str(name), "server": str(server), "without": [*nodes]}:
            return ClusterUp(name, server, tuple(map(str, nodes)))
        case {
            "event": Used.tag,
            "cpu_seconds": float() | int() as seconds,
            "memory_peak": int(memory),
            "processes": int(processes),
        }:
            return Used(float(seconds), memory, processes)
        case {"event": PlugWanted.tag, "what": str(what)}:
            return PlugWanted(what)
    return None


def decode_command(message: Mapping[str, Any]) -> KeeperCommand | None:
    """Return the command; None if this is not one of ours."""
    match message:
        case {"command": Join.tag, **fields} if Invitation.fits(fields):
            return Join(Invitation(**fields))
        case {"command": Without.tag, "node": str(node)}:
            return Without(node)
        case {"command": Down.tag}:
            return Down()
        case {"command": Delegated.tag, "path": str(path)}:
            return Delegated(path)
        case {"command": Plugged.tag, "what": str(what)}:
            return Plugged(what)
    return None


def decode_holder_event(message: Mapping[str, Any]) -> Namespace | None:
    return Namespace() if message.get("event") == Namespace.tag else None


def decode_holder_command(message: Mapping[str, Any]) -> HolderCommand | None:
    match message:
        case {"command": Gateway.tag, "address": str(address), "router": str(router)}:
            return Gateway(address, router)
        case {"command": Forward.tag, "address": str(address), "port": int(port)}:
            return Forward(address, port)
    return None


def logs(of: str, text: str) -> Iterator[Log]:
    """A log of any length."""
    for start in range(0, len(text), LOG_PIECE):
        yield Log(of, text[start : start + LOG_PIECE])
