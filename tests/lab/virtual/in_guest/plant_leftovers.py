"""Put one of each kind of thing that a job could leave behind on this machine, or take them all away again.

python3 - plant     prints as JSON what it has planted: each kind, and a pattern of how it is spoken of
python3 - remove
"""

import ctypes
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

ALICE, SUBORDINATE = 1001, 100123
NAMES = ("planted", "conmon")
PORT = 4711
# Slurm's own place has another name where the node has another name than its host.
(SLURM,) = Path("/sys/fs/cgroup/system.slice").glob("*slurmstepd.scope")
CGROUPS = (Path("/sys/fs/cgroup/planted"), SLURM / "job_999999")
LOCK = Path("/var/lib/moorage/jobs/999999.lock")
FILES = (
    LOCK,
    Path("/var/lib/moorage/jobs/999999.json"),
    Path("/run/moorage/999999"),
    Path("/run/user/999999"),
    *(Path(place, "planted") for place in ("/dev/shm", "/local/alice", "/scratch", "/tmp", "/var/lib/slurm/slurmd")),
)
MOUNTS = (Path("/mnt/planted"), Path("/mnt/planted-fuse"))
HIDDEN = Path("/mnt/planted-elsewhere")
IMAGE = Path("/root/planted.img")
PAGE = 4096

libc = ctypes.CDLL(None, use_errno=True)
NEW_MOUNTS, NEW_USERS, NEW_NETWORK = 0x00020000, 0x10000000, 0x40000000
SLAVE = 0x00084000
SET_NAME = 15
ADD_KEY, OF_THE_PROCESS = 248, -2
CREATE, REMOVE = 0o1600, 0
ears: list[socket.socket] = []


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


def checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def mount(kind: bytes, point: Path, flags: int = 0, options: bytes = b"") -> None:
    checked(libc.mount(b"planted", os.fsencode(point), kind, ctypes.c_ulong(flags), options))


def process(life: Callable[[], None], *, name: str = "planted", uid: int = 0) -> None:
    """A process that does this and then stays; told of once it is done."""
    done, report = os.pipe()
    if os.fork():
        os.close(report)
        if os.read(done, 1) != b"!":
            raise RuntimeError(f"a {name} of uid {uid} could not be planted")
        return
    with suppress(BaseException):
        os.setsid()
        os.setresuid(uid, uid, uid)
        checked(libc.prctl(SET_NAME, name.encode()))
        life()
        for stream in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        os.write(report, b"!")
        os.close(report)
        signal.pause()
    os._exit(1)


def of_alice() -> None:
    """Sockets, a key and a piece of shared memory, which outlives her."""
    ears.extend([socket.socket(socket.AF_UNIX), socket.socket(socket.AF_INET)])
    ears[0].bind("\0planted")
    ears[1].bind(("127.0.0.1", PORT))
    for ear in ears:
        ear.listen()
    checked(libc.syscall(ADD_KEY, b"user", b"planted", b"x", ctypes.c_size_t(1), OF_THE_PROCESS))
    checked(libc.shmget(PORT, PAGE, CREATE))


def of_root() -> None:
    """A lock, and a mount namespace that nobody is in, with a mount of its own."""
    fcntl.flock(os.open(LOCK, os.O_RDWR), fcntl.LOCK_EX)
    HIDDEN.mkdir()
    there, ready = os.pipe()
    finished, finish = os.pipe()
    child = os.fork()
    if child == 0:
        checked(libc.unshare(NEW_MOUNTS))
        mount(b"none", Path("/"), SLAVE)
        mount(b"tmpfs", HIDDEN)
        os.write(ready, b"!")
        os.read(finished, 1)
        os._exit(0)
    os.read(there, 1)
    os.open(f"/proc/{child}/ns/mnt", os.O_RDONLY)
    os.write(finish, b"!")
    os.wait()


def fuse() -> None:
    """A file system whose server never answers."""
    descriptor = os.open("/dev/fuse", os.O_RDWR)
    mount(b"fuse", MOUNTS[1], 0, f"fd={descriptor},rootmode=40000,user_id=0,group_id=0".encode())


def apart() -> None:
    checked(libc.unshare(NEW_USERS | NEW_NETWORK))


def plant() -> Iterator[tuple[str, str]]:
    for place in (*CGROUPS, *MOUNTS):
        place.mkdir()
    yield from (("cgroup", str(place)) for place in CGROUPS)
    for place in FILES:
        place.touch()
        yield "file", str(place)
    process(of_root)
    yield from (("process", "planted of uid 0 .*"), ("lock", f"FLOCK on {LOCK} by planted .*"))
    yield from (("namespace", "mnt of an open file of planted .*"), ("mount", f"tmpfs on {HIDDEN}"))
    process(of_alice, uid=ALICE)
    yield from (("process", "planted of uid 1001 .*"), ("socket", "unix @planted"), ("key", "user planted of uid 1001"))
    yield "key", "keyring _pid of uid 1001"
    yield from (("socket", f"tcp 0100007F port {PORT} of uid 1001"), ("shared memory", "shm of uid 1001"))
    process(lambda: None, uid=SUBORDINATE)
    yield "process", f"planted of uid {SUBORDINATE} .*"
    process(fuse, name="conmon")
    yield from (("process", "conmon of uid 0 .*"), ("mount", f"fuse on {MOUNTS[1]}"), ("fuse connection", "one"))
    process(apart, uid=ALICE)
    yield from (("namespace", "user of planted of uid .*"), ("namespace", "net of planted of uid .*"))
    yield "link", "lo of planted of uid .*"
    mount(b"tmpfs", MOUNTS[0])
    yield from (("mount", f"tmpfs on {MOUNTS[0]}"), ("unit", "mnt-planted.*mount is active"))
    run("ip", "link", "add", "planted0", "type", "dummy")
    yield "link", "planted0"
    run("nft", "add table inet planted; add chain inet planted quay")
    yield from (("nft", "table inet planted {"), ("nft", "chain quay {"))
    run("truncate", "--size=1M", str(IMAGE))
    run("losetup", "--find", str(IMAGE))
    yield "loop device", str(IMAGE)
    run("systemd-run", "--unit=moorage-planted", "--remain-after-exit", "true")
    subprocess.run(["systemd-run", "--wait", "--unit=planted", "false"], capture_output=True, check=False)
    yield from (("unit", "moorage-planted.service is active"), ("unit", "planted.service is failed"))


def remove() -> None:
    run("systemctl", "stop", "moorage-planted.service")
    run("systemctl", "reset-failed", "planted.service")
    run("losetup", "--detach-all")
    run("nft", "delete table inet planted")
    run("ip", "link", "delete", "planted0")
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if status.read_text().partition("\n")[0].removeprefix("Name:\t") in NAMES:
                os.kill(int(status.parts[2]), signal.SIGKILL)
    run("umount", "--lazy", *map(str, MOUNTS))
    checked(libc.shmctl(libc.shmget(PORT, PAGE, 0), REMOVE, None))
    for file in (*FILES, IMAGE):
        file.unlink()
    for place in (*CGROUPS, *MOUNTS, HIDDEN):
        place.rmdir()


if sys.argv[1] == "plant":
    print(json.dumps([*plant()]))
else:
    remove()
