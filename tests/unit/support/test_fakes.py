"""The fake commands that other unit tests rely on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest

from moorage.common.command import CommandFailed, run
from support.fakes import FakeCommand

Fake = Callable[..., FakeCommand]


def test_it_stands_before_the_real_one(fake_command: Fake) -> None:
    uname = fake_command("uname", stdout="fake\n")
    assert run(["uname", "-r"]).stdout == "fake\n"
    assert subprocess.run(["uname"], capture_output=True, check=True).stdout == b"fake\n"
    assert uname.calls == [["-r"], []]


@pytest.mark.parametrize(
    "arguments",
    [[], [""], ["", ""], ["two words"], ["line\nbreak", "tab\t"], ["--flag=$HOME", "'quoted'", "*"], ["3", "2", "1"]],
)
def test_arguments_are_kept_apart_and_whole(fake_command: Fake, arguments: list[str]) -> None:
    podman = fake_command("podman")
    run(["podman", *arguments])
    run(["podman", "again"])
    assert podman.calls == [arguments, ["again"]]


def test_it_answers_as_told(fake_command: Fake) -> None:
    fake_command("kind", stdout="some 'quoted' $output\n", stderr="100 % wrong\\n", code=7)
    with pytest.raises(CommandFailed) as failure:
        run(["kind"])
    assert (failure.value.status, failure.value.stdout, failure.value.stderr) == (
        7,
        "some 'quoted' $output\n",
        "100 % wrong\\n",
    )


def test_never_called(fake_command: Fake) -> None:
    assert fake_command("kubectl").calls == []


def test_it_is_gone_from_the_path_of_other_tests() -> None:
    assert "fake-commands" not in os.environ["PATH"]
