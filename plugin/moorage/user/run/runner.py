"""`moorage run`: a job's task, which brings up what the job asked for, runs its script, and takes everything down."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from moorage.common import command, podman, spec
from moorage.common.deadline import Deadline
from moorage.common.description import Mooring
from moorage.common.errors import FAILED, MoorageError, UsageError, UserError
from moorage.common.events import Signals, Watch, heeded, name
from moorage.common.progress import Progress, duration, size
from moorage.user import failure_report
from moorage.user.cluster import kind_progress, kubeconfig
from moorage.user.run import srun
from moorage.user.run.agents import AT_FIRST, Crew
from moorage.user.run.script import Script, Strays, end_as

# While there is no script yet they end its start; any other waits for the script.
ENDS_THE_START: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
# Below the environment of each node's own release: in a site that is being upgraded they differ.
AGENT: Final = ("bin/python3", "-I", "-m", "moorage", "agent")
# What the agents' own limits may take together, and what it takes until we hear of it.
LEEWAY: Final = 10.0
ENDING: Final = 5.0
# Until nodes that have joined a cluster tell of it, once its first one has seen them.
FOLLOWING: Final = 30.0
STRAY: Final = (
    "{0} was sent to this job's steps, whose agents do not heed it, and not to its script:"
    " that takes `scancel --batch`, or --signal=B:{0}@SECONDS"
)


class Interrupted(MoorageError):
    """A signal ended the start."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {name(number)} before the script was started")
        self.number = number


def main(words: Sequence[str]) -> int:
    argv = words[1:] if words[:1] == ["--"] else words
    if not argv:
        raise UsageError("there is nothing to run", "moorage run [--] SCRIPT [ARGUMENT...]")
    end_as(run(argv, os.environ, Progress(sys.stderr)))


def run(argv: Sequence[str], environ: Mapping[str, str], progress: Progress) -> int:
    """What the job's task ends with: an exit code, or -N for signal N."""
    try:
        mooring = Mooring.of_this_job(environ)
        has = srun.nodes(environ)
        if answers(mooring.places.socket):
            raise UserError("this job is moored already", "run the script as it is: podman is in its PATH")
        if mooring.place:
            raise UserError("this script does not run on the first node of its job", "submit it without --batch")
    except MoorageError as error:
        progress.say(str(error))
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
        # Of the nodes that the job has, the first few may be all that take part.
        self.hosts = mooring.hosts if mooring.nodes < has else ()
        self.crew = Crew(mooring.nodes, watch, self._hear, mooring.hosts[0], mooring.spec.require)
        self.strays = Strays()
        self.script: Script | None = None
        self.pending: list[int] = []
        self.start_up = 0.0
        self._lost = False

    def run(self, argv: Sequence[str]) -> int:
        self.watch.on(self.signals.descriptor, self._take_signals)
        try:
            self._start()
            code = self._follow(argv)
        except Interrupted as interruption:
            self.progress.say(str(interruption))
            code = -interruption.number
        except MoorageError as error:
            self._report(str(error))
            code = FAILED
        self._end()
        return code

    def _start(self) -> None:
        self.progress.phase(AT_FIRST)
        self.srun = srun.srun(self.mooring.srun, self.environ)
        agent = [str(self.mooring.places.release / AGENT[0]), *AGENT[1:]]
        argv = srun.argv(self.srun, self.mooring.job, self.crew.nodes, agent, self.hosts)
        self.crew.start(argv, srun.environment(self.environ))
        self._await_ready()
        if self._deadly:
            raise Interrupted(self._deadly[0])
        if self.crew.failure:
            raise MoorageError(self.crew.failure)
        losses = (*self.crew.losses(), *self.crew.silent(self.mooring.hosts))
        kept = self._kept("; ".join(losses)) if losses else ""
        for loss in losses:
            self.progress.say(f"not there: {loss}; the rest goes on, as required{kept}")
        self.start_up = self.progress.elapsed
        self.progress.say(f"ready after {duration(self.start_up)}")

    def _await_ready(self) -> None:
        """Each agent keeps limits of its own once it runs; that they do run, and all of it together, is ours to see."""
        limit, agents, hosts = self._longest_start, self._longest_silence, self.mooring.hosts
        deadline = Deadline(limit)
        if not self._hear_of_all(deadline.within(agents)):
            missing = ", ".join(self.crew.unheard(hosts))
            raise MoorageError(f"{AT_FIRST}: not done after {agents:g} s, nothing was heard of {missing}")
        if not self.watch.until(self._started, deadline, self.progress.tick) and not self.crew.enough:
            raise MoorageError(f"{'; '.join(self.crew.late(hosts))}: not ready after {limit:g} s")
        if self.crew.words.cluster:
            last = Deadline(FOLLOWING * self.mooring.kubernetes.patience)
            self.watch.until(lambda: self.crew.settled or bool(self._deadly), last, self.progress.tick)

    def _hear_of_all(self, deadline: Deadline) -> bool:
        while not self._heard_of():
            if not self.watch.until(lambda: self._heard_of() or bool(self.crew.mute), deadline, self.progress.tick):
                return False
            self.watch.until(lambda: self._heard_of() or not self.crew.mute, Deadline(ENDING))
            self.crew.lose_mute()
        return True

    def _heard_of(self) -> bool:
        return self._started() or not self.crew.unheard(self.mooring.hosts)

    @property
    def _longest_silence(self) -> float:
        return self.mooring.waits.agents + self.mooring.waits.others

    @property
    def _longest_start(self) -> float:
        waits, patience = self.mooring.waits, self.mooring.kubernetes.patience
        cluster = kind_progress.longest(patience, self.crew.nodes) if self.mooring.spec.cluster == "kind" else 0
        return self._longest_silence + waits.podman + cluster

    def _started(self) -> bool:
        return self.crew.ready or bool(self.crew.failure or self._deadly)

    @property
    def _deadly(self) -> list[int]:
        return [number for number in self.pending if number in ENDS_THE_START]

    def _follow(self, argv: Sequence[str]) -> int:
        """Run the script; whatever becomes of the agents meanwhile, its code is the job's."""
        environ = podman.script(spec.without(self.environ), self.mooring.places)
        if cluster := self.crew.words.cluster:
            environ = kubeconfig.script(environ, self.mooring.places, **cluster)
        self.script = script = Script(argv, environ)
        self.watch.on(script.handle, lambda: None)
        for number in self.pending:
            script.signal(number)
        while script.code is None:
            self.watch.once(self.strays.patience)
            self._look_after_crew()
            for stray in self.strays.certain():
                self.progress.say(STRAY.format(stray))
        self.watch.off(script.handle)
        return script.code

    def _look_after_crew(self) -> None:
        if self.crew.words.down_asked_for and not self.crew.gone:
            self.crew.words.down_asked_for = False
            self.crew.command("down")
            self._lost = True
            self.progress.say("taken down early, as asked for; the script goes on")
            return
        losses = self.crew.losses()
        if self.crew.gone and not self._lost:
            self._lost = True
            losses += self.crew.end()
            self._end_step()
        kept = self._kept("; ".join(losses)) if losses else ""
        for loss in losses:
            self.progress.say(f"lost: {loss}; the script goes on without it{kept}")

    def _end_step(self) -> None:
        """Agents that nobody hears any more do not hear of the end of the job either (24.11)."""
        if self.crew.gone and self.crew.words.step:
            argv = srun.end_argv(self.srun, self.mooring.job, self.crew.words.step)
            with suppress(MoorageError):
                command.run(argv, env=srun.environment(self.environ), limit=ENDING)

    def _end(self) -> None:
        if self.crew.process is None:
            return
        if not self.crew.dismiss(self.mooring.waits.kill + LEEWAY):
            self.progress.say("the agents did not end in time: the node's warden and Epilog remove what is left")
        if self.start_up:
            self.progress.say(self._account())

    def _account(self) -> str:
        """Start-up, and the use of all nodes: CPU time together, memory where it was highest."""
        line = f"started in {duration(self.start_up)}, was up for {duration(self.progress.elapsed - self.start_up)}"
        usage = self.crew.words.usage.values()
        if not usage:
            return f"{line}; nothing is known of what was used"
        seconds = sum(float(one["cpu_seconds"]) for one in usage)
        peaks = [int(one["memory_peak"]) for one in usage if one.get("memory_peak")]
        memory = f", at most {size(max(peaks))} of memory" if peaks else ""
        return f"{line}; used {duration(seconds)} of CPU time{memory}"

    def _take_signals(self) -> None:
        for number in self.signals.take():
            self.strays.received(name(number))
            if self.script:
                self.script.signal(number)
            else:
                self.pending.append(number)

    def _hear(self, kind: str, text: str) -> None:
        match kind:
            case "phase":
                self.progress.phase(text)
            case "signal":
                self.strays.told(text)
            case _:
                self.progress.say(text)

    def _report(self, cause: str) -> None:
        self.progress.say(f"{cause}{self._kept(cause)}")

    def _kept(self, cause: str) -> str:
        """Where all is that may help to understand it: in a file, whose place is to be said with the cause."""
        submitted = Path(self.environ.get("SLURM_SUBMIT_DIR", "."))
        parts = {
            "cause": cause,
            "phases": "\n".join(self.progress.lines),
            "this job": repr(self.mooring),
            "srun and the tasks": "\n".join(self.crew.noise),
            f"{failure_report.ROOTS} on {self.mooring.node}": failure_report.roots_words(self.mooring.places.run),
            **self.crew.words.logs,
        }
        kept = failure_report.write([submitted, Path.home()], f"moorage-{self.mooring.job}", parts)
        return f" (more in {kept})" if kept else ""


def answers(door: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(os.fspath(door))
        except OSError:
            return False
    return True
