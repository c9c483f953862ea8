"""A session of a user outside of any job: the user's own systemd runs on the node all the time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .shell import Shell


@contextmanager
def user_session(shell: Shell, user: str) -> Iterator[None]:
    shell.run(["loginctl", "enable-linger", user])
    shell.run(["systemctl", "start", f"user@{shell.output('id', '--user', user)}.service"])
    # Who has been here once has keyrings, which stay.
    shell.run(["true"], user=user)
    try:
        yield
    finally:
        shell.run(["loginctl", "disable-linger", user])
