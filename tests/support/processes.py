"""What tests ask of processes."""

from __future__ import annotations

import os
import select


def ended(pid: int, limit: float = 10.0) -> bool:
    """Wait until the process is gone, or is a zombie that nobody collects."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], limit)[0])
    finally:
        os.close(handle)
