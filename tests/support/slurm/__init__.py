"""Slurm's programs as a plug-in sees them, and the shim built for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moorage.common.command import run

HERE: Final = Path(__file__).parent
MAKEFILE: Final = HERE.parents[2] / "plugin" / "spank" / "Makefile"
PROGRAMS: Final = ("sbatch", "salloc", "srun", "slurmstepd", "slurmd")


def built(directory: Path, *flags: str) -> Path:
    """The shim, without a warning, by its own Makefile."""
    words = ("WARNINGS=-Wall -Wextra -Werror", f"CFLAGS=-O2 {' '.join(flags)}", f"SLURM={HERE}")
    run(["make", "-s", "-f", MAKEFILE, f"OUTPUT={directory}/moorage.so", *words])
    return directory / "moorage.so"


def installed(directory: Path) -> Path:
    """`directory` with the shim and with programs called as Slurm's are."""
    built(directory)
    flags = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-rdynamic", "-isystem", HERE / "include")
    run(["cc", *flags, "-o", directory / "programs", HERE / "programs.c", "-ldl"])
    for name in PROGRAMS:
        (directory / name).symlink_to("programs")
    return directory


@dataclass(frozen=True)
class Ended:
    code: int
    lines: frozenset[str]
    task: list[str]
    stderr: str

    def kept(self, kind: str) -> dict[str, str]:
        """The variables of the "hook", of the "job" as far as they tell of the option, or its "other" ones."""
        pairs = (line.removeprefix(f"{kind} ").partition("=") for line in self.lines if line.startswith(f"{kind} "))
        return {name: value for name, _, value in pairs}


@dataclass(frozen=True)
class Slurm:
    """Runs one of the programs; `moorage` is what plugstack.conf says to ask."""

    programs: Path
    shim: Path
    moorage: Path

    def __call__(self, program: str, *words: str, env: Mapping[str, str] | None = None) -> Ended:
        plugin = (self.shim, f"moorage={self.moorage}")
        done = run([self.programs / program, *plugin, "--", *words], env=env, ok=range(256))
        lines = done.stdout.splitlines()
        task = [line.removeprefix("task ") for line in lines if line.startswith("task ")]
        return Ended(done.code, frozenset(lines), task, done.stderr)

    def job(self, *options: str, env: Mapping[str, str] | None = None) -> dict[str, str]:
        """Submit a job; its environment."""
        return self("sbatch", *options, env=env).kept("job")
