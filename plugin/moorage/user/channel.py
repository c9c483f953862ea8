"""The channel between `moorage run` and its agents: JSON objects, one a line, on the standard streams of srun.

slurmstepd hands on at most 1024 bytes of a task at once, and a site's TaskProlog prints into the same streams. So a
message is short, or it is sent in short pieces, and its first character marks it as a message.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Final

Message = dict[str, Any]

LONGEST: Final = 1000
MARK: Final = "\x1e"
# JSON may write each of its characters as two.
PIECE: Final = 400
MOST_PIECES: Final = 200
MOST_UNFINISHED: Final = 64
LONGEST_NOISE: Final = 4096


class Sender:
    """Sends messages; `name` distinguishes the pieces of this sender from those of others in the same stream."""

    def __init__(self, write: Callable[[bytes], object], name: str = "") -> None:
        self._write = write
        self._name = name
        self._numbers = count()

    def send(self, message: Mapping[str, Any]) -> None:
        for line in self._lines(json.dumps(message, separators=(",", ":"))):
            self._write(line)

    def _lines(self, text: str) -> Iterator[bytes]:
        if len(text) <= LONGEST - 2:
            yield _line(text)
            return
        pieces = [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
        if len(pieces) > MOST_PIECES:
            raise ValueError(f"a message of {len(text)} bytes is too long for the channel")
        whole = f"{self._name}.{next(self._numbers)}"
        for index, piece in enumerate(pieces):
            yield _line(json.dumps({"piece": [whole, index, len(pieces)], "text": piece}, separators=(",", ":")))


class Receiver:
    """Makes messages of the bytes that are read, however they are cut; any other line comes out as text."""

    def __init__(self) -> None:
        self._rest = b""
        self._unfinished: dict[str, list[str]] = {}

    def receive(self, chunk: bytes) -> Iterator[Message | str]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LONGEST_NOISE:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            yield from self._decoded(line.decode(errors="backslashreplace"))

    def end(self) -> Iterator[Message | str]:
        """The last line, if it has no end of line."""
        rest, self._rest = self._rest, b""
        return self._decoded(rest.decode(errors="backslashreplace"))

    def _decoded(self, line: str) -> Iterator[Message | str]:
        noise, mark, text = line.rstrip("\r").partition(MARK)
        if noise.strip():
            yield noise
        if not mark:
            return
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            yield text
            return
        match message:
            case {"piece": [str(whole), int(index), int(pieces)], "text": str(piece)}:
                yield from self._assembled(whole, index, pieces, piece)
            case dict():
                yield message
            case _:
                yield text

    def _assembled(self, whole: str, index: int, pieces: int, piece: str) -> Iterator[Message | str]:
        so_far = self._unfinished.pop(whole, [])
        if index != len(so_far) or pieces > MOST_PIECES:
            yield piece
            return
        so_far.append(piece)
        if index + 1 < pieces:
            self._unfinished[whole] = so_far
            while len(self._unfinished) > MOST_UNFINISHED:
                self._unfinished.pop(next(iter(self._unfinished)))
            return
        yield from self._decoded(MARK + "".join(so_far))


def writer(descriptor: int) -> Callable[[bytes], object]:
    """Write all of the bytes; write nothing once the other side has closed the stream."""

    def write(line: bytes) -> None:
        try:
            while line:
                line = line[os.write(descriptor, line) :]
        except BrokenPipeError:
            return

    return write


def _line(text: str) -> bytes:
    return f"{MARK}{text}\n".encode()
