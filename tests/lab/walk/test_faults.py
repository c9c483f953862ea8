"""Each fault that the doctor knows of, made for real on a node: found exactly, and nothing on a sound one."""

from __future__ import annotations

import json

import pytest

from support.breakable import breakable
from support.faults.catalogue import DOCTOR
from support.figures import Figures
from virtual.guest.cluster import Cluster
from virtual.guest.needs import possible
from virtual.probes.doctor_reports import SOUND, Count, Look, looks

# The checks ask no Slurm: one release of it is enough.
pytestmark = pytest.mark.parametrize("lab", ["trixie"], indirect=True)
PROMISED = 30
MOORAGE = "/opt/moorage/bin/moorage"
FOR_ROOT = {"systemd", "apparmor", "scratch", "slurmd", "state", "node image", "store", "leftovers", "speeds"}


@pytest.fixture(scope="module")
def found(lab: Cluster, figures: Figures) -> dict[str, Look]:
    lab.wait_idle()
    found = looks(lab.first.shell, SOUND[0], *possible(lab, DOCTOR), SOUND[1])
    figures.add(
        "moorage doctor in a process that runs, all programs asked for their versions", found["sound"].seconds, "s"
    )
    quick = sorted(look.seconds for name, look in found.items() if name not in SOUND)
    figures.add("moorage doctor --quick in a process that runs, middle of all", quick[len(quick) // 2], "s")
    return found


@pytest.mark.parametrize("name", breakable(DOCTOR))
def test_a_fault_is_found_and_nothing_else(found: dict[str, Look], name: str) -> None:
    assert found[name].exact, found[name]


@pytest.mark.parametrize("name", SOUND)
def test_nothing_is_found_on_a_sound_node(found: dict[str, Look], name: str) -> None:
    """Also after all that was done to it."""
    assert (found[name].code, found[name].lines) == (0, ()), found[name]


def test_they_are_as_many_as_promised(found: dict[str, Look], figures: Figures) -> None:
    count = Count.of(found.values())
    print(count)
    assert len(set(DOCTOR.values())) >= PROMISED
    figures.add("faults of a node found exactly", count.found, "", at_least=count.faults)
    figures.add("false findings", count.false, "", at_most=0)


def test_a_user_is_told_what_he_may_not_see(lab: Cluster) -> None:
    said = lab.first.shell.run([MOORAGE, "doctor", "--json"], user="alice")
    report = json.loads(said.stdout)
    assert report["findings"] == []
    assert set(report["not_looked_at"]) == FOR_ROOT
