"""New things on a node: two lists of its contents, compared."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from moorage.common.errors import MoorageError

from ..guest.cluster import Cluster
from ..guest.machine import Machine

PROGRAM = Path(__file__).resolve().parents[1] / "in_guest" / "node_contents.py"
# The kernel takes namespaces and what lies in them apart after their last user has gone, and systemd forgets later.
SETTLING = 10.0
MOST_NAMED = 40


@dataclass(frozen=True)
class Thing:
    kind: str
    what: str
    # For people: another number each time.
    more: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.kind} {self.what}" + f" ({self.more})" * bool(self.more)


@dataclass(frozen=True)
class Exclusion:
    kind: str
    what: str
    reason: str

    def covers(self, thing: Thing) -> bool:
        return thing.kind == self.kind and re.fullmatch(self.what, thing.what) is not None


EXCLUDED = (
    Exclusion("file", r"/run/mount/utab(\.event|\.lock)?", "libmount's notes: the first mount after a boot makes them"),
    Exclusion("file", "/run/moorage/facts.json", "what all jobs of one boot may remember of the node's programs"),
    Exclusion(
        "file", "/run/crun", "crun makes it when root asks for its version, which the first Prolog of a boot does"
    ),
    Exclusion("file", "/var/lib/moorage/scratch/.moorage-trash", "the trash itself, whose content is looked at"),
    Exclusion("file", "/var/lib/moorage/trash", "where there have been such, for a configuration that has moved on"),
    Exclusion(
        "file", r"/var/lib/moorage/records(/[0-9-]+\.jsonl)?", "the records of ended jobs, which are there to stay"
    ),
    Exclusion("file", r"/var/lib/moorage/tally\.(json|lock)", "what has been counted of them"),
    Exclusion("file", "/var/lib/slurm/slurmd/cred_state.*", "slurmd's notes of the jobs it has seen"),
    Exclusion("lock", "DELEG on .* by nfsd .*", "the file server's, which grants and takes back as it likes"),
    Exclusion("file", "/run/systemd/(transient|units)/.*", "systemd's notes of units, which are looked at themselves"),
    Exclusion(
        "file",
        "/run/systemd/journal/streams/.*",
        "the journal's notes of who writes to it, by another number each time",
    ),
    Exclusion(
        "cgroup",
        r"/sys/fs/cgroup/user\.slice/user-\d+\.slice/user-runtime-dir@\d+\.service",
        "systemd's, from a user's first login until some time after the last",
    ),
    Exclusion("file", r"/run/systemd/sessions/\d+(\.ref)?", "logind's notes of logins, by other numbers after a boot"),
    Exclusion("file", "/run/udev/.*", "udev's notes of devices, which are looked at themselves"),
    Exclusion("file", "/dev/disk/.*", "udev's names of devices"),
    Exclusion("unit", r".*\.device is active", "systemd's names of devices"),
    Exclusion("file", r"/dev/loop\d+", "the kernel keeps a free one for the next who asks"),
    Exclusion("file", "/run/rpc_pipefs/nfs/.*", "the NFS client's, by another number after each boot"),
    Exclusion(
        "file", "/run/rpc_pipefs/nfsd4_cb/.*", "the file server's, by another number after each boot of a client"
    ),
    Exclusion(
        "socket", r"tcp \S+ port 2049 of uid \d+", "the file server's end, taken for that of who came first by it"
    ),
    Exclusion(
        "file", "(/var)?/tmp/systemd-private-[0-9a-f]{32}-(?!moorage).*", "a service's own, by another name each time"
    ),
    Exclusion("process", r"\(udev-worker\) of uid 0 .*", "udev has one or none of them, as it likes"),
    Exclusion("socket", r"unix @\d{8,}", "systemd-udevd's, by another number after each boot (systemd 262)"),
    Exclusion("socket", "unix @[0-9a-f]+/bus/.*", "the end of a connection to D-Bus, by another name each time"),
    Exclusion(
        "file",
        r"/var/lib/slurm/slurmd/n\d+_\d+\.4294967292",
        "the socket of a job's extern step, in which nothing of ours runs: Slurm 24.11 leaves one now and then",
    ),
    Exclusion("file", "/var/lib/slurm/slurmctld/.*", "the controller's own, kept until MinJobAge has passed"),
)

AT_A_POWER_CUT = Exclusion(
    "file", r"/var/lib/slurm/slurmd/(n\d+_|hwloc_topo_)\d+\..*", "of any job's steps, moored or not, at a power cut"
)

OF_A_SNAPSHOT = Exclusion(
    "process",
    r"sshd\S* of uid 0 in /system\.slice/ssh\.service",
    "the connection of these tests, which in the guest goes on when it is restored",
)


@dataclass
class Watch:
    """A node, looked at before and after."""

    lab: Cluster
    machine: Machine
    before: list[Thing] | None = None
    excluded: Sequence[Exclusion] = EXCLUDED

    @contextmanager
    def nothing_left(self) -> Iterator[dict[str, str]]:
        """What happens in the block leaves nothing on the node, once that has had its moment to settle.

        The block may write down whose endings these were, to be named with what is found.
        """
        before = record(self.machine, self.excluded) if self.before is None else self.before
        # Whatever is found wrong is held against this block, and against no later one.
        self.before = None
        endings: dict[str, str] = {}
        try:
            yield endings
        except BaseException:
            if endings:
                self.lab.first.shell.run(["scancel", "--quiet", *endings])
            raise
        self.lab.wait_idle()
        after, left = settled(self.machine, before, self.excluded)
        if left:
            jobs = ", ".join(f"job {job} ({how})" for job, how in endings.items())
            raise MoorageError(f"after {jobs} {self.machine.name} keeps {report(left)}")
        self.before = after


@contextmanager
def nothing_left_on(watches: Sequence[Watch]) -> Iterator[dict[str, str]]:
    """The same on each of several nodes."""
    with ExitStack() as stack:
        every = [stack.enter_context(watch.nothing_left()) for watch in watches]
        try:
            yield every[0]
        finally:
            for endings in every[1:]:
                endings.update(every[0])


def make_ready(machine: Machine) -> None:
    """Have the kernel tell of FUSE connections: elsewhere systemd sees to it at boot, of which guests skip a part."""
    place = "/sys/fs/fuse/connections"
    machine.shell.run(["sh", "-c", 'mountpoint --quiet "$1" || mount -t fusectl fusectl "$1"', "sh", place])


def record(machine: Machine, excluded: Sequence[Exclusion] = EXCLUDED) -> list[Thing]:
    """All contents of the node now, without those that are excluded by name."""
    rows = json.loads(machine.shell.run(["python3", "-"], input=PROGRAM.read_bytes()).stdout)
    things = (Thing(*map(str, row)) for row in rows)
    return [thing for thing in things if not any(one.covers(thing) for one in excluded)]


def settled(
    machine: Machine, before: Sequence[Thing], excluded: Sequence[Exclusion] = EXCLUDED
) -> tuple[list[Thing], list[Thing]]:
    """The contents of the node, and the new ones: at once if there are none, else after the time to settle."""
    deadline = time.monotonic() + SETTLING
    while (left := new(before, after := record(machine, excluded))) and time.monotonic() < deadline:
        pass
    return after, left


def new(before: Iterable[Thing], after: Sequence[Thing]) -> list[Thing]:
    """Of several that are alike as many as there are more of than before."""
    known = Counter(before)
    found = []
    for thing in after:
        known[thing] -= 1
        if known[thing] < 0:
            found.append(thing)
    return found


def report(things: Sequence[Thing]) -> str:
    lines = [*map(str, things[:MOST_NAMED]), f"and {len(things) - MOST_NAMED} more"][: len(things)]
    return f"{len(things)} things:\n  " + "\n  ".join(lines)
