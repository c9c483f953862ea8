"""Who asks the warden for something: a task of its job, or nobody."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.common.job import Job
from moorage.linux.cgroup import Leaf, NoTask, leaf_of
from moorage.linux.process import Process, real_uid, running
from moorage.root.warden.listener import Peer


@dataclass(frozen=True)
class Caller:
    """A process of the job's owner, and the task that it is."""

    process: Process
    leaf: Leaf

    def can_lend_to(self, agent: Caller) -> bool:
        """Whether they are two tasks of one step."""
        return self.leaf.step == agent.leaf.step and self.leaf != agent.leaf


def identify(peer: Peer, job: Job) -> Caller:
    """Who is calling; NoTask unless it is a task of this job, run by its owner, and still running."""
    # The kernel gives 0 for a process of another family of pid namespaces.
    if peer.uid != job.uid or peer.pid <= 0:
        raise NoTask("only a task of this job can ask for this")
    try:
        process = Process.of(peer.pid)
        with process.held() as descriptor:
            caller = Caller(process, leaf_of(peer.pid, job.names))
            owner = real_uid(peer.pid)
            if owner == job.uid and running(descriptor):
                return caller
    except (ProcessLookupError, FileNotFoundError) as error:
        raise NoTask("the caller has ended") from error
    raise NoTask(f"process {peer.pid} is not the owner's")
