"""The names under which --k8s travels through Slurm; the shim, plugin/spank/moorage.c, uses the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

HOOK: Final = "SPANK_K8S"

_OPTION: Final = "_SLURM_SPANK_OPTION_moorage_k8s"

# Slurm hands both to a job's environment, from where each srun and sbatch issued in there takes them up again (24.11).
INHERITED: Final = frozenset({"SLURM_SPANK_K8S", f"SLURM_SPANK_{_OPTION}", _OPTION, HOOK, f"SPANK_{_OPTION}"})


def without(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment in which srun starts a plain step, and sbatch a plain job unless asked anew."""
    return {name: value for name, value in environ.items() if name not in INHERITED}
