"""`moorage agent`: one on every node of a job, which obeys the job's task, and has everything under its keeper."""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from moorage.common import phases, warden_protocol
from moorage.common.deadline import Deadline
from moorage.common.description import Mooring
from moorage.common.errors import MoorageError
from moorage.common.events import FROM_OUTSIDE, Signals, Watch, name
from moorage.common.warden_protocol import Delegate, Plug, Tell
from moorage.user import failure_report
from moorage.user.agent import placeholder
from moorage.user.agent.keeper import keep
from moorage.user.channel import Ear, Message, Mouth, writer
from moorage.user.run import srun

USAGE_LIMIT: Final = 10.0
# What is told for the administrator holds nobody up.
TELLING: Final = 1.0
DESCRIPTORS: Final = 4
# The keeper has as long to take the tree down; then the warden does.
LEEWAY: Final = 5.0


def main(words: Sequence[str]) -> int:
    # Slurm signals steps directly, and the first signal may be here before anything is ready to take it.
    signal.pthread_sigmask(signal.SIG_BLOCK, FROM_OUTSIDE)
    if os.environ.get("SLURM_LOCALID") == str(srun.AGENT):
        return agent(os.environ)
    return placeholder.main(os.environ)


def agent(environ: Mapping[str, str]) -> int:
    """Obey the commands on standard input, and take everything down at its end; signals are only told of."""
    node = environ.get("SLURMD_NODENAME", "?")
    mouth = Mouth(writer(sys.stdout.fileno()), f"{node}.{os.getpid()}")
    mooring = None
    try:
        mooring = Mooring.of_this_job(environ)
        keeper, link = forked(mooring)
        with Signals(FROM_OUTSIDE) as signals, Watch() as watch, placeholder.door(mooring.places):
            return Agent(mooring, node, mouth, keeper, link, watch, signals).serve()
    except Exception as error:
        cause = str(error) if isinstance(error, MoorageError) else f"{type(error).__name__}: {error}"
        if mooring:
            hand_on_roots_words(mooring, node, mouth)
        mouth.say({"node": node, "event": "failed", "cause": cause})
        if mooring:
            tell_root(mooring, phases.FAILED, cause)
        return 1


def tell_root(mooring: Mooring, word: str, cause: str = "") -> bool:
    """How far the start has come, for the administrator; False if nobody listens. The job goes on all the same."""
    try:
        warden_protocol.call(mooring.warden, Tell(word, cause[: phases.LONGEST_CAUSE]), TELLING)
    except warden_protocol.Refused:
        return True
    except MoorageError:
        return False
    return True


def hand_on_roots_words(mooring: Mooring, node: str, mouth: Mouth) -> None:
    """For the job's task, which may be on another node."""
    mouth.say_log(failure_report.ROOTS, failure_report.roots_words(mooring.places.run), node=node)


def forked(mooring: Mooring) -> tuple[int, socket.socket]:
    """The keeper, and our end of a socket to it: by a fork, because a second interpreter takes its time."""
    ours, keepers = socket.socketpair()
    keeper = os.fork()
    if keeper == 0:
        ours.close()
        try:
            os._exit(keep(mooring, keepers))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    keepers.close()
    return keeper, ours


class Agent:
    def __init__(
        self,
        mooring: Mooring,
        node: str,
        mouth: Mouth,
        keeper: int,
        link: socket.socket,
        watch: Watch,
        signals: Signals,
    ) -> None:
        self.mooring = mooring
        self.node = node
        self.mouth = mouth
        self.keeper = keeper
        self.link = link
        self.watch = watch
        self.signals = signals
        self.keeper_gone = False
        self.told_to_end = False
        self._ready = False
        self._failed = False
        self._root_listens = True
        self._told_root = ""
        self._commands = Ear()
        self._events = Ear()
        # They come with what is said of them.
        self._descriptors: list[int] = []

    def serve(self) -> int:
        self.watch.on(self.signals.descriptor, self._tell_of_signals)
        self.watch.on(sys.stdin.fileno(), self._obey)
        self.watch.on(self.link.fileno(), self._pass_on)
        self._say("step", id=os.environ.get("SLURM_STEP_ID", ""))
        self._delegate()
        while not (self.told_to_end or self.keeper_gone):
            self.watch.once()
        if self.keeper_gone and not self._failed:
            self._fail(f"the keeper of the job's tree has ended ({self._keepers_end()}), and all in there ends with it")
        self._end()
        return 1 if self._failed else 0

    def _delegate(self) -> None:
        self._say("phase", text="asking for a cgroup")
        self._tell_root("cgroup")
        tree = warden_protocol.call(self.mooring.warden, Delegate(), self.mooring.waits.agents)["tree"]
        self._tell_keeper({"tree": tree})

    def _end(self) -> None:
        """The keeper first, then what it all has used; when we are gone the warden removes the tree."""
        if self._ready:
            if self.told_to_end:
                self._tell_root(phases.DOWN)
            self._tell_keeper({"command": "down"})
        elif not self.keeper_gone:
            # It may be waiting for Podman, and there is nothing to be gentle with yet.
            os.kill(self.keeper, signal.SIGKILL)
        self.watch.until(lambda: self.keeper_gone, Deadline(self.mooring.waits.kill + LEEWAY))
        with suppress(MoorageError):
            self._say("usage", **warden_protocol.call(self.mooring.warden, warden_protocol.Usage(), USAGE_LIMIT))

    def _obey(self) -> None:
        chunk = os.read(sys.stdin.fileno(), 1 << 16)
        if not chunk:
            self.watch.off(sys.stdin.fileno())
            self.told_to_end = True
        for message in self._commands.hear(chunk):
            if message == {"command": "down"}:
                self.told_to_end = True
            elif isinstance(message, dict):
                self._tell_keeper(message)

    def _pass_on(self) -> None:
        """What the keeper says, with our name on it."""
        try:
            chunk, descriptors, _, _ = socket.recv_fds(self.link, 1 << 16, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            chunk, descriptors = b"", []
        self._descriptors += descriptors
        if not chunk:
            self.watch.off(self.link.fileno())
            self.keeper_gone = True
        for message in self._events.hear(chunk):
            match message:
                case {"event": "plug", "what": str(what)}:
                    self._plug(what)
                case dict():
                    self._hand_on(message)

    def _hand_on(self, message: Message) -> None:
        self._ready = self._ready or message.get("event") == "ready"
        self._failed = self._failed or message.get("event") == "failed"
        if message.get("event") == "failed":
            hand_on_roots_words(self.mooring, self.node, self.mouth)
        self.mouth.say({"node": self.node, **message})
        self._note(message)

    def _note(self, message: Message) -> None:
        match message:
            case {"event": "phase", "text": str(text)}:
                self._tell_root(phases.named(text))
            case {"event": "ready"}:
                self._tell_root(phases.READY)
            case {"event": "failed", "cause": str(cause)}:
                self._tell_root(phases.FAILED, cause)

    def _tell_root(self, word: str, cause: str = "") -> None:
        """Each word once, and none any more after one that nobody took."""
        if word != self._told_root and self._root_listens:
            self._told_root = word
            self._root_listens = tell_root(self.mooring, word, cause)

    def _plug(self, what: str) -> None:
        """Root listens to this process alone, and has its own look at the namespace."""
        namespace = self._descriptors.pop(0)
        try:
            limit = self.mooring.waits.agents
            warden_protocol.call(self.mooring.warden, Plug(what), limit, descriptor=namespace)
        finally:
            os.close(namespace)
        self._tell_keeper({"plugged": what})

    def _tell_keeper(self, message: Mapping[str, Any]) -> None:
        with suppress(OSError):
            Mouth(self.link.sendall).say(message)

    def _tell_of_signals(self) -> None:
        for number in self.signals.take():
            self._say("signal", signal=name(number))

    def _keepers_end(self) -> str:
        with suppress(ChildProcessError):
            code = os.waitstatus_to_exitcode(os.waitpid(self.keeper, 0)[1])
            return f"exit code {code}" if code >= 0 else f"killed by {name(-code)}"
        return "nobody knows how"

    def _fail(self, cause: str) -> None:
        self._failed = True
        hand_on_roots_words(self.mooring, self.node, self.mouth)
        self._say("failed", cause=cause)
        self._tell_root(phases.FAILED, cause)

    def _say(self, event: str, **fields: object) -> None:
        self.mouth.say({"node": self.node, "event": event, **fields})
