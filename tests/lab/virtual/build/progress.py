"""What the lab is doing and for how long, one line at the start and one at the end of every phase."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

_STARTED = time.monotonic()


def elapsed() -> float:
    return time.monotonic() - _STARTED


def say(text: str) -> None:
    """One line with the time since the command began; goes to standard error, results go to standard output."""
    print(f"[{elapsed():6.1f} s] {text}", file=sys.stderr, flush=True)


@contextmanager
def phase(title: str) -> Iterator[None]:
    began = time.monotonic()
    say(f"{title} ...")
    try:
        yield
    except BaseException:
        say(f"{title}: FAILED after {time.monotonic() - began:.1f} s")
        raise
    say(f"{title}: {time.monotonic() - began:.1f} s")
