"""Loop devices that are detached with their last user."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

CONTROL: Final = Path("/dev/loop-control")
BLOCK: Final = 4096

_GET_FREE: Final = 0x4C82
_CONFIGURE: Final = 0x4C0A
_AUTOCLEAR: Final = 4
_DIRECT_IO: Final = 16
# struct loop_config: file, block size, struct loop_info64 (5 long numbers, 4 short ones, 3 names, 2 numbers), rest.
_CONFIG: Final = struct.Struct("=II 5Q IIII 64s64s32s 2Q 8Q")
_TRIES: Final = 64


@contextmanager
def attached(image: Path) -> Iterator[Path]:
    """A loop device over the image; it detaches itself once neither this block nor a mount uses it."""
    with image.open("r+b") as file:
        device, descriptor = _attach(file.fileno(), image)
    try:
        yield device
    finally:
        os.close(descriptor)


def _attach(file: int, image: Path) -> tuple[Path, int]:
    for _ in range(_TRIES):
        device = Path(f"/dev/loop{_free()}")
        descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
        try:
            # Without direct I/O its pages would be in memory twice. If the file system has none, the kernel ignores it.
            fcntl.ioctl(descriptor, _CONFIGURE, _config(file, image.name, _AUTOCLEAR | _DIRECT_IO))
        except OSError as error:
            os.close(descriptor)
            if error.errno != errno.EBUSY:
                raise
            # Another process has taken this device.
            continue
        return device, descriptor
    raise OSError(errno.EBUSY, "no free loop device", str(image))


def _free() -> int:
    control = os.open(CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        return fcntl.ioctl(control, _GET_FREE)
    finally:
        os.close(control)


def _config(file: int, name: str, flags: int) -> bytes:
    numbers = [0] * 5
    return _CONFIG.pack(file, BLOCK, *numbers, 0, 0, 0, flags, name.encode()[:63], b"", b"", *[0] * 10)
