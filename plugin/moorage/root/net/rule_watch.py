"""Notices that rules of a job are gone, as after a reload of the site's packet filter, and has them put back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from moorage.linux.nft import LOOKS, Changes


@dataclass(frozen=True)
class Kept:
    """Rules that have to be there, and what puts them back."""

    name: str
    intact: Callable[[], bool]
    mend: Callable[[], None]

    @property
    def gone(self) -> bool:
        """While somebody changes rules of his own, what there is may be told with parts of it left out."""
        return not any(self.intact() for _ in range(LOOKS))


class Watch:
    """For a selector: once it is readable, look."""

    def __init__(self, kept: Sequence[Kept]) -> None:
        self.kept = kept
        # At first there may have been changes of which nobody was told.
        self.unseen = True
        # Those that could not be put back.
        self.failed: set[str] = set()
        # Before anything is looked at: nothing is missed in between.
        self.changes = Changes()

    def fileno(self) -> int:
        return self.changes.fileno()

    def look(self) -> list[str]:
        """The names of the rules that had to be put back; what went wrong with one keeps none of the others from it."""
        changed = self.changes.drain() or self.unseen
        self.unseen = False
        mended: list[str] = []
        errors: list[Exception] = []
        for one in self.kept:
            try:
                # What was begun and not finished may have its rules, and be down.
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
