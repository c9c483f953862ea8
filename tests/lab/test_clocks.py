"""A guest's clocks never run backward, whatever processor they are read on, by the vDSO or by a system call."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.figures import Figures
from virtual.guest.acceleration import UML
from virtual.guest.cluster import Cluster

SOURCE = Path(__file__).parent / "virtual/in_guest/clocks.c"
# Only the clocks of UML guests are of our making.
SECONDS = {UML: 60}
OTHERWISE = 5
PROCESSES = 4
LEAST = 1000


@pytest.mark.parametrize("lab", ["trixie"], indirect=True)
def test_no_clock_runs_backward(lab: Cluster, figures: Figures) -> None:
    shell, seconds = lab.first.shell, SECONDS.get(lab.hardware.acceleration.name, OTHERWISE)
    shell.put(SOURCE, "/root/clocks.c")
    shell.run(["gcc", "-O2", "-o", "/root/clocks", "/root/clocks.c"])
    said = shell.output("/root/clocks", str(seconds), str(PROCESSES), limit=seconds + 60)
    for row in said.splitlines():
        clock, readings, backward, largest = row.split()
        figures.add(f"readings of the {clock} clock in {seconds} s by {PROCESSES} processes", int(readings), "")
        assert int(readings) > LEAST
        assert int(backward) == 0, f"{clock}: {backward} steps back, the largest of {largest} ns"
    assert len(said.splitlines()) == 2
