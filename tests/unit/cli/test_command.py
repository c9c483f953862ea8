"""The command `moorage`, as far as it goes."""

from __future__ import annotations

import sys
from importlib import import_module
from types import SimpleNamespace

import pytest

import moorage
from moorage import cli
from moorage.cli import VERBS, Verb, main
from moorage.common.command import CommandFailed, run


@pytest.mark.parametrize(
    ("arguments", "code", "shown"),
    [
        (["--version"], 0, f"moorage {moorage.__version__}"),
        (["--help"], 0, "A Kubernetes cluster moored to a Slurm job."),
        ([], 2, "usage: moorage"),
        (["--nonsense"], 2, "unrecognized arguments: --nonsense"),
        (["nonsense"], 2, "invalid choice: 'nonsense'"),
    ],
)
def test_answers(arguments: list[str], code: int, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        main(arguments)
    out, err = capsys.readouterr()
    assert (ending.value.code or 0) == code
    assert shown in (err if code else out)


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
        ([], 2, "usage: moorage check-spec"),
        (["a", "b"], 2, "usage: moorage check-spec"),
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
