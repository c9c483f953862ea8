"""Make what was planned for a job on this node: all of it or nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from moorage.common import files, phases
from moorage.common.command import run
from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError
from moorage.common.job import Job
from moorage.linux.process import Process
from moorage.node.config.schema import Config
from moorage.node.finding import Finding, blamed, demand
from moorage.root import journal, lock, podman_conf, rundir, scratch, systemd
from moorage.root.net import names
from moorage.root.plan import Plan
from moorage.root.records import record, start_log
from moorage.root.records.record import Ending
from moorage.root.state import About, Limits, State

PHASE: Final = "prolog"


def carry_out(plan: Plan, still_asked: Callable[[], bool]) -> None:
    with _undone_on_failure(plan.job, plan.config):
        _make(plan)
        if not still_asked():
            raise MoorageError("slurmd ended before this node was prepared")
    what = f"prepared with {plan.config.scratch.kind} scratch and {plan.uplink.driver} ({plan.uplink.reason})"
    if plan.fabric:
        what += f", and {len(plan.fleet.nodes)} nodes over {plan.fabric.interface}"
    seconds, given = round(start_log.now() - Process.current().began, 3), " ".join(plan.outfit.names)
    journal.log(what, phase=PHASE, job=plan.job, uplink=plan.uplink.driver, features=given, seconds=seconds)
    for one in plan.outfit.left_out:
        journal.log(f"feature {one}", phase=PHASE, job=plan.job)
    record.publish(plan.config.metrics.directory)


@contextmanager
def _undone_on_failure(job: Job, config: Config) -> Iterator[None]:
    """Clean up if the block fails; before it, clean up what an earlier run of the job has left.

    A job can be requeued, or its node can lose its power. The old state must not be overwritten: only it knows what is
    left.
    """
    if job.run.exists() or job.state.exists() or names.links_of(job.id):
        demand(_cleared(job, config, Ending("prolog")))
    try:
        yield
    except BaseException:
        _cleared(job, config)
        raise


def _cleared(job: Job, config: Config, ending: Ending | None = None) -> list[Finding]:
    """Remove everything of the job, and return what cannot be removed. With an `ending` a record is written."""
    # Only here: most jobs need it only in their Epilog.
    from moorage.root.cleanup.end_of_job import clean_up

    left = clean_up(job.id, Deadline(config.epilog_limit), ending)
    for leftover in left:
        journal.log(f"left behind: {leftover}", phase=PHASE, job=job, priority=journal.WARNING)
    remedy = "submit the job again, or tell the administrator of this node"
    return [
        Finding(
            "leftover",
            f"job {job.id} was here before, and {one}",
            remedy,
            "node" if one.ours else "user",
            code="M-LEFT-9",
        )
        for one in left
    ]


def _make(plan: Plan) -> None:
    job, config = plan.job, plan.config
    with lock.locked(job.id, config.wait.lock) as held:
        room = scratch.plan(job, config.scratch)
        state = State.begin(job, Limits.of(config), room, plan.fabric, plan.gateway, _about(plan))
        state.save()
        if state.networked:
            _make_networks(state, config)
        rundir.prepare()
        rundir.make(job, config.run)
        files.create(job.log, "")
        start_log.note(job, phases.PROLOG, at=Process.current().began)
        scratch.make(job, config.scratch)
        tools = replace(plan.tools, images=_show_images(plan))
        for name, (text, mode) in podman_conf.files(job, tools).items():
            files.create(job.run / name, text, mode)
        files.create(job.description, json.dumps(plan.description.as_dict()))
        # The warden takes the lock. Until then the state names this process as the job's owner.
        held.release()
        run(["systemctl", "start", systemd.warden_unit(job.id)], limit=config.wait.warden)
        start_log.note(job, phases.LAUNCH)


def _about(plan: Plan) -> About:
    """What the record of the job needs: at its end the configuration may be another one."""
    site = plan.config
    more = {"image": plan.image, "features": list(plan.outfit.names)}
    directory = site.metrics.directory
    described = record.described(plan.description.as_dict(), **more)
    return About(time.time(), described, site.records.days, str(directory) if directory else None)


def _make_networks(state: State, config: Config) -> None:
    # Only here: most jobs have none.
    from moorage.root.net import job_networks

    with blamed("fabric", "node"):
        job_networks.make(state, config.fabric)


def _show_images(plan: Plan) -> Path | None:
    """Make the job's view of the node's images, which is removed with the run directory; None without images."""
    # Only here: many nodes have none.
    from moorage.root.images import view
    from moorage.root.images.store import Store

    way = view.way(plan.config.store)
    if way is None:
        return None
    store = Store.configured(plan.config.store)
    point = view.make(plan.job, store, way, view.owners(plan.job, plan.granted), plan.config.wait.copy)
    journal.log(f"shows the node's images by {way.kind} ({way.reason})", phase=PHASE, job=plan.job)
    return point
