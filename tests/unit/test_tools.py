"""The scripts behind the Makefile, as far as they can be tried without changing the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from moorage.common import command
from moorage.common.command import CommandFailed, run
from support.fakes import FakeCommand

Fake = Callable[..., FakeCommand]
TOOLS = Path(__file__).parents[2] / "tools"
PYTHON = Path(sys.executable).name
REPORT = """<testsuites><testsuite tests="{}" failures="{}" errors="{}" skipped="{}">{}</testsuite></testsuites>"""
SKIP = '<testcase><skipped message="needs root"/></testcase>'


@pytest.mark.commands("as-root")
class TestAsRoot:
    def test_root_goes_on_at_once(self, fake_command: Fake) -> None:
        fake_command("id", stdout="0")
        sudo, work = fake_command("sudo"), fake_command("work", stdout="done\n")
        assert run([TOOLS / "as-root", "work", "two words"]).stdout == "done\n"
        assert (sudo.calls, work.calls) == ([], [["two words"]])

    def test_sudo_gets_the_command_and_what_steers_downloads(self, fake_command: Fake) -> None:
        fake_command("id", stdout="1000")
        sudo = fake_command("sudo", code=1)
        handed_on = {"MOORAGE_CACHE": "/c d", "GOPROXY": "p", "https_proxy": "h", "PIP_CERT": "c"}
        with pytest.raises(CommandFailed):
            run([TOOLS / "as-root", "work", "two words"], env=handed_on | {"SECRET": "s", "HOME": "/h"})
        (call,) = sudo.calls
        start = call.index("bash")
        assert call[0] == "env"
        assert sorted(call[1:start]) == sorted(f"{name}={value}" for name, value in handed_on.items())
        assert call[-2:] == ["work", "two words"]

    def test_refusal_is_one_line_and_leaves_nothing(self, fake_command: Fake, tmp_path: Path) -> None:
        fake_command("id", stdout="1000")
        fake_command("sudo", stderr="sudo: no\n", code=1)
        with pytest.raises(CommandFailed) as refused:
            run([TOOLS / "as-root", "work"], env={"TMPDIR": str(tmp_path)})
        assert refused.value.stderr.startswith("sudo: no\nas-root: sudo refused: chroots")
        assert not list(tmp_path.glob("tmp.*"))

    @pytest.mark.commands("bash")
    def test_no_sudo_is_one_line(self, fake_command: Fake) -> None:
        identity = fake_command("id", stdout="1000")
        with pytest.raises(CommandFailed, match="there is no sudo: run this as root") as refused:
            run(["/bin/bash", TOOLS / "as-root", "work"], env={"PATH": str(identity.path.parent)})
        assert len(refused.value.stderr.splitlines()) == 1


@pytest.mark.commands("bootstrap")
class TestBootstrap:
    def test_an_ordinary_user_is_told_what_to_install(self, fake_command: Fake, tmp_path: Path) -> None:
        fake_command("id", stdout="1000")
        fake_command("dpkg-query", code=1)
        apt = fake_command("apt-get")
        with pytest.raises(CommandFailed, match=r"run 'sudo apt-get install binutils .* xfsprogs'"):
            run([TOOLS / "bootstrap"], env={"MOORAGE_CACHE": str(tmp_path)})
        assert apt.calls == []

    def test_only_what_is_missing_is_asked_for(self, fake_command: Fake, tmp_path: Path) -> None:
        names = [line for line in (TOOLS / "host-packages").read_text().splitlines() if not line.startswith("#")]
        states = dict.fromkeys(names, "installed") | {"git": "config-files"}
        fake_command("id", stdout="1000")
        fake_command("dpkg-query", stdout="".join(f"{state} {name}\n" for name, state in states.items()), code=1)
        with pytest.raises(CommandFailed, match="missing packages: run 'sudo apt-get install git'"):
            run([TOOLS / "bootstrap"], env={"MOORAGE_CACHE": str(tmp_path)})

    def test_apt_is_asked_for_what_is_missing_then_updated_and_asked_again(
        self, fake_command: Fake, tmp_path: Path
    ) -> None:
        fake_command("id", stdout="0")
        fake_command("dpkg-query", code=1)
        apt = fake_command("apt-get", stderr="E: Unable to locate package shellcheck\n", code=100)
        with pytest.raises(CommandFailed, match=r"apt-get failed, see .*: Unable to locate") as failure:
            run([TOOLS / "bootstrap"], env={"MOORAGE_CACHE": str(tmp_path)})
        assert len(failure.value.stderr.splitlines()) == 1
        assert [set(call) & {"install", "update"} for call in apt.calls] == [{"install"}, {"update"}]
        assert apt.calls[0][-1] == "xfsprogs"

    def test_python_only_asks_apt_for_nothing(self, fake_command: Fake, tmp_path: Path) -> None:
        packages, apt = fake_command("dpkg-query", code=1), fake_command("apt-get", code=100)
        python = fake_command("python3")
        with pytest.raises(CommandFailed, match="pip failed"):
            run([TOOLS / "bootstrap", "--python-only", "true"], env={"MOORAGE_CACHE": str(tmp_path)})
        assert (packages.calls, apt.calls) == ([], [])
        assert [call[:2] for call in python.calls[-1:]] == [["-m", "venv"]]

    def test_a_cache_that_cannot_be_made_is_one_line(self) -> None:
        with pytest.raises(CommandFailed, match="cannot make /proc/cache") as failure:
            run([TOOLS / "bootstrap"], env={"MOORAGE_CACHE": "/proc/cache"})
        assert len(failure.value.stderr.splitlines()) == 1


@pytest.mark.commands("cache")
@pytest.mark.parametrize(
    ("environment", "directory"),
    [
        ({"MOORAGE_CACHE": "/c d", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/c d"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/moorage"),
        ({"HOME": "/h"}, "/h/.cache/moorage"),
    ],
)
def test_a_user_who_may_not_write_to_the_machines_cache_gets_another(
    fake_command: Fake, environment: dict[str, str], directory: str
) -> None:
    fake_command("mkdir", code=1)
    assert run([TOOLS / "cache"], env=environment).stdout == f"{directory}\n"


@pytest.mark.commands("lint-and-unit")
@pytest.mark.parametrize(("lint", "unit"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_lint_and_unit_both_run_and_pytest_has_the_last_line(fake_command: Fake, lint: int, unit: int) -> None:
    fake_command("git", code=lint)
    fake_command("python", stdout="7 passed\n", code=unit)
    for linter in ("ruff", "mypy", "shellcheck", "yamllint", "ansible-lint"):
        fake_command(linter)
    done = subprocess.run([TOOLS / "lint-and-unit"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (int(lint or unit), "7 passed")


@pytest.mark.commands("check")
def test_check_refuses_an_unknown_part_before_anything_runs() -> None:
    with pytest.raises(CommandFailed, match="there is no part 'nonsense'") as failure:
        run([TOOLS / "check", "lint", "nonsense"])
    assert (failure.value.status, failure.value.stdout) == (2, "")


@pytest.mark.commands("check")
def test_check_stops_at_the_first_part_that_fails(fake_command: Fake) -> None:
    timeout, python = fake_command("timeout", code=1), fake_command("python")
    with pytest.raises(CommandFailed) as failure:
        run([TOOLS / "check", "unit", "native"])
    assert [set(call) & {"tests/unit", "tests/native"} for call in timeout.calls] == [{"tests/unit"}]
    assert [(call[0], call[-1]) for call in python.calls] == [("tools/tally.py", "unit")]
    assert "== unit failed: unit " in failure.value.stdout


@pytest.mark.commands(PYTHON)
@pytest.mark.parametrize(
    ("reports", "failed_part", "lines"),
    [
        ({"unit": (5, 0, 0, 0, "")}, [], ["5 passed, 0 failed, 0 skipped"]),
        ({"unit": (5, 1, 1, 0, ""), "native": (2, 0, 0, 0, "")}, ["unit"], ["5 passed, 2 failed, 0 skipped"]),
        (
            {"unit": (5, 0, 0, 0, ""), "native": (3, 0, 0, 2, 2 * SKIP)},
            [],
            ["skipped 2 of native: needs root", "6 passed, 0 failed, 2 skipped"],
        ),
        ({}, ["lint"], ["0 passed, 1 failed, 0 skipped"]),
    ],
)
def test_tally(
    tmp_path: Path, reports: dict[str, tuple[object, ...]], failed_part: list[str], lines: list[str]
) -> None:
    for name, figures in reports.items():
        (tmp_path / f"{name}.xml").write_text(REPORT.format(*figures))
    assert run([sys.executable, TOOLS / "tally.py", tmp_path, *failed_part]).stdout.splitlines() == lines


@pytest.mark.commands("expect")
@pytest.mark.parametrize("verb", ["check", "demo", "test", "test-full", "rollout-check"])
def test_verbs_say_first_what_they_take(verb: str) -> None:
    assert run([TOOLS / "expect", verb]).stdout.startswith(f"{verb}: ")


@pytest.mark.commands("make")
def test_make_without_a_verb_helps() -> None:
    shown = run(["make", "-C", TOOLS.parent], env={"PATH": command.PATH}).stdout
    assert all(f"make {verb}" in shown for verb in ("check", "demo", "test", "lint", "unit", "native", "lab", "clean"))


def test_pre_commit_fetches_no_foreign_repository() -> None:
    repositories = yaml.safe_load((TOOLS.parent / ".pre-commit-config.yaml").read_text())["repos"]
    hooks = [hook for repository in repositories for hook in repository["hooks"]]
    assert {repository["repo"] for repository in repositories} == {"local"}
    assert {hook["language"] for hook in hooks} == {"system"}
    programs = [word for hook in hooks for word in hook["entry"].split() if word.startswith("tools/")]
    assert len(programs) == 2 * len(hooks)
    assert all(os.access(TOOLS.parent / program, os.X_OK) for program in programs)
