"""Measures the uplinks of this node in a test network, in turns, and compares each one with the bare path."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

from pyroute2.netlink.exceptions import NetlinkError

from moorage.common.command import CommandError, run
from moorage.common.errors import MoorageError
from moorage.linux.links import links
from moorage.linux.netns import inside, path
from moorage.node.uplink_speed import Record, Speed, Spread
from moorage.root.net import gateway
from moorage.root.net.bench import testbed, traffic
from moorage.root.net.bench.testbed import OUTSIDE, Stage, await_default_route, host, stage
from moorage.root.net.gateway import Gateway, Site

BARE: Final = "bare"
KERNEL: Final = "kernel"
CARRIERS: Final = ("pasta", "slirp4netns")
JOB: Final = 1
# The test network has no fabric: any port will do.
PORT: Final = 339
PLUG: Final = "uplink0"
# The options of Podman, but in the foreground, and as root: there is no user namespace here.
_PASTA: Final = (
    *("--foreground", "--quiet", "--runas", "0", "--config-net", "--no-map-gw", "--mtu", "65520"),
    *("-t", "none", "-u", "none", "-T", "none", "-U", "none", "--netns"),
)
_SLIRP4NETNS: Final = ("--configure", "--mtu", "65520", "--disable-host-loopback", "--netns-type", "path")
# pasta gives up its privileges before it opens the namespace, and then cannot read descriptors of other processes (seen
# with 2023-03). If AppArmor confines it, it can still read files below /tmp.
_NAMED: Final = ("unshare", "--mount", "sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "sh")
SLACK: Final = 30.0
# The estimate adds time for the namespaces, and for each figure (Python starts, and TCP finds its speed).
SETTING_UP: Final = 3.0
EACH: Final = 0.4
# The fastest round of a path may be at most so many times its slowest. Uplinks differ by such factors themselves. If
# rounds of one path do, the figures show other load on the machine, and would choose an uplink by chance.
AGREE: Final = 2.0
NOTHING: Final = {"outward": 0.0, "inward": 0.0, "round_trip": traffic.LIMIT * 1e6}


@dataclass(frozen=True)
class Way:
    """A path from a network namespace to a server."""

    namespace: int
    address: str
    port: int


@dataclass(frozen=True)
class Sample:
    outward: float
    inward: float
    round_trip: float

    @property
    def worth(self) -> float:
        return min(self.outward, self.inward)


Samples = dict[str, list[Sample]]
Told = Callable[[str], None]


def measure(
    programs: Mapping[str, Path], versions: Mapping[str, str], repeat: int, seconds: float, told: Told = lambda _: None
) -> Record:
    """The speeds of all uplinks on this node, or the reasons why they do not work. `told` hears of the progress."""
    samples, left_out = try_out(programs, repeat, seconds, told)
    found = {name: summed_up(each) for name, each in samples.items()}
    bare = found.pop(BARE)
    return Record(os.uname().release, bare, found, {name: versions.get(name, "") for name in found}, left_out)


def estimated(programs: Iterable[str], repeat: int, seconds: float) -> float:
    """How many seconds a measurement takes."""
    paths = 2 + sum(name in CARRIERS for name in programs)
    return SETTING_UP + repeat * paths * len(traffic.MEASURES) * (seconds + EACH)


def unsteady(record: Record) -> str:
    """Why the figures cannot be kept: a path whose rounds disagree, or an empty string."""
    for name, speed in {BARE: record.bare, **record.uplinks}.items():
        for direction, spread in (("out", speed.outward), ("in", speed.inward)):
            if spread.most > spread.least * AGREE:
                return f"the rounds of {name} disagree ({direction}: {spread.least:.2f} to {spread.most:.2f} Gbit/s)"
    return ""


def try_out(
    programs: Mapping[str, Path], repeat: int, seconds: float, told: Told = lambda _: None
) -> tuple[Samples, dict[str, str]]:
    left_out: dict[str, str] = {}
    with ExitStack() as stack:
        scene = stack.enter_context(stage())
        with inside(scene.outside):
            port = stack.enter_context(traffic.serving(testbed.pair()[1]))
        ways = {BARE: Way(scene.node, str(OUTSIDE.ip), port)}
        for name, make in _drivers(programs).items():
            try:
                ways[name] = Way(stack.enter_context(make(scene)), str(OUTSIDE.ip), port)
                _try(ways[name])
            except (MoorageError, OSError, NetlinkError) as error:
                ways.pop(name, None)
                left_out[name] = str(error)
        # An uplink that exists and does not work must not look like one that was not measured.
        broken = {name: [Sample(**NOTHING)] * repeat for name in left_out if name in programs or name == KERNEL}
        return compare(ways, repeat, seconds, told) | broken, left_out


def compare(ways: Mapping[str, Way], repeat: int, seconds: float, told: Told = lambda _: None) -> Samples:
    """Measure each path once a round, so that a disturbance hits all of them. Each round begins with another one.

    A path by which nothing gets through counts as zero (some pasta breaks down for seconds). The first path must work:
    the others are compared with it.
    """
    names = list(ways)
    samples: Samples = {name: [] for name in names}
    for number in range(repeat):
        first = number % len(names)
        told(f"round {number + 1} of {repeat}: {', '.join(names)}")
        for name in names[first:] + names[:first]:
            samples[name].append(_sample(ways[name], seconds, must_hold=name == names[0]))
    return samples


def summed_up(samples: Sequence[Sample]) -> Speed:
    def spread(name: str) -> Spread:
        return Spread.of([getattr(sample, name) for sample in samples])

    return Speed(spread("outward"), spread("inward"), spread("round_trip"))


def ratios(samples: Sequence[Sample], base: Sequence[Sample], name: str) -> Spread:
    """The ratios of one path to another, each within a round."""
    return Spread.of([getattr(ours, name) / getattr(theirs, name) for ours, theirs in zip(samples, base, strict=True)])


def _sample(way: Way, seconds: float, *, must_hold: bool) -> Sample:
    figures = dict(NOTHING)
    for name in traffic.MEASURES:
        try:
            figures[name] = _figure(way, name, seconds)
        except CommandError:
            if must_hold:
                raise
    return Sample(**figures)


def _figure(way: Way, name: str, seconds: float) -> float:
    words = [name, str(testbed.pair()[0]), way.address, str(way.port), str(seconds)]
    with inside(way.namespace):
        return float(run([sys.executable, "-IS", traffic.__file__, *words], limit=seconds + SLACK).stdout)


def _try(way: Way) -> None:
    """Try a path once: a driver may run and yet lead nowhere."""
    _figure(way, "round_trip", 0.05)


def _drivers(programs: Mapping[str, Path]) -> dict[str, Callable[[Stage], AbstractContextManager[int]]]:
    """For each uplink, how to make a network namespace with a default route by it."""

    def pasta(scene: Stage) -> AbstractContextManager[int]:
        return _carried(
            scene, lambda job, place: [*_NAMED, path(job), place, _found("pasta", programs), *_PASTA, place]
        )

    def slirp4netns(scene: Stage) -> AbstractContextManager[int]:
        return _carried(scene, lambda job, _: [_found("slirp4netns", programs), *_SLIRP4NETNS, path(job), "tap0"])

    return {KERNEL: _routed, "pasta": pasta, "slirp4netns": slirp4netns}


def _found(name: str, programs: Mapping[str, Path]) -> str:
    if name not in programs:
        raise MoorageError("not installed")
    return str(programs[name])


@contextmanager
def _routed(scene: Stage) -> Iterator[int]:
    with host() as job:
        with inside(scene.node):
            ours = Gateway.of(JOB, PORT, Site())
            gateway.make(ours)
            gateway.plug(ours, job, PLUG)
        with inside(job), links() as here:
            end = here.index(PLUG) or 0
            here.give_address(end, ours.inner)
            here.set_up(end)
            here.ip.route("add", dst="default", gateway=str(ours.outer.ip))
        yield job


@contextmanager
def _carried(scene: Stage, command: Callable[[int, str], Sequence[str]]) -> Iterator[int]:
    """Run an uplink that is a process, with an empty file for its use, until the block ends."""
    with host() as job, NamedTemporaryFile(prefix="moorage-") as file:
        words = command(job, file.name)
        with inside(scene.node):
            carrier = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
        with carrier:
            try:
                _await_carrier(carrier, job)
                yield job
            finally:
                carrier.kill()


def _await_carrier(carrier: subprocess.Popen[bytes], job: int) -> None:
    try:
        await_default_route(job, lambda: carrier.poll() is not None)
    except MoorageError:
        if carrier.poll() is None:
            raise
        said = carrier.communicate()[0].decode(errors="replace").strip().splitlines()
        raise MoorageError(f"ended with code {carrier.returncode}: {said[-1] if said else 'without a word'}") from None
