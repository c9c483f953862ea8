"""Attacks that a user can try in a job.

    hostile.py deep PLACE COUNT        directories within directories
    hostile.py many PLACE COUNT        so many empty files, or as many as there is room for; prints how many
    hostile.py hang PLACE              a FUSE mount that never answers, and a process that waits for it
    hostile.py lock PLACE              the same, with the waiting process holding the server's end as well
    hostile.py serve PLACE             the same mount, and nobody who waits
    hostile.py wait PLACE              a process that waits for such a mount of somebody else's
    hostile.py hold PLACE...           keep each open; the first is also the working directory

The last five stay until they are killed. Runs in a guest as a user, in namespaces of his own or without.
"""
# Descriptors, forks and bare calls are its matter.
# ruff: noqa: PTH102, PTH123, PTH208

import ctypes
import os
import signal
import socket
import struct
import subprocess
import sys
import time

LONGEST = 1 << 17
OF_UML = os.uname().release.endswith("-uml")
OPENAT = "257"
_REQUEST = struct.Struct("IIQQIIII")
_ANSWER = struct.Struct("IiQ")
_INITIALISED = struct.Struct("IIIIHHIIHH28x")


def say(text: str) -> None:
    print(text, flush=True)


def deep(place: str, count: int) -> None:
    here = os.open(place, os.O_RDONLY)
    for number in range(count):
        os.mkdir("deeper", dir_fd=here)
        below = os.open("deeper", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
        if number % 100 == 0:
            os.close(os.open("file", os.O_WRONLY | os.O_CREAT, 0o000, dir_fd=here))
    say(f"deep {count}")


def many(place: str, count: int) -> None:
    """A hundred directories of them, as nobody may look for them by hand in one."""
    made = 0
    try:
        for number in range(count):
            if number % (count // 100 or 1) == 0:
                os.mkdir(f"{place}/many-{number}")
                os.chdir(f"{place}/many-{number}")
            os.mknod(str(number))
            made += 1
    except OSError as error:
        say(f"no more: {error.strerror}")
    say(f"many {made}")


def mounted(place: str) -> int:
    """The server's end of a new FUSE mount: by the kernel where we are root, else by the set-id helper."""
    if os.getuid() == 0:
        server = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"hung", os.fsencode(place), b"fuse", 0, options):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), place)
        return server
    ours, theirs = socket.socketpair()
    environment = {**os.environ, "_FUSE_COMMFD": str(theirs.fileno())}
    subprocess.run(["fusermount3", "--", place], env=environment, pass_fds=[theirs.fileno()], check=True)
    return socket.recv_fds(ours, 1, 1)[1][0]


def serve(place: str, server: int) -> None:
    """Take every request, so that it cannot be withdrawn, and answer none but the first."""
    _, _, request, *_ = _REQUEST.unpack_from(os.read(server, LONGEST))
    body = _INITIALISED.pack(7, 31, 0, 0, 0, 0, 4096, 0, 0, 0)
    os.write(server, _ANSWER.pack(_ANSWER.size + len(body), 0, request) + body)
    say(f"serving {place}")
    while True:
        os.read(server, LONGEST)


def hang(place: str, *, locked: bool = False) -> None:
    """Serve it, and wait for it; locked: who waits keeps alive what he waits for."""
    server = mounted(place)
    if os.fork():
        serve(place, server)
    if not locked:
        os.close(server)
    wait_for(place)


def wait_for(place: str) -> None:
    """A process that no signal ends as long as the mount's server lives."""
    child = os.fork()
    if not child:
        os.listdir(place)
        os._exit(0)
    while not _stuck(child):
        time.sleep(0.1)
    say(f"waiting for {place}")
    os.waitpid(child, 0)


def _stuck(pid: int) -> bool:
    with open(f"/proc/{pid}/wchan") as where, open(f"/proc/{pid}/syscall") as call:
        # User-Mode Linux (7.2) has one wchan for all that sleeps.
        return where.read() == "request_wait_answer" or (OF_UML and call.read().split()[0] == OPENAT)


def hold(first: str, *others: str) -> None:
    for place in (first, *others):
        os.open(place, os.O_RDONLY)
    os.chdir(first)
    say(f"holding {first}")
    signal.pause()


match sys.argv[1:]:
    case ["deep", place, count]:
        deep(place, int(count))
    case ["many", place, count]:
        many(place, int(count))
    case ["serve", place]:
        serve(place, mounted(place))
    case ["hang", place]:
        hang(place)
    case ["lock", place]:
        hang(place, locked=True)
    case ["wait", place]:
        wait_for(place)
    case ["hold", first, *others]:
        hold(first, *others)
