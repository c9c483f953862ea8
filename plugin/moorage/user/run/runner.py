"""`moorage run`: the job's task. It prepares what the job asked for, runs its script, and tears everything down."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, assert_never

from moorage.common import command, podman, spec
from moorage.common.deadline import Deadline
from moorage.common.description import Mooring
from moorage.common.errors import FAILED, MoorageError, UsageError, UserError
from moorage.common.events import Signals, Watch, heeded, name
from moorage.common.progress import Progress, duration, size
from moorage.user import failure_report
from moorage.user.cluster import kind_progress, kubeconfig
from moorage.user.messages import Down, DownRequested, Note, PhaseBegun, Signalled
from moorage.user.run import srun
from moorage.user.run.agents import AT_FIRST, Agents
from moorage.user.run.script import Script, Strays, end_as

# Before the script runs, these signals end the start; any other signal waits for the script.
ENDS_THE_START: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
# Each node has its own release, which may differ while a site is being upgraded.
AGENT: Final = ("bin/python3", "-I", "-m", "moorage", "agent")
# The agents have this much longer than the keepers' timeout: the agents' own timeouts, and the way of their reports.
AGENTS_EXTRA: Final = 10.0
# The report of an agent that has ended may arrive so much later; scancel has as long.
LAST_REPORT: Final = 5.0
# The nodes of a cluster have this long to report that they are ready, once the first node has.
REST_OF_CLUSTER: Final = 30.0
STRAY: Final = "{0} reached only the job's steps, not its script: use `scancel --batch`, or --signal=B:{0}@SECONDS"


class Interrupted(MoorageError):
    """A signal ended the start."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {name(number)} before the script was started", code="M-JOB-7")
        self.number = number


def main(words: Sequence[str]) -> int:
    argv = words[1:] if words[:1] == ["--"] else words
    if not argv:
        raise UsageError("there is nothing to run", "moorage run [--] SCRIPT [ARGUMENT...]", code="M-JOB-21")
    end_as(run(argv, os.environ, Progress(sys.stderr)))


def run(argv: Sequence[str], environ: Mapping[str, str], progress: Progress) -> int:
    """Run the script; return the exit code of the job's task, or -N for signal N."""
    try:
        mooring = Mooring.of_this_job(environ)
        has = srun.nodes(environ)
        if answers(mooring.places.socket):
            raise UserError(
                "this job is moored already", "run the script as it is: podman is in its PATH", code="M-JOB-22"
            )
        if mooring.place:
            raise UserError(
                "this script does not run on the first node of its job", "submit it without --batch", code="M-JOB-23"
            )
    except MoorageError as error:
        progress.say(error.line)
        return FAILED
    with Signals(heeded()) as signals, Watch() as watch:
        return Runner(mooring, has, environ, progress, signals, watch).run(argv)


class Runner:
    def __init__(
        self,
        mooring: Mooring,
        has: int,
        environ: Mapping[str, str],
        progress: Progress,
        signals: Signals,
        watch: Watch,
    ) -> None:
        self.mooring = mooring
        self.environ = environ
        self.progress = progress
        self.signals = signals
        self.watch = watch
        # srun has to name the nodes if only the first ones of the job take part.
        self.nodelist = mooring.hosts if mooring.nodes < has else ()
        self.agents = Agents(mooring.hosts[: mooring.nodes], watch, self._show, mooring.spec.require)
        self.strays = Strays()
        self.script: Script | None = None
        self.pending: list[int] = []
        self.start_up = 0.0
        self._down_requested = False
        # The agents are torn down early, or their end has been reported.
        self._end_told = False

    def run(self, argv: Sequence[str]) -> int:
        self.watch.on(self.signals.descriptor, self._take_signals)
        try:
            self._start()
            code = self._follow(argv)
        except Interrupted as interruption:
            self.progress.say(interruption.line)
            code = -interruption.number
        except MoorageError as error:
            self._report(error.line)
            code = FAILED
        self._end()
        return code

    def _start(self) -> None:
        self.progress.phase(AT_FIRST)
        self.srun = srun.srun(self.mooring.srun, self.environ)
        agent = [str(self.mooring.places.release / AGENT[0]), *AGENT[1:]]
        argv = srun.argv(self.srun, self.mooring.job, len(self.agents.nodes), agent, self.nodelist)
        self.agents.start(argv, srun.environment(self.environ))
        self._await_ready()
        if self._deadly:
            raise Interrupted(self._deadly[0])
        if self.agents.failure:
            raise MoorageError(self.agents.failure)
        losses = (*self.agents.take_losses(), *self.agents.late())
        kept = self._kept("; ".join(losses)) if losses else ""
        for loss in losses:
            self.progress.say(f"not there: {loss}; the rest goes on, as required{kept}")
        self.start_up = self.progress.elapsed
        self.progress.say(f"ready after {duration(self.start_up)}")

    def _await_ready(self) -> None:
        """Wait until the script can run.

        An agent that runs has timeouts of its own. The timeouts here are for agents that do not start, and for the
        start as a whole.
        """
        timeout, silence = self._start_timeout, self._silence_timeout
        deadline = Deadline(timeout)
        if not self._hear_of_required(deadline.within(silence)):
            missing = ", ".join(self.agents.unheard)
            raise MoorageError(
                f"{AT_FIRST}: not done after {silence:g} s, nothing was heard of {missing}", code="M-JOB-24"
            )
        if not self.watch.until(self._started, deadline, self.progress.tick) and not self.agents.usable:
            raise MoorageError(f"{'; '.join(self.agents.phases())}: not ready after {timeout:g} s", code="M-JOB-25")
        if self.agents.record.cluster:
            last = Deadline(REST_OF_CLUSTER * self.mooring.kubernetes.patience)
            self.watch.until(lambda: self.agents.settled or self._ended(), last, self.progress.tick)

    def _hear_of_required(self, deadline: Deadline) -> bool:
        """Wait until every required node has reported something, or its agent has ended; False at the deadline."""
        agents = self.agents

        def heard() -> bool:
            return self._started() or not agents.unheard

        while not heard():
            if not self.watch.until(lambda: heard() or bool(agents.exited_unheard), deadline, self.progress.tick):
                return False
            self.watch.until(lambda: heard() or not agents.exited_unheard, Deadline(LAST_REPORT))
            agents.fail_exited()
        return True

    @property
    def _silence_timeout(self) -> float:
        return self.mooring.waits.agents + self.mooring.waits.others

    @property
    def _start_timeout(self) -> float:
        waits, slowness = self.mooring.waits, self.mooring.kubernetes.patience
        kind = self.mooring.spec.cluster == "kind"
        cluster = kind_progress.longest(slowness, len(self.agents.nodes)) if kind else 0
        return self._silence_timeout + waits.podman + cluster

    def _started(self) -> bool:
        return self.agents.ready or self._ended()

    def _ended(self) -> bool:
        """Whether the start is over without a script that could run."""
        return bool(self.agents.failure or self._deadly)

    @property
    def _deadly(self) -> list[int]:
        return [number for number in self.pending if number in ENDS_THE_START]

    def _follow(self, argv: Sequence[str]) -> int:
        """Run the script; its exit code is the job's, whatever happens to the agents meanwhile."""
        environ = podman.script(spec.without(self.environ), self.mooring.places)
        if cluster := self.agents.record.cluster:
            environ = kubeconfig.script(environ, self.mooring.places, cluster.name, cluster.server)
        self.script = script = Script(argv, environ)
        for number in self.pending:
            script.signal(number)
        with self.watch.noticing(script.handle):
            while script.code is None:
                self.watch.once(self.strays.timeout)
                self._look_after_agents()
                for stray in self.strays.certain():
                    self.progress.say(STRAY.format(stray))
        return script.code

    def _look_after_agents(self) -> None:
        if self._down_requested and not self.agents.gone:
            self._down_requested = False
            self.agents.command(Down())
            self._end_told = True
            self.progress.say("taken down early, as asked for; the script goes on")
            return
        losses = self.agents.take_losses()
        if self.agents.gone and not self._end_told:
            self._end_told = True
            losses += self.agents.take_end()
            self._cancel_step()
        kept = self._kept("; ".join(losses)) if losses else ""
        for loss in losses:
            self.progress.say(f"lost: {loss}; the script goes on without it{kept}")

    def _cancel_step(self) -> None:
        """Cancel the step of agents without a connection: such agents do not notice the end of the job (24.11)."""
        if self.agents.gone and self.agents.record.step:
            argv = srun.end_argv(self.srun, self.mooring.job, self.agents.record.step)
            with suppress(MoorageError):
                command.run(argv, env=srun.environment(self.environ), limit=LAST_REPORT)

    def _end(self) -> None:
        if self.agents.process is None:
            return
        if not self.agents.tear_down(self.mooring.waits.kill + AGENTS_EXTRA):
            self.progress.say(
                "the agents did not end in time: the node's warden and Epilog remove what is left [M-JOB-6]"
            )
        if self.start_up:
            self.progress.say(self._account())

    def _account(self) -> str:
        """How long the job was up, the CPU time of all nodes, and the memory of the node that used most."""
        line = f"started in {duration(self.start_up)}, was up for {duration(self.progress.elapsed - self.start_up)}"
        usage = self.agents.record.usage
        if not usage:
            return f"{line}; nothing is known of what was used"
        seconds = sum(one.cpu_seconds for one in usage)
        peaks = [one.memory_peak for one in usage if one.memory_peak]
        memory = f", at most {size(max(peaks))} of memory" if peaks else ""
        return f"{line}; used {duration(seconds)} of CPU time{memory}"

    def _take_signals(self) -> None:
        for number in self.signals.take():
            self.strays.received(name(number))
            if self.script:
                self.script.signal(number)
            else:
                self.pending.append(number)

    def _show(self, event: PhaseBegun | Note | Signalled | DownRequested) -> None:
        match event:
            case PhaseBegun(_, text):
                self.progress.phase(text)
            case Signalled(signal_name):
                self.strays.told(signal_name)
            case Note(text):
                self.progress.say(text)
            case DownRequested():
                self._down_requested = True
            case _:
                assert_never(event)

    def _report(self, cause: str) -> None:
        self.progress.say(f"{cause}{self._kept(cause)}")

    def _kept(self, cause: str) -> str:
        """Write a report of all that may explain the cause; return a remark that names its file."""
        submitted = Path(self.environ.get("SLURM_SUBMIT_DIR", "."))
        parts = {
            "cause": cause,
            "phases": "\n".join(self.progress.lines),
            "this job": repr(self.mooring),
            "srun and the tasks": "\n".join(self.agents.noise),
            f"{failure_report.ROOT_LOG} on {self.mooring.node}": failure_report.root_log(self.mooring.places.run),
            **self.agents.record.logs,
        }
        kept = failure_report.write([submitted, Path.home()], f"moorage-{self.mooring.job}", parts)
        return f" (more in {kept})" if kept else ""


def answers(path: Path) -> bool:
    """Whether a process listens on this socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(os.fspath(path))
        except OSError:
            return False
    return True
