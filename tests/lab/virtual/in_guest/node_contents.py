"""Print as JSON all that a job could leave on this machine: the kind, the name, and details for people.

Runs in a guest as root with nothing but Python, and shares no code with what it watches. What is said of a thing holds
no number that is given out anew, so that it stays the same through a restart of its daemon and through a boot.
"""
# ruff: noqa: PTH115, PTH118, PTH123, PTH208

import ctypes
import fcntl
import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PLACES = (
    "/dev", "/local", "/run", "/scratch", "/tmp", "/var/lib/containers", "/var/lib/moorage", "/var/lib/slurm",
    "/var/spool", "/var/tmp",
)  # fmt: skip
PROC = Path("/proc")
libc = ctypes.CDLL(None, use_errno=True)
NAMESPACE = re.compile(r"(cgroup|ipc|mnt|net|pid|time|user|uts):\[\d+\]")
GIVEN_OUT = 32768
LISTENING = "0A"
SOCKETS = ("tcp", "tcp6", "udp", "udp6", "raw", "raw6")
# From Linux 6.12 on: the mount namespaces before and after one, held by whomever or by nobody.
NEIGHBOURS = (0x8010B70B, 0x8010B70C)

Found = Iterator[tuple[str, str, object]]
# Of a process that has just ended.
GONE = (FileNotFoundError, ProcessLookupError)


@dataclass(frozen=True)
class Holder:
    """Where a namespace can be opened, and in which words it is spoken of."""

    handle: str
    words: str


def everything() -> Found:
    namespaces, seen = living(), dict[str, str]()
    yield from processes()
    yield from (("namespace", f"{name.split(':')[0]} of {one.words}", name) for name, one in namespaces.items())
    yield from mounts(namespaces)
    for name, holder in namespaces.items():
        if name.startswith("net:"):
            yield from network(holder)
    yield from (("cgroup", place, "") for place, _, _ in os.walk("/sys/fs/cgroup"))
    for place in PLACES:
        yield from files(place, seen)
    yield from locks(seen)
    yield from devices()
    yield from units()
    yield from kept()


def rows(table: str, *, title: int = 1) -> list[list[str]]:
    """None where the kernel has no such table, as it has none of IPv6's where that is off."""
    place = PROC / table
    return [line.split() for line in place.read_text().splitlines()[title:]] if place.exists() else []


def pids() -> list[int]:
    return sorted(int(name) for name in os.listdir(PROC) if name.isdigit())


def process(pid: int) -> tuple[str, dict[str, str]]:
    """How it is spoken of, and its status."""
    status = dict(line.split(":\t", 1) for line in (PROC / f"{pid}/status").read_text().splitlines() if ":\t" in line)
    cgroup = (PROC / f"{pid}/cgroup").read_text().strip().rpartition("::")[2]
    return f"{status['Name']} of uid {status['Uid'].split()[0]} in {cgroup}", status


@cache
def own() -> set[int]:
    """This process, and what it was started by."""
    found, pid = set(), os.getpid()
    while pid > 1:
        found.add(pid)
        pid = int(process(pid)[1]["PPid"])
    return found


def processes() -> Found:
    for pid in set(pids()) - own():
        with suppress(*GONE):
            words, status = process(pid)
            # The kernel's own are children of process 2, which is a child of nobody.
            if status["PPid"] not in ("0", "2"):
                command = (PROC / f"{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
                yield "process", words, f"pid {pid}: {command}"


def living() -> dict[str, Holder]:
    """All namespaces that processes use, hold open or have mounted, and mount namespaces without a process."""
    found: dict[str, Holder] = {}
    for pid in pids():
        if pid not in own():
            with suppress(*GONE):
                words = process(pid)[0]
                for task in (PROC / f"{pid}/task").iterdir():
                    links(found, task / "ns", words)
                links(found, PROC / f"{pid}/fd", f"an open file of {words}")
    for name, holder in [*found.items()]:
        if name.startswith("mnt:") and "/task/" in holder.handle:
            mounted(found, holder)
    for handle in unowned():
        name = os.readlink(handle)
        found.setdefault(name, Holder(handle, "no process"))
    return found


def links(found: dict[str, Holder], directory: Path, words: str) -> None:
    for entry in os.scandir(directory):
        with suppress(*GONE):
            target = os.readlink(entry.path)
            if NAMESPACE.fullmatch(target):
                found.setdefault(target, Holder(entry.path, words))


def mounted(found: dict[str, Holder], among: Holder) -> None:
    root = among.handle.rpartition("/task/")[0] + "/root"
    for kind, point, inner in table(among):
        if kind == "nsfs":
            found.setdefault(inner, Holder(root + point, f"the mount on {point}"))


def unowned() -> Iterator[str]:
    for direction in NEIGHBOURS:
        descriptor = os.open("/proc/self/ns/mnt", os.O_RDONLY)
        with suppress(OSError):
            while True:
                descriptor = fcntl.ioctl(descriptor, direction, bytearray(16))
                yield f"/proc/self/fd/{descriptor}"


def table(namespace: Holder) -> list[tuple[str, str, str]]:
    """Kind, mount point and root of each mount in there."""
    with inside(namespace, "mnt") as proc:
        descriptor = os.open("self/mountinfo", os.O_RDONLY, dir_fd=proc)
    with open(descriptor, errors="surrogateescape", newline="\n") as lines:
        rows = [line.split(" - ", 1) for line in lines]
    return [(rest.split()[0], fixed.split()[4], fixed.split()[3]) for fixed, rest in rows]


@contextmanager
def inside(namespace: Holder, kind: str) -> Iterator[int]:
    """Be in another namespace for a moment; gives /proc as it is here."""
    here, there = os.open(f"/proc/self/ns/{kind}", os.O_RDONLY), os.open(namespace.handle, os.O_RDONLY)
    proc = os.open(PROC, os.O_RDONLY)
    if libc.setns(there, 0):
        raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    try:
        yield proc
    finally:
        libc.setns(here, 0)
        for descriptor in (here, there, proc):
            os.close(descriptor)


def mounts(namespaces: dict[str, Holder]) -> Found:
    """Each mount once, however many namespaces have it; twice if it is in one of them twice."""
    all_of_them: dict[str, str] = {}
    for name, holder in namespaces.items():
        if name.startswith("mnt:"):
            for (kind, point), number in Counter((kind, point) for kind, point, _ in table(holder)).items():
                for one in range(number):
                    all_of_them.setdefault(f"{kind} on {point}" + f" ({one + 1})" * bool(one), holder.words)
    yield from (("mount", what, f"seen by {words}") for what, words in all_of_them.items())


def network(namespace: Holder) -> Found:
    """Links, packet filters and sockets of one network namespace."""
    with inside(namespace, "net"):
        where = "" if os.readlink("/proc/self/ns/net") == os.readlink("/proc/1/ns/net") else f" of {namespace.words}"
        rules = subprocess.run(["nft", "--stateless", "list", "ruleset"], capture_output=True, text=True, check=True)
        here = {name: rows(f"thread-self/net/{name}") for name in ("dev", "unix", *SOCKETS)}
    yield from (("link", row[0].rstrip(":") + where, "") for row in here["dev"][1:])
    yield from (("nft", line.strip() + where, "") for line in rules.stdout.splitlines() if line.strip(" \t}"))
    yield from (("socket", f"unix {name}{where}", "") for name in {row[7] for row in here["unix"] if len(row) > 7})
    for kind in SOCKETS:
        for row in here[kind]:
            address, port = row[1].split(":")
            if row[3] == LISTENING or not kind.startswith("tcp") or int(row[7]) in people():
                shown = "some port" if int(row[7]) == 0 and int(port, 16) >= GIVEN_OUT else f"port {int(port, 16)}"
                yield "socket", f"{kind} {address} {shown} of uid {row[7]}{where}", f"state {row[3]}"


def files(place: str, seen: dict[str, str]) -> Found:
    """Everything in there, whatever is mounted below; `seen` maps what /proc/locks calls them to their paths."""
    for directory, directories, names in os.walk(place):
        for path in (os.path.join(directory, name) for name in (*directories, *names)):
            # Of another user's FUSE file system root is told nothing; that is found among the mounts.
            with suppress(FileNotFoundError, PermissionError):
                status = os.lstat(path)
                device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
                seen[f"{device}:{status.st_ino}"] = path
                yield "file", path, f"uid {status.st_uid}, mode {status.st_mode:o}"


def locks(seen: dict[str, str]) -> Found:
    for row in rows("locks", title=0):
        *_, kind, _, _, pid, place, _, _ = row
        holder = "a process that shares it"
        with suppress(*GONE):
            holder = process(int(pid))[0] if int(pid) > 0 else holder
        yield "lock", f"{kind} on {seen.get(place, 'another file')} by {holder}", place


def devices() -> Found:
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        yield "loop device", backing.read_text().strip(), backing.parts[3]
    for number in os.listdir("/sys/fs/fuse/connections") if os.path.ismount("/sys/fs/fuse/connections") else ():
        yield "fuse connection", "one", number


def units() -> Found:
    argv = ["systemctl", "list-units", "--all", "--plain", "--no-legend", "--full", "--no-pager"]
    for line in subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines():
        name, _, active, *more = line.split()
        if active != "inactive" or "moorage" in name:
            yield "unit", f"{name} is {active}", " ".join(more)


@cache
def people() -> set[int]:
    """The users' ids, and those that are subordinate to them."""
    accounts = (row.split(":") for row in Path("/etc/passwd").read_text().splitlines())
    ranges = (row.split(":") for row in Path("/etc/subuid").read_text().splitlines())
    found = {int(uid) for _, _, uid, *_ in accounts if 1000 <= int(uid) < 60000}
    return found.union(*(range(int(first), int(first) + int(count)) for _, first, count in ranges))


def kept() -> Found:
    """Keys of users, and System V's shared memory and the like."""
    for row in rows("key-users", title=0):
        uid, number = int(row[0].rstrip(":")), int(row[2].partition("/")[0])
        if uid in people():
            seen = keys(uid)
            # A revoked one is dead; the NFS client keeps those of sessions in which somebody opened a file.
            yield from (("key", f"{words} of uid {uid}", "") for flags, words in seen if "R" not in flags)
            # Of a key in another user namespace, and of one that its owner may not view, there is just the number.
            yield from (("key", f"a key of uid {uid}", "") for _ in range(number - len(seen)))
    for kind, column in (("shm", 7), ("msg", 7), ("sem", 4)):
        for row in rows(f"sysvipc/{kind}"):
            yield "shared memory", f"{kind} of uid {row[column]}", f"id {row[1]}"


def keys(uid: int) -> list[tuple[str, str]]:
    """Flags and names of the user's keys, as he sees them: the kernel shows them to nobody else."""
    ours, theirs = os.pipe()
    if not (child := os.fork()):
        os.setgroups([])
        os.setresuid(uid, uid, uid)
        with open("/proc/keys") as table, open(theirs, "w") as answer:
            answer.writelines(line for line in table if line.split()[5] == str(uid))
        os._exit(0)
    os.close(theirs)
    with open(ours) as answer:
        seen = [line.split(None, 7) for line in answer]
    os.waitpid(child, 0)
    # Behind the last colon is how much is in it.
    return [(row[1], " ".join(row[7].rpartition(":")[0].split())) for row in seen]


print(json.dumps([*everything()]))
