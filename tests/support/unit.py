"""What a unit of systemd lets its service do, as far as a test can do the same to a process."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

WARDEN = Path(__file__).parents[2] / "config" / "moorage-warden@.service"
NUMBERS = {"CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_NET_BIND_SERVICE": 10, "CAP_NET_ADMIN": 12}
_LAST = Path("/proc/sys/kernel/cap_last_cap")
_DROP_BOUNDING = 24
_REFUSE_GAIN_WRITTEN = 65
_NO_NEW_PRIVILEGES = 38
_VERSION = 0x20080522
_libc = ctypes.CDLL(None, use_errno=True)


def confine(unit: Path = WARDEN) -> None:
    """For a process of its own: from here on it has the capabilities of the unit and no others."""
    lines = [line.partition("=") for line in unit.read_text().splitlines()]
    kept = {NUMBERS[name] for key, _, value in lines if key == "CapabilityBoundingSet" for name in value.split()}
    for number in set(range(int(_LAST.read_text()) + 1)) - kept:
        _checked(_libc.prctl(_DROP_BOUNDING, number, 0, 0, 0))
    bits = sum(1 << number for number in kept)
    _checked(_libc.capset(struct.pack("Ii", _VERSION, 0), struct.pack("6I", bits, bits, 0, 0, 0, 0)))
    _checked(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    # MemoryDenyWriteExecute=, where the kernel has it (6.3).
    _libc.prctl(_REFUSE_GAIN_WRITTEN, 1, 0, 0, 0)


def _checked(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
