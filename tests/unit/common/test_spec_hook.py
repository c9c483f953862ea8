"""The names under which the option travels."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from moorage.common.spec import HOOK, INHERITED, without

SHIM = Path(__file__).parents[3] / "plugin" / "spank" / "moorage.c"


def test_only_what_is_ours_is_taken_out() -> None:
    kept = {"PATH": "/bin", "SLURM_JOB_ID": "17", "SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_container_image": "alpine"}
    assert without({**kept, **dict.fromkeys(INHERITED, "1")}) == kept


@pytest.mark.parametrize("name", ["SLURM_SPANK_K8S", "SLURM_SPANK__SLURM_SPANK_OPTION_moorage_k8s", HOOK])
def test_what_slurm_makes_of_them(name: str) -> None:
    assert name in INHERITED


def test_the_shim_uses_the_same() -> None:
    defined = dict(re.findall(r'#define (CONTROL|OPTION) "(\w+)"', SHIM.read_text()))
    assert f"SPANK_{defined['CONTROL']}" == HOOK
    assert {f"SLURM_SPANK_{name}" for name in defined.values()} < INHERITED
    assert defined["OPTION"] in INHERITED
