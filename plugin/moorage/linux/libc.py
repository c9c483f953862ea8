"""System calls that Python does not offer: the one place that uses ctypes.

Each function raises OSError with the kernel's reason. Structures are bytes, packed by the caller.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

NEW_MOUNTS: Final = 0x00020000
NEW_USER: Final = 0x10000000
NEW_NETWORK: Final = 0x40000000

# The same numbers on every architecture. glibc has functions for some of these calls from 2.36 on only.
_OPEN_TREE: Final = 428
_MOVE_MOUNT: Final = 429
_FSOPEN: Final = 430
_FSCONFIG: Final = 431
_FSMOUNT: Final = 432
_OPENAT2: Final = 437
_MOUNT_SETATTR: Final = 442
_QUOTACTL_FD: Final = 443

_AT_CWD: Final = -100
_EMPTY_PATH: Final = 0x1000
_FROM_EMPTY_PATH: Final = 0x4
_CONFIGURE_CREATE: Final = 6
_CLOEXEC: Final = 1
# struct timex is smaller on every architecture.
_TIMEX_ROOM: Final = 512

_libc: Final = ctypes.CDLL(None, use_errno=True)


def setns(namespace: int, kind: int) -> None:
    """Move this thread to the namespace that the descriptor is of."""
    _checked(_libc.setns(namespace, kind))


def unshare(kinds: int) -> None:
    """Give this process new namespaces of these kinds."""
    _checked(_libc.unshare(kinds))


def mount(source: str, point: Path, kind: str, flags: int, options: str) -> None:
    words = (os.fsencode(source), os.fsencode(point), kind.encode() or None)
    _checked(_libc.mount(*words, ctypes.c_ulong(flags), options.encode() or None), point)


def umount(point: Path, flags: int) -> None:
    _checked(_libc.umount2(os.fsencode(point), flags), point)


def prctl(option: int, value: int) -> None:
    _checked(_libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)))


def clock_state() -> int:
    """The state of the kernel's clock, as adjtimex(2) returns it; zeros in its argument change nothing."""
    return _checked(_libc.adjtimex(ctypes.create_string_buffer(_TIMEX_ROOM)))


def openat2(parent: int, name: str, how: bytes) -> int:
    """Open a name in a directory with a packed struct open_how."""
    return _syscall(_OPENAT2, name, parent, os.fsencode(name), how, len(how))


def open_tree(place: Path, flags: int) -> int:
    return _syscall(_OPEN_TREE, place, _AT_CWD, os.fsencode(place), flags)


def move_mount(mount: int, point: Path) -> None:
    """Attach a detached mount, given by its descriptor."""
    _syscall(_MOVE_MOUNT, point, mount, b"", _AT_CWD, os.fsencode(point), _FROM_EMPTY_PATH)


def mount_setattr(mount: int, attributes: bytes, called: Path) -> None:
    """Change a detached mount with a packed struct mount_attr; `called` is its name in an error."""
    _syscall(_MOUNT_SETATTR, called, mount, b"", _EMPTY_PATH, attributes, len(attributes))


def fsopen(kind: str) -> int:
    return _syscall(_FSOPEN, None, kind.encode(), _CLOEXEC)


def fsconfig_create(context: int) -> None:
    _syscall(_FSCONFIG, None, context, _CONFIGURE_CREATE, None, None, 0)


def fsmount(context: int) -> int:
    return _syscall(_FSMOUNT, None, context, _CLOEXEC, 0)


def quotactl(descriptor: int, command: int, number: int, quota: bytearray) -> None:
    """quotactl_fd(2); the kernel reads the packed struct if_dqblk, or writes to it."""
    buffer = (ctypes.c_char * len(quota)).from_buffer(quota)
    _syscall(_QUOTACTL_FD, "project quota", descriptor, command, number, buffer)


def _syscall(number: int, called: str | Path | None, *words: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    # Every number is a whole register: the kernel takes of it what it needs.
    registers = (ctypes.c_long(word) if isinstance(word, int) else word for word in words)
    return _checked(_libc.syscall(ctypes.c_long(number), *registers), called)


def _checked(result: int, called: str | Path | None = None) -> int:
    """The result; OSError if it is negative, about the named file if there is one."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), *([os.fspath(called)] if called is not None else []))
    return int(result)
