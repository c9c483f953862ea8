"""The caller of a program in the delegated cgroup, when the program ends at the worst moment."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.user.agent import exec_client


class Closed:
    """A connection that the keeper closes as early as it can; `taken` is how much of the request it reads before."""

    def __init__(self, taken: int | None = None, answers: tuple[bytes, ...] = ()) -> None:
        self.taken = taken
        self.answers = list(answers)

    def sendmsg(self, buffers: list[bytes], ancillary: object) -> int:
        return len(buffers[0]) if self.taken is None else self.taken

    def sendall(self, content: bytes) -> None:
        raise BrokenPipeError("the keeper has closed the connection")

    def recv(self, most: int) -> bytes:
        if self.answers:
            return self.answers.pop(0)
        raise ConnectionResetError("the keeper has closed the connection")


def test_a_program_may_end_before_its_caller_goes_on() -> None:
    connection: Any = Closed()
    exec_client.ask(connection, "/usr/bin/podman")


def test_a_keeper_that_ends_before_the_request_is_complete_is_an_error() -> None:
    connection: Any = Closed(taken=10)
    with pytest.raises(BrokenPipeError):
        exec_client.ask(connection, "/usr/bin/podman")


def test_an_answer_counts_even_if_the_connection_is_reset_after_it() -> None:
    connection: Any = Closed(answers=(b"E", b"\3"))
    assert exec_client.receive_answer(connection) == b"E\3"


def test_no_answer_is_an_error() -> None:
    connection: Any = Closed()
    with pytest.raises(ConnectionResetError):
        exec_client.receive_answer(connection)
