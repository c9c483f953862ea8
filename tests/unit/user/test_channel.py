"""The channel of the agents: whatever is said arrives, however it is cut, and whoever talks besides."""

from __future__ import annotations

import os
from typing import Any

import pytest

from moorage.user.channel import LONGEST, MOST_PIECES, PIECE, Receiver, Sender, writer

MESSAGES: list[dict[str, Any]] = [
    {"event": "ready"},
    {},
    {"text": "two\nlines\r\n and \x1e and \x00"},
    {"text": "ä€😀" * 300},
    {"text": '"' * 3000},
    {"text": "\\" * 3000},
    {"text": "x" * 60000},
    {"nested": {"list": [1, 2.5, None, True]}},
    *({"text": "x" * length} for length in range(LONGEST - 20, LONGEST + 5)),
]


def said(*messages: dict[str, Any], name: str = "n1") -> list[bytes]:
    lines: list[bytes] = []
    sender = Sender(lines.append, name)
    for message in messages:
        sender.send(message)
    return lines


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: str(message)[:30])
def test_arrives_in_short_lines(message: dict[str, Any]) -> None:
    lines = said(message)
    assert all(len(line) <= LONGEST and line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    assert list(Receiver().receive(b"".join(lines))) == [message]


@pytest.mark.parametrize("size", [1, 2, 7, 64, 1024])
def test_however_it_is_cut(size: int) -> None:
    stream = b"".join(said(*MESSAGES[:6]))
    receiver = Receiver()
    heard = [one for start in range(0, len(stream), size) for one in receiver.receive(stream[start : start + size])]
    assert heard == MESSAGES[:6]


def test_pieces_of_many_may_come_mixed() -> None:
    messages = [{"from": name, "text": name * 900} for name in ("a", "b", "c")]
    lines = [said(message, name=message["from"]) for message in messages]
    mixed = b"".join(line for together in zip(*lines, strict=True) for line in together)
    assert list(Receiver().receive(mixed)) == messages


@pytest.mark.parametrize(
    ("stream", "heard"),
    [
        (b"srun: error: something\n", ["srun: error: something"]),
        (b"\n \n", []),
        (b'{"event": "ready"}\n', ['{"event": "ready"}']),
        (b'noise without an end\x1e{"event":"ready"}\n', ["noise without an end", {"event": "ready"}]),
        (b"\x1enot JSON\n", ["not JSON"]),
        (b"\x1e[1]\n", ["[1]"]),
        (b"\x1e" + b"[" * 900 + b"\n", ["[" * 900]),
        (b"\xff\xfe\n", ["\\xff\\xfe"]),
        (b'\x1e{"piece":["x",1,3],"text":"middle"}\n', ["middle"]),
        (b'\x1e{"piece":["x",0,100000],"text":"first"}\n', ["first"]),
        (b'\x1e{"event":"ready"}\r\n', [{"event": "ready"}]),
    ],
)
def test_other_lines_are_handed_out(stream: bytes, heard: list[object]) -> None:
    assert list(Receiver().receive(stream)) == heard


def test_a_piece_that_never_comes_costs_only_its_message() -> None:
    lines = said({"text": "x" * 2000}) + said({"event": "ready"})
    heard = list(Receiver().receive(b"".join(lines[:1] + lines[2:])))
    assert heard[-1] == {"event": "ready"}
    assert all(isinstance(one, str) for one in heard[:-1])


def test_unfinished_messages_are_not_kept_for_ever() -> None:
    receiver = Receiver()
    for number in range(1000):
        list(receiver.receive(said({"text": "x" * 2000}, name=str(number))[0]))
    assert len(receiver._unfinished) < 100


def test_a_line_without_an_end_is_not_kept_for_ever() -> None:
    receiver = Receiver()
    heard = [one for _ in range(100) for one in receiver.receive(b"x" * 1000)]
    assert sum(map(len, map(str, heard))) > 90_000


def test_last_words_need_no_end_of_line() -> None:
    receiver = Receiver()
    assert list(receiver.receive(b"srun: fatal")) == []
    assert list(receiver.end()) == ["srun: fatal"]
    assert list(receiver.end()) == []


def test_too_long_is_refused_by_who_would_say_it() -> None:
    with pytest.raises(ValueError, match="too long"):
        said({"text": "x" * (PIECE * MOST_PIECES + 1)})


def test_nobody_listens() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        writer(writing)(b"x" * 100)
    finally:
        os.close(writing)
