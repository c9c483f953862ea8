"""The command `moorage`: its verbs, its help, and what it says to wrong words."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

import moorage
from moorage import cli
from moorage.cli import ADMINISTRATORS, INTERNAL, USERS, VERBS, Verb, help, main
from moorage.cli.manual import Manual, Parser
from moorage.common.command import CommandFailed, run


@pytest.mark.parametrize(
    ("arguments", "code", "shown"),
    [
        (["--version"], 0, f"moorage {moorage.__version__}"),
        (["--help"], 0, "A Kubernetes cluster moored to a Slurm job."),
        ([], 2, "usage: moorage"),
        (["help"], 0, "for users:\n  status"),
        (["--help"], 0, "called by Moorage itself:\n  run"),
        (["help", "image"], 0, "usage: moorage image"),
        (["help", "image", "add"], 0, "usage: moorage image add"),
        (["help", "doctor"], 0, "where to run it:\n  On a compute node"),
        (["run", "--help"], 0, "usage: moorage run"),
        (["agent", "--help"], 0, "usage: moorage agent"),
        (["--nonsense"], 2, "moorage: there is no verb '--nonsense': `moorage help` lists the verbs [M-COMMAND-6]\n"),
        (["nonsense"], 2, "moorage: there is no verb 'nonsense': `moorage help` lists the verbs [M-COMMAND-6]\n"),
        (["docter"], 2, "moorage: there is no verb 'docter': did you mean doctor? [M-COMMAND-6]\n"),
        (["help", "docter"], 2, "moorage: there is no verb 'docter': did you mean doctor? [M-COMMAND-6]\n"),
        (
            ["help", "image", "ad"],
            2,
            "moorage: there is no verb 'ad' of `moorage image`: did you mean add? [M-COMMAND-6]\n",
        ),
        (
            ["help", "run", "true"],
            2,
            "moorage: there is no verb 'true' of `moorage run`: `moorage help` lists the verbs [M-COMMAND-6]\n",
        ),
        (
            ["doctor", "--jsno"],
            2,
            "moorage: doctor: there is no option --jsno: did you mean --json?: see `moorage help doctor`\n",
        ),
        (["status", "17"], 2, "moorage: status: '17' is one word too many: see `moorage help status`\n"),
    ],
)
def test_answers(
    arguments: list[str],
    code: int,
    shown: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also outside a job, and to an ordinary user."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(SystemExit) as ending:
        main(arguments)
    out, err = capsys.readouterr()
    assert (ending.value.code or 0) == code
    assert shown in (err if code else out)
    assert not (out if code else err)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_manual(verb: str) -> None:
    found = help.explained([verb])
    for parser in (found, *found.verbs.values()):
        assert parser.manual.about.endswith(".")
        assert parser.manual.where.endswith((".", ")"))
        assert parser.manual.codes
        assert parser.manual.examples or VERBS[verb].group == INTERNAL
        assert all(
            line.startswith(("moorage ", "srun ", "sbatch ", "podman ", "export ", "kubectl ", "zstd "))
            for line, _ in parser.manual.examples
        )


def test_verbs_of_users_come_first() -> None:
    assert [verb.group for verb in VERBS.values()] == sorted(
        (verb.group for verb in VERBS.values()), key=(USERS, ADMINISTRATORS, INTERNAL).index
    )


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_is_there_and_listed(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(import_module(VERBS[verb].module).main)
    with pytest.raises(SystemExit):
        main(["--help"])
    assert VERBS[verb].summary in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("answer", "code"), [(None, 0), (0, 0), (7, 7)])
def test_a_verb_gets_its_words_untouched(answer: int | None, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []

    def verb(words: list[str]) -> int | None:
        given.extend(words)
        return answer

    monkeypatch.setattr(cli, "import_module", lambda name: SimpleNamespace(main=verb))
    monkeypatch.setitem(VERBS, "act", Verb("act", "nowhere"))
    with pytest.raises(SystemExit) as ending:
        main(["act", "--", "--help", "script", "--", "-x", ""])
    assert (ending.value.code, given) == (code, ["--", "--help", "script", "--", "-x", ""])


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["cluster=none"], 0, ""),
        (["--", "-1"], 2, "moorage: --k8s: '-1' is neither 0, 1 nor key=value"),
        ([], 2, "moorage: check-spec: the following arguments are required: SPEC"),
        (["a", "b"], 2, "moorage: check-spec: 'b' is one word too many"),
        (["--", "--json"], 2, "moorage: --k8s: '--json' is neither 0, 1 nor key=value"),
        (["--", "--help"], 2, "moorage: --k8s: '--help' is neither 0, 1 nor key=value"),
    ],
)
def test_check_spec(words: list[str], code: int, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        main(["check-spec", *words])
    out, err = capsys.readouterr()
    assert (ending.value.code, out, err[: len(line)]) == (code, "", line)
    assert bool(err) is bool(code)


@pytest.mark.commands(sys.executable.rpartition("/")[2])
def test_as_a_module() -> None:
    environment = {"PYTHONPATH": ":".join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    assert run([sys.executable, "-m", "moorage", "--version"], env=environment).stdout.startswith("moorage ")
    with pytest.raises(CommandFailed, match="exit code 2"):
        run([sys.executable, "-m", "moorage", "--nonsense"], env=environment)


PYTHON = sys.executable.rpartition("/")[2]
LOADED = "import sys; from moorage.cli import main\ntry: main(sys.argv[1:])\nexcept SystemExit: print(*sys.modules)"


@pytest.mark.commands(PYTHON)
@pytest.mark.parametrize("words", [["--", "1"], ["cluster=none"]])
def test_sbatch_does_not_wait_for_the_help(words: list[str]) -> None:
    environment = {"PYTHONPATH": ":".join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    loaded = set(run([sys.executable, "-c", LOADED, "check-spec", *words], env=environment).stdout.split())
    assert "moorage.common.spec" in loaded
    assert not loaded & {"argparse", "gettext", "difflib", "json", "moorage.cli.manual", "moorage.cli.help"}


@pytest.mark.commands(PYTHON)
@pytest.mark.parametrize("words", [["config", "show"], ["help"], ["help", "image"], ["image", "--help"]])
def test_a_reader_that_stops_early_is_no_error(words: list[str]) -> None:
    """As `| head -n 1` does: here the reader is gone before the command writes."""
    environment = {"PYTHONPATH": ":".join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    reader, writer = os.pipe()
    os.close(reader)
    try:
        argv = [sys.executable, "-m", "moorage", *words]
        ended = subprocess.run(argv, env=environment, stdout=writer, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_newer_argparse_may_hand_more_on_to_verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.14 gives the parser of each verb the `color` of the command's."""
    made: list[bool] = []
    older = argparse.ArgumentParser.__init__

    def newer(self: argparse.ArgumentParser, *words: object, color: bool = True, **more: Any) -> None:  # noqa: ANN401
        made.append(color)
        older(self, *words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(argparse.ArgumentParser, "__init__", newer)
    Parser(prog="moorage new", manual=Manual("Something new."), color=False)
    assert made == [False]
