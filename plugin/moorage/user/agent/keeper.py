"""The parent of everything in a job's tree: it lives there, readies Podman, and runs what is asked for from outside."""

from __future__ import annotations

import os
import signal
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moorage.common.deadline import Deadline
from moorage.common.description import Mooring
from moorage.common.errors import MoorageError
from moorage.common.events import FROM_OUTSIDE, Signals, Watch
from moorage.linux import libc
from moorage.user import failure_report
from moorage.user.agent import delegated_cgroup, rootless, ulimits
from moorage.user.agent.exec_server import Errand
from moorage.user.channel import Ear, Message, Mouth, writer
from moorage.user.network import bridge

if TYPE_CHECKING:
    from moorage.user.cluster.invitation import Invitation
    from moorage.user.network.holder_client import Hold

LOG: Final = "keeper.log"
BACKLOG: Final = 64
STOPPING: Final = 3.0
HOLDERS: Final = 3

_SET_CHILD_SUBREAPER: Final = 36
_PEER: Final = struct.Struct("iII")


def keep(mooring: Mooring, link: socket.socket) -> int:
    """Serve the job until the agent, at the other end of `link`, says to end or is gone; return an exit code."""
    _detach(mooring.places.user / LOG)
    with Signals(FROM_OUTSIDE | {signal.SIGCHLD}) as signals, Watch() as watch:
        keeper = Keeper(mooring, link, watch, signals)
        try:
            keeper.begin()
            keeper.serve()
        except Exception as error:
            keeper.fail(error)
            return 1
        finally:
            keeper.end()
    return 0


class Keeper:
    def __init__(self, mooring: Mooring, link: socket.socket, watch: Watch, signals: Signals) -> None:
        self.mooring = mooring
        self.link = link
        self.watch = watch
        self.signals = signals
        self.log = mooring.places.user / LOG
        self.tree: Path | None = None
        self.errands: list[Errand] = []
        self.told_to_end = False
        # What of the job's network root has plugged, an invitation to the cluster, and nodes that will not be in it.
        self.plugged: set[str] = set()
        self.invitation: Invitation | None = None
        self.gone: set[str] = set()
        self.hold: Hold | None = None
        # So many more may follow on the first.
        self.holders = HOLDERS
        self._ear = Ear()
        self._mouth = Mouth(writer(link.fileno()))
        self._door: socket.socket | None = None
        self._suspects: set[int] = set()
        self._noted = False

    def begin(self) -> None:
        """Everything up to the moment from which the job's script may call Podman."""
        self.watch.on(self.link.fileno(), self._hear_agent)
        self.watch.until(lambda: self.told_to_end or self.tree is not None, Deadline(self.mooring.waits.agents))
        if self.told_to_end:
            return
        if self.tree is None:
            raise MoorageError("the agent did not say where the job's tree is")
        delegated_cgroup.enter(self.tree)
        delegated_cgroup.prove(self.tree)
        ulimits.raised()
        self._tell_phase("preparing Podman")
        rootless.prepare(self.mooring, self.log)
        if bridge.wants_holder(self.mooring):
            self._make_network()
        if self.mooring.spec.cluster == "kind":
            self._boot_cluster(self.tree)
        self._await_network()
        self.watch.on(self.signals.descriptor, self._collect)
        self._open_door()
        self._mouth.say({"event": "ready"})

    def _make_network(self) -> None:
        """What is beyond Podman, by a process that holds its namespace open; it comes up beside all else."""
        from moorage.user.network.holder_client import Hold

        self.hold = hold = Hold(self.mooring, self._hand_up)
        self.watch.on(hold.fileno(), lambda: self._hear_holder(hold))
        if self.mooring.fabric:
            rootless.podman(self.mooring, self.log, bridge.creation(self.mooring.fabric, self.mooring.place))

    def _boot_cluster(self, tree: Path) -> None:
        """Only what others have to say of nodes and networks is listened to meanwhile.

        Until the job is ready, an agent that wants the end kills us.
        """
        # Most jobs of today need none of it.
        if self.mooring.place and self.mooring.fabric and self.hold:
            from moorage.user.cluster import other_node

            link = other_node.Link(self._attend, lambda: self.invitation)
            other_node.join(self.mooring, self.mooring.fabric, tree, self._tell_phase, link, self.hold)
            return
        from moorage.user.cluster import first_node
        from moorage.user.cluster.invitation import Others

        names = self.mooring.fabric.hosts[1:] if self.mooring.fabric else ()
        others = Others(names, self._invite, self._attend, self.gone)
        up = first_node.boot(self.mooring, tree, self._tell_phase, others)
        self._mouth.say({"event": "cluster", "name": up.name, "server": up.server, "without": sorted(self.gone)})

    def _invite(self, invitation: Invitation) -> None:
        self._mouth.say({"event": "join", **invitation.as_dict()})

    def _attend(self, seconds: float) -> None:
        """Deal with what is heard within so many seconds."""
        deadline = Deadline(seconds)
        while self.watch.once(deadline.left) or not deadline.passed:
            if self.told_to_end:
                raise MoorageError("the agent has ended")
            self._check_network()

    def _await_network(self) -> None:
        """Until then what the script starts would reach nobody."""

        def settled() -> bool:
            self._check_network()
            return self.told_to_end or not self._unplugged

        if not self.watch.until(settled, Deadline(self.mooring.waits.podman)):
            raise MoorageError(f"the job's network was not plugged: {', '.join(sorted(self._unplugged))}")

    @property
    def _unplugged(self) -> set[str]:
        return set(bridge.plugs(self.mooring)) - self.plugged

    def _check_network(self) -> None:
        if self.hold and self.hold.gone and self._unplugged:
            raise MoorageError("Podman has not let anybody hold the job's network")

    def _tell_phase(self, text: str) -> None:
        self._mouth.say({"event": "phase", "text": text})

    def serve(self) -> None:
        while not self.told_to_end:
            self.watch.once(min((one.parting.left for one in self.errands if one.parting), default=None))
            for errand in self.errands:
                if errand.parting and errand.parting.passed:
                    errand.end_group()
            for errand in [one for one in self.errands if one.over]:
                self._drop(errand)

    def fail(self, error: Exception) -> None:
        logs = dict(getattr(error, "logs", {}))
        with suppress(OSError):
            logs["Podman"] = failure_report.end(self.log.read_text(errors="replace"), failure_report.LAST_WORDS)
        for of, text in logs.items():
            self._mouth.say_log(of, text)
        cause = str(error) if isinstance(error, MoorageError) else f"{type(error).__name__}: {error}"
        self._mouth.say({"event": "failed", "cause": cause})

    def end(self) -> None:
        """Take the tree down: containers are asked to stop, whatever is left is killed."""
        deadline = Deadline(self.mooring.waits.kill)
        if self._door:
            self.mooring.places.socket.unlink(missing_ok=True)
        if self.tree:
            delegated_cgroup.ask(self.tree, deadline.within(STOPPING))
            if not delegated_cgroup.end(self.tree, {os.getpid()}, deadline):
                self._mouth.say({"event": "note", "text": f"processes in {self.tree} do not end: left to its Epilog"})
            delegated_cgroup.clear(self.tree)
        for errand in self.errands:
            errand.close()

    def _hear_agent(self) -> None:
        chunk = self.link.recv(1 << 16)
        if not chunk:
            self.watch.off(self.link.fileno())
            self.told_to_end = True
        for message in self._ear.hear(chunk):
            if isinstance(message, dict):
                self._obey(message)

    def _obey(self, message: Message) -> None:
        match message:
            case {"tree": str(place)}:
                self.tree = Path(place)
            case {"plugged": str(what)}:
                self.plugged.add(what)
            case {"command": "join"}:
                self._be_invited(message)
            case {"command": "without", "node": str(node)}:
                self.gone.add(node)
            case {"command": "down"}:
                self.told_to_end = True

    def _be_invited(self, message: Message) -> None:
        from moorage.user.cluster.invitation import Invitation

        self.invitation = Invitation.from_dict(message)

    def _hear_holder(self, hold: Hold) -> None:
        """One that has ended before it was of any use would do so again."""
        hold.hear()
        if not hold.gone:
            return
        self.watch.off(hold.fileno())
        if self.holders and not self._unplugged:
            self.holders -= 1
            hold.start_again()
            self.watch.on(hold.fileno(), lambda: self._hear_holder(hold))
        else:
            self._mouth.say({"event": "note", "text": f"the job's network is not held any more: see {self.log}"})

    def _hand_up(self, namespace: int) -> None:
        """The agent has the warden plug what there is: only he is listened to."""
        for what in bridge.plugs(self.mooring):
            Mouth(lambda line: socket.send_fds(self.link, [line], [namespace])).say({"event": "plug", "what": what})

    def _open_door(self) -> None:
        place = self.mooring.places.socket
        place.unlink(missing_ok=True)
        self._door = door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        door.bind(os.fspath(place))
        place.chmod(0o600)
        door.listen(BACKLOG)
        self.watch.on(door.fileno(), lambda: self._accept(door))

    def _accept(self, door: socket.socket) -> None:
        with suppress(BlockingIOError, ConnectionError):
            connection, _ = door.accept()
            errand = Errand(connection, self.mooring.places, self._ask_for_end)
            if _user(connection) != os.getuid():
                errand.close()
                return
            self.errands.append(errand)
            self.watch.on(connection.fileno(), lambda: self._hear(errand))

    def _hear(self, errand: Errand) -> None:
        errand.hear()
        if errand.deaf:
            self.watch.off(errand.connection.fileno())

    def _drop(self, errand: Errand) -> None:
        self.watch.off(errand.connection.fileno())
        errand.close()
        self.errands.remove(errand)
        self._note_strays()

    def _ask_for_end(self) -> None:
        self._mouth.say({"event": "down asked for"})

    def _collect(self) -> None:
        """Bury the dead: those of errands, and those whose parents have left them to us."""
        self.signals.take()
        while dead := _somebody_dead():
            # The number of one that was buried can be another's by now.
            ours = (one for one in self.errands if one.running and one.process and one.process.pid == dead)
            errand = next(ours, None)
            if errand and errand.parting:
                errand.end_group()
            _, status = os.waitpid(dead, 0)
            if errand:
                errand.ended(status)

    def _note_strays(self) -> None:
        """A container on its way into its cgroup, or what cleans up after one, is not there for long."""
        before, self._suspects = self._suspects, delegated_cgroup.astray(self.tree) if self.tree else set()
        if before & self._suspects and not self._noted:
            self._noted = True
            text = "a container has no cgroup of its own: no limit that it was given holds"
            self._mouth.say({"event": "note", "text": text})


def _detach(log: Path) -> None:
    """Away from srun, whose streams would stay open for as long as we have them, and from the agent's session."""
    os.setsid()
    os.umask(0o077)
    os.chdir("/")
    for path, numbers in (("/dev/null", (0,)), (log, (1, 2))):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        for number in numbers:
            os.dup2(descriptor, number)
        os.close(descriptor)
    # What a container's monitor or Podman's own helpers leave behind becomes our child, and not Slurm's.
    libc.prctl(_SET_CHILD_SUBREAPER, 1)


def _somebody_dead() -> int | None:
    """A child that has ended; it stays a zombie."""
    with suppress(ChildProcessError):
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return ended.si_pid if ended else None
    return None


def _user(connection: socket.socket) -> int:
    _, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return int(uid)
