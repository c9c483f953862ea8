"""The agents of a job, as `moorage run` sees them: one srun, its channel, and the state of each node."""

from __future__ import annotations

import os
import re
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import IO, Any, Final, assert_never

from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError
from moorage.common.events import Watch
from moorage.user import messages
from moorage.user.channel import Receiver, Sender
from moorage.user.messages import (
    ClusterUp,
    Command,
    Down,
    DownRequested,
    Failed,
    Invited,
    Join,
    KeeperEvent,
    Log,
    Note,
    PhaseBegun,
    PlugWanted,
    Ready,
    Signalled,
    Step,
    Used,
    Without,
)

MOST_LINES: Final = 2000
# srun has this long to end after its standard input is closed.
CLOSING: Final = 5.0
# The phase of a node whose agent has not reported one.
AT_FIRST: Final = "starting the agents"

# The words of srun (up to 26.05).
_NODE_FAILURE: Final = re.compile(r"srun: error: Node failure on (\S+?)\.?")
# An agent that exits by itself has reported why, unless it could not even be started.
_KILLED: Final = re.compile(r"srun: error: (\S+): tasks? \S+: (?!Exited)(.+)")
_EXITED: Final = re.compile(r"srun: error: (\S+): tasks? \S+: (Exited.*)")


class NodeState(Enum):
    """The state of one node, as its agent, srun and the first node of the cluster report it."""

    # Nothing has been heard from the node's agent.
    UNHEARD = auto()
    # The agent reports the phases of its start.
    STARTING = auto()
    # The node has all that the job asked for.
    READY = auto()
    # The start has failed.
    FAILED = auto()
    # The cluster's first node has given this node up, and the node itself has reported no failure.
    ABSENT = auto()
    # The node was ready, and has failed since.
    LOST = auto()


class Need(Enum):
    """Whether a job can start without a node; `require=` of its spec says so, but nothing starts without the first."""

    REQUIRED = auto()
    OPTIONAL = auto()


class Meaning(Enum):
    """What a node's state means for the start of the job."""

    WAIT = auto()
    GO_ON = auto()
    FAIL = auto()


# The states that can follow on a state. Any other report about the node comes too late and changes nothing: the first
# cause of a failure is the one that counts.
TRANSITIONS: Final[Mapping[NodeState, frozenset[NodeState]]] = {
    NodeState.UNHEARD: frozenset({NodeState.STARTING, NodeState.READY, NodeState.FAILED, NodeState.ABSENT}),
    NodeState.STARTING: frozenset({NodeState.READY, NodeState.FAILED, NodeState.ABSENT}),
    NodeState.READY: frozenset({NodeState.LOST}),
    NodeState.FAILED: frozenset(),
    NodeState.ABSENT: frozenset({NodeState.READY, NodeState.FAILED}),
    NodeState.LOST: frozenset(),
}

MEANING: Final[Mapping[NodeState, Mapping[Need, Meaning]]] = {
    NodeState.UNHEARD: {Need.REQUIRED: Meaning.WAIT, Need.OPTIONAL: Meaning.WAIT},
    NodeState.STARTING: {Need.REQUIRED: Meaning.WAIT, Need.OPTIONAL: Meaning.WAIT},
    NodeState.READY: {Need.REQUIRED: Meaning.GO_ON, Need.OPTIONAL: Meaning.GO_ON},
    NodeState.FAILED: {Need.REQUIRED: Meaning.FAIL, Need.OPTIONAL: Meaning.GO_ON},
    # A required node that is absent makes the cluster's first node fail, which says more about it.
    NodeState.ABSENT: {Need.REQUIRED: Meaning.WAIT, Need.OPTIONAL: Meaning.GO_ON},
    NodeState.LOST: {Need.REQUIRED: Meaning.FAIL, Need.OPTIONAL: Meaning.GO_ON},
}


@dataclass
class Record:
    """What the agents have reported besides the state of their nodes."""

    usage: list[Used] = field(default_factory=list)
    # By what they are of, and on which node.
    logs: dict[str, str] = field(default_factory=dict)
    cluster: ClusterUp | None = None
    # The number of the agents' step in the job.
    step: str = ""


class Agents:
    """`tell` gets the events that the job's output shows; the lines of a job of several nodes name the node."""

    def __init__(
        self,
        nodes: Sequence[str],
        watch: Watch,
        tell: Callable[[PhaseBegun | Note | Signalled | DownRequested], object],
        require: str = "all",
    ) -> None:
        """The nodes are in the job's order, by Slurm's names."""
        self.nodes = tuple(nodes)
        self.watch = watch
        self.tell = tell
        self.require = require
        self.states = dict.fromkeys(self.nodes, NodeState.UNHEARD)
        self.record = Record()
        # The output of srun, and of a site's own programs around a task.
        self.noise: deque[str] = deque(maxlen=MOST_LINES)
        self.process: subprocess.Popen[bytes] | None = None
        self._causes: dict[str, str] = {}
        self._phases: dict[str, str] = {}
        # How the agents of these nodes have ended, in srun's words.
        self._exited: dict[str, str] = {}
        self._untold: list[str] = []
        self._open: set[int] = set()

    def need(self, node: str) -> Need:
        return Need.REQUIRED if self.require == "all" or node == self.nodes[0] else Need.OPTIONAL

    def meaning(self, node: str) -> Meaning:
        return MEANING[self.states[node]][self.need(node)]

    @property
    def required(self) -> list[str]:
        return [node for node in self.nodes if self.need(node) is Need.REQUIRED]

    @property
    def usable(self) -> bool:
        """Every required node is ready, so that the script could run with the nodes that are ready now."""
        return not self.gone and all(self.states[node] is NodeState.READY for node in self.required)

    @property
    def settled(self) -> bool:
        """No node has to be waited for."""
        return all(self.meaning(node) is not Meaning.WAIT for node in self.nodes)

    @property
    def ready(self) -> bool:
        """The script can run. The first node of a cluster has waited for every node that will be in the cluster."""
        return self.usable and (self.settled or self.record.cluster is not None)

    @property
    def failure(self) -> str:
        """Why the job cannot continue, in one line; empty if it can."""
        for node in self._causes:
            if self.meaning(node) is Meaning.FAIL:
                return self._line(node, self._causes[node])
        return self._end_of_step if self.gone else ""

    @property
    def gone(self) -> bool:
        """The step is over, and all of its output has been read."""
        return self.process is None or (not self._open and self.process.poll() is not None)

    @property
    def unheard(self) -> list[str]:
        """The required nodes whose agents have not reported anything."""
        return [node for node in self.required if self.states[node] is NodeState.UNHEARD]

    @property
    def exited_unheard(self) -> dict[str, str]:
        """The nodes whose agents have ended before anything was heard of them, and how; a report may still arrive."""
        return {node: how for node, how in self._exited.items() if self.states[node] is NodeState.UNHEARD}

    def fail_exited(self) -> None:
        """Wait no longer for a report of the agents that have ended."""
        for node, how in self.exited_unheard.items():
            self._fail(node, f"its agent has ended without a word, as Slurm says: {how} [M-JOB-4]")

    def take_losses(self) -> list[str]:
        """A line for each failure since the last call."""
        losses, self._untold = self._untold, []
        return [self._line(node, self._causes[node]) for node in losses]

    def take_end(self) -> list[str]:
        """A line that the step is over; none if every node has failed by itself before that."""
        return [self._end_of_step] if len(self._causes) < len(self.nodes) else []

    def late(self) -> list[str]:
        """A line for each node that is neither ready nor failed."""
        late = (NodeState.UNHEARD, NodeState.STARTING, NodeState.ABSENT)
        return [
            self._line(node, "it did not get ready in time [M-JOB-1]")
            for node in self.nodes
            if self.states[node] in late
        ]

    def phases(self) -> list[str]:
        """A line for each node that is not ready: the phase of its start."""
        unready = (node for node in self.nodes if self.states[node] is not NodeState.READY)
        return [self._line(node, self._phases.get(node, AT_FIRST)) for node in unready]

    def start(self, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        """Start srun, in a session of its own: the signals of a terminal are for the script."""
        pipe = subprocess.PIPE
        try:
            self.process = subprocess.Popen(
                argv, env=environ, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True
            )
        except OSError as error:
            raise MoorageError(f"{argv[0]} cannot be started: {error.strerror}") from error
        # srun may end some time after its streams.
        self._handle = os.pidfd_open(self.process.pid)
        self.watch.on(self._handle, lambda: self.watch.off(self._handle))
        for stream in (self.process.stdout, self.process.stderr):
            if stream:
                self._listen(stream)

    def command(self, command: Command) -> None:
        """Send a command to every agent."""
        if self.process and self.process.stdin:
            with suppress(OSError):
                Sender(self.process.stdin.write).send(messages.encode_command(command))

    def tear_down(self, timeout: float) -> bool:
        """Have the agents tear everything down; False if they have not done so in time, and had to be ended."""
        self.command(Down())
        done = self.watch.until(lambda: self.gone, Deadline(timeout))
        self.close()
        return done

    def close(self) -> None:
        """End the agents by closing their standard input, and kill srun if it does not end then."""
        if self.process is None:
            return
        if self.process.stdin:
            with suppress(OSError):
                self.process.stdin.close()
        self.watch.until(lambda: self.gone, Deadline(CLOSING))
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream:
                self.watch.off(stream.fileno())
                stream.close()
        self.watch.off(self._handle)
        os.close(self._handle)
        self.process = None
        self._open.clear()

    @property
    def _end_of_step(self) -> str:
        last = next((line for line in reversed(self.noise) if line.strip()), "")
        return f"the step of the agents has ended{': ' + last if last else ''} [M-JOB-5]"

    def _line(self, node: str, text: str) -> str:
        return f"{node}: {text}" if len(self.nodes) > 1 else text

    def _listen(self, stream: IO[bytes]) -> None:
        receiver = Receiver()
        self._open.add(stream.fileno())
        self.watch.on(stream.fileno(), lambda: self._receive(stream.fileno(), receiver))

    def _receive(self, descriptor: int, receiver: Receiver) -> None:
        chunk = os.read(descriptor, 1 << 16)
        for message in receiver.receive(chunk) if chunk else receiver.end():
            if isinstance(message, str):
                self.noise.append(message)
                self._note_failed_nodes(message)
            else:
                self._note(message)
        if not chunk:
            self.watch.off(descriptor)
            self._open.discard(descriptor)

    def _note_failed_nodes(self, line: str) -> None:
        """Note the nodes whose agents srun reports as ended; the step goes on while there are others."""
        several = len(self.nodes) > 1
        if found := _NODE_FAILURE.fullmatch(line.strip()):
            for node in self._expanded(found[1]):
                self._fail(node, "the node has failed, as Slurm says [M-JOB-2]")
        elif several and (found := _KILLED.fullmatch(line.strip())):
            for node in self._expanded(found[1]):
                self._fail(node, f"its agent was ended, as Slurm says: {found[2]} [M-JOB-3]")
        elif several and (found := _EXITED.fullmatch(line.strip())):
            self._exited |= dict.fromkeys(self._expanded(found[1]), found[2])

    def _expanded(self, nodes: str) -> list[str]:
        # Imported only here: most jobs have one node.
        from moorage.common.nodelist import expand

        with suppress(MoorageError):
            return [node for node in expand(nodes, len(self.nodes)) if node in self.states]
        return []

    def _change(self, node: str, state: NodeState) -> bool:
        if possible := state in TRANSITIONS[self.states[node]]:
            self.states[node] = state
        return possible

    def _fail(self, node: str, cause: str) -> None:
        """Note a failure and its cause, and tell the other nodes not to wait for this one."""
        was_ready = self.states[node] is NodeState.READY
        if self._change(node, NodeState.LOST if was_ready else NodeState.FAILED):
            self._causes[node] = cause
            self._untold.append(node)
        self.command(Without(node))

    def _note(self, message: Mapping[str, Any]) -> None:
        node, event = messages.sender(message), messages.decode_event(message)
        if event is None or node not in self.states:
            self.noise.append(str(message))
        else:
            self._handle_event(node, event)

    def _handle_event(self, node: str, event: KeeperEvent) -> None:
        match event:
            case PhaseBegun(_, text):
                self._change(node, NodeState.STARTING)
                self._phases[node] = text
                self.tell(replace(event, text=self._line(node, text)))
            case Ready():
                self._change(node, NodeState.READY)
            case Failed(cause):
                self._fail(node, cause)
            case Invited(invitation):
                self.command(Join(invitation))
            case ClusterUp():
                self.record.cluster = event
                for absent in self.states.keys() & set(event.without):
                    self._change(absent, NodeState.ABSENT)
            case Note(text):
                self.tell(Note(f"{node}: {text}"))
            case Signalled() | DownRequested():
                self.tell(event)
            case Step() | Log() | Used() | PlugWanted():
                self._keep(node, event)
            case _:
                assert_never(event)

    def _keep(self, node: str, event: Step | Log | Used | PlugWanted) -> None:
        """Keep what is only for the record."""
        match event:
            case Step(number):
                self.record.step = number
            case Log(of, text):
                title = f"{of} on {node}"
                self.record.logs[title] = self.record.logs.get(title, "") + text
            case Used():
                self.record.usage.append(event)
            case PlugWanted():
                # Only a keeper sends it, and its agent does not pass it on.
                pass
            case _:
                assert_never(event)
