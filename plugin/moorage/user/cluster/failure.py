"""How a start of a node failed, with all that may help to understand it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from moorage.common.command import CommandTimeout
from moorage.common.errors import MoorageError, UserError
from moorage.user.cluster.kind_progress import Course


class Failed(MoorageError):
    """A node of a cluster did not come up; `logs` are by their titles."""

    def __init__(self, cause: str, logs: Mapping[str, str]) -> None:
        super().__init__(cause)
        self.logs = logs


@contextmanager
def explained(course: Course, logs: Callable[[], Mapping[str, str]]) -> Iterator[None]:
    """What goes wrong in here becomes a Failed; but what a user or the site has to do first needs no logs."""
    try:
        yield
    except UserError:
        raise
    except CommandTimeout as error:
        raise Failed(str(course.overdue()), logs()) from error
    except MoorageError as error:
        raise Failed(str(error), logs()) from error
    except OSError as error:
        raise Failed(f"{course.phase.text} failed: {error.strerror}", logs()) from error
