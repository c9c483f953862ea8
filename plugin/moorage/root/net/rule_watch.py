"""Notices when rules of a job are gone, as after a reload of the site's packet filter, and puts them back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from moorage.linux.nft import LOOKS, Changes


@dataclass(frozen=True)
class Kept:
    """A set of rules that must exist: how to see whether it is complete, and how to put it back."""

    name: str
    intact: Callable[[], bool]
    mend: Callable[[], None]

    @property
    def gone(self) -> bool:
        """Whether rules are missing in several listings: while anybody changes rules, one may be incomplete."""
        return not any(self.intact() for _ in range(LOOKS))


class Watch:
    """Watches the packet filter. When a selector finds it readable, it has to `look`."""

    def __init__(self, kept: Sequence[Kept]) -> None:
        self.kept = kept
        # At first, earlier changes are possible.
        self.unseen = True
        # The names of rules that could not be put back.
        self.failed: set[str] = set()
        # It notices changes from now on, before the first look, so that none is missed.
        self.changes = Changes()

    def fileno(self) -> int:
        return self.changes.fileno()

    def look(self) -> list[str]:
        """Put back what is missing; the names of the rules put back. An error about some keeps none of the others."""
        changed = self.changes.drain() or self.unseen
        self.unseen = False
        mended: list[str] = []
        errors: list[Exception] = []
        for one in self.kept:
            try:
                # After a failure half way, the rules may be there, and the link down.
                if one.name in self.failed or (changed and one.gone):
                    one.mend()
                    mended.append(one.name)
                self.failed.discard(one.name)
            except Exception as error:
                self.failed.add(one.name)
                errors.append(error)
        if errors:
            raise ExceptionGroup("rules could not be put back", errors)
        return mended

    def close(self) -> None:
        self.changes.close()
