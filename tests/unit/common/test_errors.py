"""Errors become one line and one exit code."""

from __future__ import annotations

import pytest

from moorage.common.command import CommandNotFound
from moorage.common.errors import MoorageError, UsageError, UserError, code_of, exit_code, reported, shortened


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
        (UsageError("no such key", "choose one", code="M-SPEC-7"), "moorage: no such key: choose one [M-SPEC-7]\n"),
        (MoorageError("wrong", code="M-JOB-1"), "moorage: wrong [M-JOB-1]\n"),
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


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("no room: free some [M-STORE-6]", "M-STORE-6"),
        ("no room [M-STORE-6]\n", "M-STORE-6"),
        ("a list [M-STORE-6] and more", ""),
        ("a list [1]", ""),
        ("the user's [M-" + "x" * 2000 + "]", ""),
        ("the user's [M-STORE-1234]", ""),
        ("the user's [M-\x9b-1]", ""),
        ("", ""),
    ],
)
def test_a_line_has_its_code_at_its_end(line: str, code: str) -> None:
    assert code_of(line) == code


@pytest.mark.parametrize(
    ("line", "most", "short"),
    [
        ("no room at all [M-STORE-6]", 20, "no room [M-STORE-6]"),
        ("no room at all [M-STORE-6]", 26, "no room at all [M-STORE-6]"),
        ("no room at all", 7, "no room"),
        ("x [M-" + "A" * 400 + "-1]", 300, "x [M-" + "A" * 295),
    ],
)
def test_a_line_that_is_cut_keeps_its_code(line: str, most: int, short: str) -> None:
    assert shortened(line, most).replace("  ", " ") == short
