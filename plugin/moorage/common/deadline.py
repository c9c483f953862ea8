"""One limit for many waits."""

from __future__ import annotations

import time
from typing import Self


class Deadline:
    """A moment on the clock that neither an administrator nor NTP can set."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())

    @property
    def passed(self) -> bool:
        return not self.left

    def within(self, seconds: float) -> Self:
        """This deadline, or an earlier one."""
        return type(self)(min(self.left, seconds))
