"""The agents of a job, as `moorage run` sees them: one srun, its channel, and what each node has said."""

from __future__ import annotations

import os
import re
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any, Final

from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError
from moorage.common.events import Watch
from moorage.user.channel import Ear, Message, Mouth

MOST_LINES: Final = 2000
LEAVING: Final = 5.0
# Until a node tells of a phase of its own.
AT_FIRST: Final = "starting the agents"

# srun's words (up to 26.05).
_NODE_FAILURE: Final = re.compile(r"srun: error: Node failure on (\S+?)\.?")
# Of one that ends by itself the code is told, and it has said why before, if it could be started at all.
_KILLED: Final = re.compile(r"srun: error: (\S+): tasks? \S+: (?!Exited)(.+)")
_ENDED: Final = re.compile(r"srun: error: (\S+): tasks? \S+: (Exited.*)")


@dataclass
class Words:
    """What the agents have said so far."""

    ready: set[str] = field(default_factory=set)
    # Which phase of its start each node has told of last.
    phases: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    usage: dict[str, dict[str, Any]] = field(default_factory=dict)
    # By what they are of, and on which node.
    logs: dict[str, str] = field(default_factory=dict)
    # What the first node's cluster is called, and where its API is.
    cluster: dict[str, str] = field(default_factory=dict)
    # Who is not in it, as its first node has found.
    without: set[str] = field(default_factory=set)
    down_asked_for: bool = False
    # Its number in the job.
    step: str = ""

    @property
    def heard_of(self) -> set[str]:
        return self.ready | self.failures.keys() | self.phases.keys()


class Crew:
    """`tell` gets every message that is not only for the record: what to show, what was not foreseen."""

    def __init__(
        self, nodes: int, watch: Watch, tell: Callable[[str, str], object], first: str = "", require: str = "all"
    ) -> None:
        self.nodes = nodes
        self.watch = watch
        self.tell = tell
        # Nothing goes on without this node, and without the others only if not all are required.
        self.first = first
        self.require = require
        self.words = Words()
        # What srun, or a site's own programs around a task, had to say.
        self.noise: deque[str] = deque(maxlen=MOST_LINES)
        self.process: subprocess.Popen[bytes] | None = None
        self._open: set[int] = set()
        self._told: set[str] = set()
        # How, in srun's words.
        self._ended: dict[str, str] = {}

    def start(self, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        """In a session of its own: what a terminal sends is for the script."""
        pipe = subprocess.PIPE
        try:
            self.process = subprocess.Popen(
                argv, env=environ, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True
            )
        except OSError as error:
            raise MoorageError(f"{argv[0]} cannot be started: {error.strerror}") from error
        # It may end some time after its streams: that, too, is to be waited for.
        self._handle = os.pidfd_open(self.process.pid)
        self.watch.on(self._handle, lambda: self.watch.off(self._handle))
        for stream in (self.process.stdout, self.process.stderr):
            if stream:
                self._listen(stream)

    @property
    def ready(self) -> bool:
        """All that can be had: the first node of a cluster has waited for every other one that will be in it."""
        heard_of = self.words.ready | self.words.failures.keys()
        if self.enough and (self.words.cluster or len(heard_of) >= self.nodes):
            return True
        return len(self.words.ready) == self.nodes

    @property
    def settled(self) -> bool:
        """Who is in the cluster has all that is its own, which may take a moment longer than the first node waits."""
        heard_of = self.words.ready | self.words.failures.keys() | self.words.without
        return self.gone or bool(self.failure) or len(heard_of) >= self.nodes

    @property
    def enough(self) -> bool:
        """It could be gone on without whoever is not there."""
        return self.require == "any" and self.first in self.words.ready and not self.gone

    @property
    def gone(self) -> bool:
        """The step is over, and nothing of what it said is left to be read."""
        return self.process is None or (not self._open and self.process.poll() is not None)

    @property
    def failure(self) -> str:
        """What is wrong with the agents, so that it cannot be gone on, in a line; empty while nothing is."""
        for node, cause in self.words.failures.items():
            if self.require == "all" or node == self.first:
                return self._by(node, cause)
        return self._end if self.gone else ""

    def losses(self) -> list[str]:
        """What is wrong with any of them, and was not told of yet."""
        new = {node: cause for node, cause in self.words.failures.items() if node not in self._told}
        self._told |= new.keys()
        return [self._by(node, cause) for node, cause in new.items()]

    def end(self) -> list[str]:
        """That the step is over; it says nothing new once each node was lost by itself."""
        return [self._end] if len(self.words.failures) < self.nodes else []

    @property
    def _end(self) -> str:
        last = next((line for line in reversed(self.noise) if line.strip()), "")
        return f"the step of the agents has ended{': ' + last if last else ''}"

    def silent(self, hosts: Sequence[str]) -> list[str]:
        """Of whom it is not known whether they will ever be ready."""
        known = self.words.ready | self.words.failures.keys()
        return [self._by(node, "it did not get ready in time") for node in hosts if node not in known]

    def unheard(self, hosts: Sequence[str]) -> list[str]:
        """Whose agents have not said a word, where it cannot be gone on without them."""
        heard_of = self.words.heard_of
        needed = hosts if self.require == "all" else [self.first]
        return [node for node in needed if node not in heard_of]

    @property
    def mute(self) -> dict[str, str]:
        """Whose agents have ended, and how, of those that have not said a word; it may still be on its way."""
        heard_of = self.words.heard_of
        return {node: how for node, how in self._ended.items() if node not in heard_of}

    def lose_mute(self) -> None:
        for node, how in self.mute.items():
            self._lose(node, f"its agent has ended without a word, as Slurm says: {how}")

    def late(self, hosts: Sequence[str]) -> list[str]:
        """What those are at who are not ready."""
        return [self._by(node, self.words.phases.get(node, AT_FIRST)) for node in hosts if node not in self.words.ready]

    def _by(self, node: str, cause: str) -> str:
        return f"{node}: {cause}" if self.nodes > 1 else cause

    def command(self, word: str, **fields: object) -> None:
        """To every agent."""
        if self.process and self.process.stdin:
            with suppress(OSError):
                Mouth(self.process.stdin.write).say({"command": word, **fields})

    def dismiss(self, limit: float) -> bool:
        """Have the agents take everything down; False if they were not done within the limit, and had to be ended."""
        self.command("down")
        done = self.watch.until(lambda: self.gone, Deadline(limit))
        self.close()
        return done

    def close(self) -> None:
        """The end of its input ends every agent, and so does the end of srun."""
        if self.process is None:
            return
        if self.process.stdin:
            with suppress(OSError):
                self.process.stdin.close()
        self.watch.until(lambda: self.gone, Deadline(LEAVING))
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

    def _listen(self, stream: IO[bytes]) -> None:
        ear = Ear()
        self._open.add(stream.fileno())
        self.watch.on(stream.fileno(), lambda: self._hear(stream.fileno(), ear))

    def _hear(self, descriptor: int, ear: Ear) -> None:
        chunk = os.read(descriptor, 1 << 16)
        for message in ear.hear(chunk) if chunk else ear.end():
            if isinstance(message, str):
                self.noise.append(message)
                self._note_failed_nodes(message)
            else:
                self._note(message)
        if not chunk:
            self.watch.off(descriptor)
            self._open.discard(descriptor)

    def _note_failed_nodes(self, line: str) -> None:
        """Of these no agent will say anything any more, and yet the step goes on while there are others."""
        if found := _NODE_FAILURE.fullmatch(line.strip()):
            self._lose_all(found[1], "the node has failed, as Slurm says")
        elif self.nodes > 1 and (found := _KILLED.fullmatch(line.strip())):
            self._lose_all(found[1], f"its agent was ended, as Slurm says: {found[2]}")
        elif self.nodes > 1 and (found := _ENDED.fullmatch(line.strip())):
            self._ended |= dict.fromkeys(self._named(found[1]), found[2])

    def _lose_all(self, nodes: str, cause: str) -> None:
        for node in self._named(nodes):
            self._lose(node, cause)

    def _named(self, nodes: str) -> Sequence[str]:
        # Only here: most jobs have one node.
        from moorage.common.nodelist import expand

        with suppress(MoorageError):
            return expand(nodes, self.nodes)
        return ()

    def _lose(self, node: str, cause: str) -> None:
        self.words.failures.setdefault(node, cause)
        self.command("without", node=node)

    def _note(self, message: Message) -> None:
        node = str(message.get("node", "?"))
        match message:
            case {"event": "phase", "text": str(text)}:
                self.words.phases[node] = text
                self.tell("phase", text if self.nodes == 1 else f"{node}: {text}")
            case {"event": "step", "id": str(number)}:
                self.words.step = number
            case {"event": "ready"}:
                self.words.ready.add(node)
            case {"event": "failed", "cause": str(cause)}:
                self._lose(node, cause)
            case {"event": "join", "node": _, **invitation}:
                self.command("join", **invitation)
            case {"event": "cluster", "name": str(name), "server": str(server), **more}:
                self.words.without.update(more.get("without", ()))
                self.words.cluster = {"name": name, "server": server}
            case {"event": "log", "of": str(of), "text": str(text)}:
                title = f"{of} on {node}"
                self.words.logs[title] = self.words.logs.get(title, "") + text
            case {"event": "usage"}:
                self.words.usage[node] = message
            case {"event": "signal", "signal": str(signal)}:
                self.tell("signal", signal)
            case {"event": "note", "text": str(text)}:
                self.tell("note", f"{node}: {text}")
            case {"event": "down asked for"}:
                self.words.down_asked_for = True
            case _:
                self.noise.append(str(message))
