"""The shim itself, loaded by programs that act as Slurm's do."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import moorage
from moorage.common.command import CommandFailed, run
from moorage.common.spec import HOOK, INHERITED, without
from moorage.node import shim
from support.fakes import FakeCommand
from support.slurm import Slurm, built, installed

HANDED_DOWN = "SLURM_SPANK__SLURM_SPANK_OPTION_moorage_k8s"
TO_THE_NODE = "_SLURM_SPANK_OPTION_moorage_k8s"
WORKS = {"slurm_spank_init 0", "slurm_spank_init_post_opt 0"}
NO_CHECK = "sbatch: error: moorage: --k8s cannot be checked:"
IGNORING = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])
"""
TELL = "tell the administrator [M-SHIM-2]"
BATCH_ALONE = "moorage: --k8s works with sbatch alone: put the commands into a script for sbatch --k8s [M-SHIM-3]\n"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("slurm"))


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shim that waits one second for its check."""
    return built(tmp_path_factory.mktemp("impatient"), "-DCHECK_SECONDS=1")


@pytest.fixture
def fake(tmp_path: Path) -> FakeCommand:
    return FakeCommand(tmp_path, "moorage")


@pytest.fixture
def slurm(programs: Path, fake: FakeCommand) -> Slurm:
    """With a check that accepts everything."""
    return Slurm(programs, programs / "moorage.so", fake.path)


@pytest.fixture
def answering(programs: Path, tmp_path: Path) -> Callable[[str], Slurm]:
    """With a check that does what some lines of shell say."""

    def write(text: str) -> Slurm:
        path = tmp_path / "answer"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return Slurm(programs, programs / "moorage.so", path)

    return write


class TestFile:
    @pytest.mark.parametrize(
        ("number", "release"), [("0x180b05", "24.11"), ("0x1a0500", "26.05"), ("0x170b00", "23.11")]
    )
    def test_it_says_for_which_slurm_it_was_built(self, tmp_path: Path, number: str, release: str) -> None:
        assert shim.marker(built(tmp_path, f"-DSLURM_VERSION_NUMBER={number}")) == release

    def test_an_old_slurm_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(CommandFailed) as failure:
            built(tmp_path, "-DSLURM_VERSION_NUMBER=0x170209")
        assert "Moorage needs Slurm 23.11 or newer" in failure.value.stderr

    def test_it_shows_nothing_but_what_slurm_looks_for(self, programs: Path) -> None:
        listing = run(["nm", "-D", "--defined-only", programs / "moorage.so"]).stdout
        assert {line.split()[-1] for line in listing.splitlines()} == {
            "plugin_name", "plugin_type", "plugin_version",
            "slurm_spank_init", "slurm_spank_init_post_opt", "slurm_spank_task_init",
        }  # fmt: skip

    def test_it_brings_no_library_of_slurm(self, programs: Path) -> None:
        listing = run(["readelf", "-d", programs / "moorage.so"]).stdout
        assert [line.split("[")[1].rstrip("]") for line in listing.splitlines() if "(NEEDED)" in line] == ["libc.so.6"]


class TestSubmission:
    def test_the_value_reaches_hooks_and_node(self, slurm: Slurm, fake: FakeCommand) -> None:
        done = slurm("sbatch", "--k8s=cluster=none,uplink=pasta")
        assert (done.code, done.stderr) == (0, "")
        assert done.lines >= WORKS | {"option --k8s=[SPEC]"}
        assert done.kept("hook")[HOOK] == "cluster=none,uplink=pasta"
        assert done.kept("job")[TO_THE_NODE] == "cluster=none,uplink=pasta"
        assert fake.calls == [["check-spec", "--", "cluster=none,uplink=pasta"]]

    @pytest.mark.parametrize(
        ("options", "value"),
        [
            (["--k8s"], "1"),
            (["--k8s=1"], "1"),
            (["--k8s=a=b", "--k8s=a=b"], "a=b"),
            (["--k8s=0", "--k8s=cluster=none"], "cluster=none"),
            (["--k8s=--help"], "--help"),
            (["--k8s="], ""),
        ],
    )
    def test_what_is_checked(self, slurm: Slurm, fake: FakeCommand, options: list[str], value: str) -> None:
        assert slurm("sbatch", *options).kept("hook")[HOOK] == value
        assert fake.calls == [["check-spec", "--", value]]

    def test_the_environment_form(self, slurm: Slurm, fake: FakeCommand) -> None:
        assert slurm("sbatch", env={HANDED_DOWN: "cluster=none"}).kept("hook")[HOOK] == "cluster=none"
        assert slurm("sbatch", "--k8s=1", env={HANDED_DOWN: "cluster=none"}).kept("hook")[HOOK] == "1"
        assert [call[-1] for call in fake.calls] == ["cluster=none", "1"]

    @pytest.mark.parametrize("options", [[], ["--k8s=0"], ["--k8s=cluster=none", "--k8s=0"]])
    @pytest.mark.parametrize("program", ["sbatch", "salloc", "srun"])
    def test_off_leaves_no_trace(self, slurm: Slurm, fake: FakeCommand, program: str, options: list[str]) -> None:
        done = slurm(program, *options, env={"SLURM_SPANK_K8S": "1"})
        assert (done.code, done.stderr, fake.calls) == (0, "", [])
        assert done.kept("hook") == done.kept("job") == {}

    @pytest.mark.parametrize("program", ["salloc", "srun"])
    def test_others_than_sbatch_refuse(self, slurm: Slurm, fake: FakeCommand, program: str) -> None:
        done = slurm(program, "--k8s=cluster=none")
        assert (done.code, done.stderr) == (1, f"{program}: error: {BATCH_ALONE}")
        assert fake.calls == []

    def test_slurmd_is_left_alone(self, slurm: Slurm) -> None:
        assert slurm("slurmd").lines == {"slurm_spank_init 0"}

    def test_the_real_check(self, answering: Callable[[str], Slurm]) -> None:
        package = Path(moorage.__file__).parents[1]
        slurm = answering(f'PYTHONPATH={package} exec {sys.executable} -B -m moorage "$@"')
        assert slurm("sbatch", "--k8s=cluster=none").kept("hook")[HOOK] == "cluster=none"
        done = slurm("sbatch", "--k8s=clutser=none")
        line = "sbatch: error: moorage: --k8s: unknown key 'clutser': did you mean cluster=none? [M-SPEC-7]\n"
        assert (done.code, done.stderr) == (1, line)


class TestCheck:
    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ("echo 'moorage: no: do not' >&2; exit 2", "sbatch: error: moorage: no: do not"),
            ("echo noise; printf 'one\\nmoorage: no: do not' >&2; exit 1", "sbatch: error: moorage: no: do not"),
            ("echo Traceback >&2; echo 'KeyError: x' >&2; exit 1", f"{NO_CHECK} {{}} failed (KeyError: x): {TELL}"),
            ("exit 3", f"{NO_CHECK} {{}} failed (no word from it): {TELL}"),
            ("kill -9 $$", f"{NO_CHECK} {{}} failed (no word from it): {TELL}"),
            ("exec >&- 2>&-; sleep 600", f"{NO_CHECK} {{}} failed (no word from it): {TELL}"),
        ],
        ids=["no", "noise", "traceback", "silent", "killed", "hides and hangs"],
    )
    def test_no_is_one_line(self, answering: Callable[[str], Slurm], text: str, line: str) -> None:
        slurm = answering(text)
        done = slurm("sbatch", "--k8s=1")
        assert (done.code, done.stderr) == (1, f"{line.format(slurm.moorage)}\n")

    @pytest.mark.parametrize(("text", "word"), [("sleep 600", "no word from it"), ("echo begun; sleep 600", "begun")])
    def test_it_is_not_waited_for_long(
        self, answering: Callable[[str], Slurm], impatient: Path, text: str, word: str
    ) -> None:
        slurm = replace(answering(text), shim=impatient)
        started = time.monotonic()
        done = slurm("sbatch", "--k8s=1")
        assert (done.code, done.stderr) == (1, f"{NO_CHECK} {slurm.moorage} takes too long ({word}): {TELL}\n")
        assert time.monotonic() - started < 10

    def test_much_is_cut(self, answering: Callable[[str], Slurm]) -> None:
        done = answering("yes moorage: no | head -c 1000000 >&2; exit 2")("sbatch", "--k8s=1")
        assert (done.code, len(done.stderr.splitlines())) == (1, 1)

    def test_yes_with_a_word_too_many(self, answering: Callable[[str], Slurm]) -> None:
        done = answering("echo a warning >&2")("sbatch", "--k8s=1")
        assert (done.code, done.stderr) == (0, "")

    def test_a_missing_program(self, programs: Path) -> None:
        done = Slurm(programs, programs / "moorage.so", Path("/nowhere/moorage"))("sbatch", "--k8s=1")
        line = f"{NO_CHECK} /nowhere/moorage: No such file or directory: tell the administrator [M-SHIM-1]\n"
        assert (done.code, done.stderr) == (1, line)

    def test_nothing_of_the_user_is_in_its_environment(self, answering: Callable[[str], Slurm], tmp_path: Path) -> None:
        answering(f"env >{tmp_path}/env")("sbatch", "--k8s=1", env={"PYTHONPATH": "/evil", "LD_PRELOAD": ""})
        names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
        assert names - {"PWD", "_", "SHLVL"} == {"PATH", "LC_ALL"}

    @pytest.mark.parametrize(
        ("text", "accepted"), [("exit 0", True), ("echo moorage: no; exit 2", False), ("sleep 600", False)]
    )
    def test_whoever_ignores_its_children(
        self, answering: Callable[[str], Slurm], impatient: Path, text: str, accepted: bool
    ) -> None:
        """SIGCHLD ignored is inherited, and the exit code of the check is lost."""
        slurm = replace(answering(text), shim=impatient)
        words = (slurm.programs / "sbatch", slurm.shim, f"moorage={slurm.moorage}", "--", "--k8s=1")
        done = run([sys.executable, "-c", IGNORING, *words], ok=range(256))
        assert (done.code == 0, done.stderr == "") == (accepted, accepted)

    def test_no_one_to_hand_it_to(self, slurm: Slurm) -> None:
        done = slurm("sbatch", "--k8s=1", env={"FAILS": "spank_job_control_setenv"})
        assert (done.code, len(done.stderr.splitlines())) == (1, 1)


class TestNode:
    SCRIPT = ("/spool/job00017/slurm_script", "two words", "--", "-x")

    def moored(self, slurm: Slurm) -> list[str]:
        return [str(slurm.moorage), "run", "--", *self.SCRIPT]

    @pytest.mark.parametrize("options", [["--k8s"], ["--k8s=cluster=none"], ["--k8s=" + "x" * 1000]])
    def test_the_script_is_moored(self, slurm: Slurm, options: list[str]) -> None:
        done = slurm("slurmstepd", *self.SCRIPT, env=slurm.job(*options))
        assert (done.stderr, done.task) == ("", self.moored(slurm))
        assert done.lines >= WORKS | {"slurm_spank_task_init 0"}

    @pytest.mark.parametrize("lost", [TO_THE_NODE, "SLURM_SPANK_K8S"])
    def test_one_of_its_ways_is_enough(self, slurm: Slurm, lost: str) -> None:
        job = slurm.job("--k8s=cluster=none")
        del job[lost]
        assert slurm("slurmstepd", *self.SCRIPT, env=job).task == self.moored(slurm)

    def test_the_option_itself_comes_first(self, slurm: Slurm) -> None:
        job = {TO_THE_NODE: "0", "SLURM_SPANK_K8S": "1"}
        assert slurm("slurmstepd", *self.SCRIPT, env=job).task == list(self.SCRIPT)

    @pytest.mark.parametrize("options", [[], ["--k8s=0"]])
    def test_a_plain_job(self, slurm: Slurm, options: list[str]) -> None:
        assert slurm("slurmstepd", *self.SCRIPT, env=slurm.job(*options)).task == list(self.SCRIPT)

    @pytest.mark.parametrize(
        "step", ["0", "7", "0xfffffffc", "0xfffffffa"], ids=["first", "later", "extern", "interactive"]
    )
    def test_every_other_step(self, slurm: Slurm, step: str) -> None:
        done = slurm("slurmstepd", "hostname", env=slurm.job("--k8s=cluster=none") | {"STEP": step})
        assert (done.stderr, done.task) == ("", ["hostname"])

    def test_no_node_is_drained(self, slurm: Slurm) -> None:
        """An error of task_init fails the job alone; one of any other function would drain the node."""
        job = slurm.job("--k8s=cluster=none")
        for function, code in {"spank_option_register": 0, "spank_get_item": 0, "spank_prepend_task_argv": -1}.items():
            done = slurm("slurmstepd", "hostname", env=job | {"FAILS": function})
            assert done.lines >= WORKS | {f"slurm_spank_task_init {code}"}

    def test_the_default_program(self, slurm: Slurm) -> None:
        words: list[str | Path] = [
            slurm.programs / "slurmstepd",
            slurm.programs / "moorage.so",
            "other=x",
            "--",
            "script",
        ]
        done = run(words, env=slurm.job("--k8s=1"))
        assert "task /opt/moorage/bin/moorage\n" in done.stdout


class TestWithinAJob:
    @pytest.fixture
    def job(self, slurm: Slurm) -> dict[str, str]:
        return slurm.job("--k8s=cluster=none") | {"SLURM_JOB_ID": "17"}

    @pytest.mark.parametrize("program", ["srun", "sbatch", "salloc"])
    def test_what_is_inherited_starts_nothing(self, slurm: Slurm, job: dict[str, str], program: str) -> None:
        done = slurm(program, env=job)
        assert (done.code, done.stderr) == (0, "")
        assert done.kept("hook") == done.kept("job") == {}

    def test_a_job_may_submit_another(self, slurm: Slurm, job: dict[str, str]) -> None:
        assert slurm("sbatch", "--k8s=uplink=pasta", env=job).kept("hook")[HOOK] == "uplink=pasta"

    def test_a_step_cannot_have_its_own(self, slurm: Slurm, job: dict[str, str]) -> None:
        assert slurm("srun", "--k8s=1", env=job).stderr == f"srun: error: {BATCH_ALONE}"

    def test_without_the_names_it_is_a_plain_job(self, slurm: Slurm, job: dict[str, str]) -> None:
        assert set(slurm.job("--k8s=1")) <= INHERITED
        done = slurm("sbatch", env=without(job))
        assert (done.code, done.kept("hook")) == (0, {})
