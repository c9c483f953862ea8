"""Errors become one line and one exit code."""

from __future__ import annotations

import pytest

from moorage.common.command import CommandNotFound
from moorage.common.errors import MoorageError, UsageError, UserError, exit_code, reported


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("no room", "free some"), 1),
        (UsageError("no such key", "choose another"), 2),
        (CommandNotFound(("podman",), "no such program"), 1),
        (MoorageError("wrong"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(error: BaseException, code: int) -> None:
    assert exit_code(error) == code
    with pytest.raises(SystemExit) as ending, reported("moorage"):
        raise error
    assert ending.value.code == code


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UserError("no subuid range for ann", "ask the administrator for one"),
         "moorage: no subuid range for ann: ask the administrator for one\n"),
        (UserError("two\nlines", "one\tremedy "), "moorage: two lines: one remedy\n"),
        (CommandNotFound(("podman", "info"), "no such program"), "moorage: podman info: no such program\n"),
        (KeyboardInterrupt(), "moorage: interrupted\n"),
    ],
)  # fmt: skip
def test_one_line_on_standard_error(error: BaseException, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), reported("moorage"):
        raise error
    assert capsys.readouterr() == ("", line)


def test_the_unforeseen_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError), reported("moorage"):
        raise ZeroDivisionError


def test_nothing_wrong_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with reported("moorage"):
        pass
    assert capsys.readouterr() == ("", "")
