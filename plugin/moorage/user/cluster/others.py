"""The other nodes of a cluster, as the first one's keeper knows them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from moorage.user.cluster.invitation import Invitation


@dataclass
class Others:
    """By Slurm's names. `attend` deals with what is heard of them, for so many seconds."""

    names: tuple[str, ...] = ()
    invite: Callable[[Invitation], object] = lambda _: None
    attend: Callable[[float], object] = time.sleep
    # Those that are not waited for any more.
    gone: set[str] = field(default_factory=set)

    @property
    def awaited(self) -> set[str]:
        return set(self.names) - self.gone
