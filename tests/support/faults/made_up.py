"""The faults of the catalogue on a made-up node, and those that are made with the product's own code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from moorage.node import uplink_speed
from moorage.node.uplink_speed import Record, Speed, Spread
from moorage.root.state import State
from support.faults.catalogue import FAULTS as EVERYWHERE
from support.faults.changes import PLAIN, Change, Twist
from support.faults.fault import Effect, made_up
from support.faults.places import Places
from support.node import JOB, LIMITS
from support.site import Site

EARLIER = "00000000-0000-0000-0000-000000000000"


def places(site: Site) -> Places:
    programs = {name: str(site.programs / name) for name in (*(Places().programs), "kind", "systemctl")}
    return Places(
        root=site.root,
        slurm=site.slurm,
        shim=site.slurm / "moorage.so",
        configuration=site.configuration,
        features=site.place / "features.d",
        programs=programs,
        runtimes=(site.programs / "crun",),
        scratch=site.scratch,
        states=site.states,
        store=site.store,
        run=site.run,
    )


@contextmanager
def job_of_an_earlier_boot(at: Places) -> Iterator[Twist]:
    State.begin(JOB, LIMITS).changed(boot=EARLIER)
    yield PLAIN
    for file in at.states.glob(f"{JOB.id}.*"):
        file.unlink()


@contextmanager
def measured_on_another_kernel(at: Places) -> Iterator[Twist]:
    nothing = Spread(1, 1, 1)
    Record("5.14.0", Speed(nothing, nothing, nothing), {}, {}).save()
    yield PLAIN
    uplink_speed.PLACE.unlink()


FAULTS = {name: fault for name, fault in EVERYWHERE.items() if fault.made_up} | {
    "job of an earlier boot": made_up(
        Effect.FOUND,
        r"leftovers: job 17 has not been cleaned up: the node has booted since: .*",
        job_of_an_earlier_boot,
    ),
    "uplinks measured on another kernel": made_up(
        Effect.ADVICE,
        r"uplink: another kernel or program has come since the uplinks were measured: pasta, slirp4netns.*",
        measured_on_another_kernel,
    ),
}


def broken(site: Site, name: str) -> Change:
    how = FAULTS[name].made_up
    assert how
    return how(places(site))


def pattern(site: Site, name: str) -> str:
    return places(site).pattern(FAULTS[name].doctor)
