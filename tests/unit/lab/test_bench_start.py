"""What the lab makes of the starts that it has measured."""

from __future__ import annotations

import pytest

from virtual.bench.start import Start, Starts, prologs, ratio, row

STARTS: Starts = {
    "reference, warm": [Start(100.0), Start(140.0)],
    "Moorage, warm": [Start(60.0, 9.0, 0.03, 2.0), Start(90.0, 11.0, 0.05, 4.0)],
    "Moorage, cold": [Start(80.0, 10.0, 0.04)],
}


def test_the_middle_ones_are_compared() -> None:
    assert ratio(STARTS, "warm") == 75 / 120


def test_the_prologs_part_is_of_our_own_starts_alone() -> None:
    assert prologs(STARTS) == pytest.approx(0.04)


def test_a_row_tells_of_it_where_there_is_one() -> None:
    moored = row("Moorage, warm", STARTS["Moorage, warm"])
    assert "; 10.0 s before kind begins and after the cluster is ready, in Slurm and Moorage; " in moored
    assert moored.endswith("; our Python took 3.0 s of CPU time, 4.0% of a start, the Prolog 4.0% by root's clock")
    assert row("reference, warm", STARTS["reference, warm"]).endswith("100.0 to 140.0 in 2 starts")
