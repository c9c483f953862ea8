"""What the hooks and the shim cost a job that knows nothing of Moorage, on this kernel."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.common.command import run
from support.figures import Figures
from support.slurm import installed

ROOT = Path(__file__).parents[2]
HOOKS = [ROOT / name for name in ("prolog.d/50-moorage", "epilog.d/50-moorage")]
ROUNDS = 200
BLOCK = 20
# Of hooks and shim together, in ms.
MOST = 5.0
# As slurmd gives it to its hooks: no PATH.
ENVIRONMENT = {"SLURM_JOB_ID": "67108862", "SLURM_JOB_UID": "1001", "SLURMD_NODENAME": "n1"}
# Every process that loads the shim for a batch job with one step: slurmd has it once and for all.
PROCESSES: tuple[tuple[str, dict[str, str]], ...] = (
    ("sbatch", {}),
    ("slurmstepd", {"STEP": "0xfffffffc"}),
    ("slurmstepd", {"STEP": "0xfffffffb"}),
    ("srun", {}),
    ("slurmstepd", {"STEP": "0"}),
)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("slurm"))


def test_hooks_and_shim_together_take_less_than_5_ms(programs: Path) -> None:
    hooks, shim = quietest("both hooks", hooks_once), quietest("shim", lambda: shim_once(programs))
    figures = Figures()
    figures.add("both hooks of a plain job, natively", hooks, "ms", at_most=MOST)
    figures.add(f"both hooks of a plain job and its {len(PROCESSES)} shims, natively", hooks + shim, "ms", at_most=MOST)


def quietest(what: str, once: Callable[[], float]) -> float:
    """Of 200 rounds the middle one of the quietest 20 in a row, in ms: what else this machine does is not theirs."""
    rounds = [once() * 1000 for _ in range(ROUNDS)]
    blocks = [rounds[start : start + BLOCK] for start in range(0, ROUNDS, BLOCK)]
    found = min(statistics.median(block) for block in blocks)
    print(f"{what}: {found:.2f} ms, middle of all {statistics.median(rounds):.2f} ms")
    return found


def hooks_once() -> float:
    begun = time.perf_counter()
    for hook in HOOKS:
        child = os.posix_spawn(hook, [str(hook)], ENVIRONMENT)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return time.perf_counter() - begun


def shim_once(programs: Path) -> float:
    """From before it is loaded until it is unloaded, by each process's own clock."""
    return sum(took(programs, name, more) for name, more in PROCESSES)


def took(programs: Path, name: str, more: dict[str, str]) -> float:
    done = run([programs / name, programs / "moorage.so", "--", "script"], env={"TIMED": "1", **more})
    word, nanoseconds = done.stdout.split()
    assert (word, done.stderr) == ("took", "")
    return int(nanoseconds) / 1e9
