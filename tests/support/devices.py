"""A cgroup's limit on devices, as Slurm sets it with ConstrainDevices: a small program that the kernel asks."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from pathlib import Path

_BPF = {"x86_64": 321, "aarch64": 280}[platform.machine()]
_LOAD, _ATTACH = 5, 8
_OF_DEVICES, _TO_DEVICES = 15, 6
_LONGEST = 128

_libc = ctypes.CDLL(None, use_errno=True)


def only(cgroup: Path, minor: int) -> None:
    """From now on whoever is in there opens only devices with this minor number."""
    directory, program = os.open(cgroup, os.O_RDONLY | os.O_CLOEXEC), _program(minor)
    try:
        code, terms = ctypes.create_string_buffer(program, len(program)), ctypes.create_string_buffer(b"GPL")
        loaded = _bpf(
            _LOAD, struct.pack("IIQQ", _OF_DEVICES, len(program) // 8, ctypes.addressof(code), ctypes.addressof(terms))
        )
        try:
            _bpf(_ATTACH, struct.pack("IIII", directory, loaded, _TO_DEVICES, 0))
        finally:
            os.close(loaded)
    finally:
        os.close(directory)


def _program(minor: int) -> bytes:
    instructions = (
        (0x61, 0x10, 8, 0),  # load the minor number
        (0x15, 0, 2, minor),  # is it this one?
        (0xB7, 0, 0, 0),
        (0x95, 0, 0, 0),  # no
        (0xB7, 0, 0, 1),
        (0x95, 0, 0, 0),  # yes
    )
    return b"".join(struct.pack("=BBhi", *one) for one in instructions)


def _bpf(command: int, attributes: bytes) -> int:
    buffer = ctypes.create_string_buffer(attributes.ljust(_LONGEST, b"\0"), _LONGEST)
    result = _libc.syscall(_BPF, command, buffer, _LONGEST)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)
