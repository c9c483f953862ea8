"""The systemd units and what else has to agree with them."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from moorage.cli import VERBS
from moorage.doctor import units
from moorage.root import systemd
from moorage.root.cleanup import end_of_job, trash

ROOT = Path(__file__).parents[3]
UNITS = sorted((ROOT / "config").glob("*.service"))
WARDEN = ROOT / "config/moorage-warden@.service"
# What a sandbox is made of begins with one of these.
SANDBOX = re.compile(
    "CPU|Capability|NoNew|Protect|Private|Read|TemporaryFile|Bind|Restrict|Lock|Memory|System|Limit|Tasks"
)


def settings(unit: Path) -> list[tuple[str, str]]:
    lines = [line for line in unit.read_text().splitlines() if line and line[0] not in "#["]
    return [(name, value) for name, _, value in (line.partition("=") for line in lines)]


def test_the_names_are_those_that_the_code_uses() -> None:
    assert {unit.name for unit in (ROOT / "config").glob("moorage-*")} == set(units.STARTED_BY)
    assert {unit.name for unit in UNITS} >= {units.SWEEP, trash.UNIT, WARDEN.name}
    assert systemd.warden_unit(17).replace("17", "") == WARDEN.name


@pytest.mark.parametrize(("name", "target"), units.STARTED_BY.items())
def test_each_is_enabled_where_the_check_looks_for_it(name: str, target: str) -> None:
    assert dict(settings(ROOT / "config" / name)).get("WantedBy", "") == target


def test_what_is_installed_and_started_is_what_there_is() -> None:
    role = yaml.safe_load((ROOT / "ansible/roles/moorage/vars/main/places.yml").read_text())
    assert set(role["moorage_units"]) == set(units.STARTED_BY)
    assert set(role["moorage_units_at_boot"]) == {name for name, target in units.STARTED_BY.items() if target}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.name))
def test_what_they_start_is_there(unit: Path) -> None:
    command = dict(settings(unit))["ExecStart"].split()
    # What serves a job is of the release that the job began with.
    assert command[0].startswith(("/opt/moorage/bin/", "/run/moorage/%i/release/bin/")[unit.name == WARDEN.name])
    if command[0].endswith("python3"):
        assert command[1:3] == ["-I", "-m"]
        assert find_spec(command[3])
    else:
        assert command[1] in VERBS


def test_each_setting_of_the_wardens_sandbox_has_its_reason() -> None:
    reasons = (ROOT / "docs/reference/sandbox.md").read_text()
    names = {name for name, _ in settings(WARDEN) if SANDBOX.match(name)}
    assert len(names) > 20
    assert {name for name in names if name not in reasons} == set()


def test_the_lock_outlives_a_killed_warden() -> None:
    warden = dict(settings(WARDEN))
    assert (warden["Type"], warden["Restart"], warden["FileDescriptorStoreMax"]) == ("notify", "on-failure", "1")
    # A user cannot kill it, but memory can run out again and again in one bad minute.
    assert int(warden["StartLimitBurst"]) >= 10


def test_a_warden_that_the_kernel_does_not_let_die_is_given_up_before_the_epilog_is() -> None:
    """systemd waits that long four times: after SIGTERM, SIGKILL, and both once more (seen in 257)."""
    warden = dict(settings(WARDEN))
    assert 4 * int(warden["TimeoutStopSec"]) < end_of_job.STOPPING / 2


def test_what_callers_can_make_the_warden_do_costs_a_bounded_part_of_a_core() -> None:
    warden = dict(settings(WARDEN))
    assert 10 <= int(warden["CPUQuota"].removesuffix("%")) <= 50


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_none_is_passed_over(unit: Path) -> None:
    """The sweep also removes links of which no state tells, and writes down that nothing is left."""
    assert [name for name, _ in settings(unit) if name.startswith(("Condition", "Assert"))] == []
