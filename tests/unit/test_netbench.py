"""What the benchmark of networks makes of its figures."""

from __future__ import annotations

import pytest

from moorage.net.measure import Sample, summed_up
from moorage.speed import Spread
from support import netbench
from support.netbench import Ratio


@pytest.mark.parametrize(
    ("spread", "bounds", "holds", "in_some_round"),
    [
        (Spread(0.9, 0.7, 1.0), (0.85, None), True, True),
        (Spread(0.8, 0.7, 1.0), (0.85, None), False, True),
        (Spread(0.8, 0.7, 0.84), (0.85, None), False, False),
        (Spread(1.3, 1.2, 1.9), (None, 1.4), True, True),
        (Spread(1.5, 1.2, 1.9), (None, 1.4), False, True),
        (Spread(1.5, 1.41, 1.9), (None, 1.4), False, False),
        (Spread(0.1, 0.1, 0.1), (None, None), True, True),
    ],
)
def test_bounds(spread: Spread, bounds: tuple[float | None, float | None], holds: bool, in_some_round: bool) -> None:
    ratio = Ratio("rtt", spread, *bounds)
    assert (ratio.holds, ratio.holds_in_some_round) == (holds, in_some_round)
    assert str(ratio).endswith(": BROKEN") is not holds


def test_rounds_are_compared_with_themselves() -> None:
    """Both were slow in the second, and the ratio is the same."""
    samples = {
        "fabric": [Sample(8, 9, 60), Sample(4, 3.6, 120)],
        "bare VXLAN": [Sample(10, 12, 50), Sample(5, 4.5, 100)],
        "hosts": [Sample(16, 17, 48), Sample(8, 7.2, 96)],
    }
    assert [(ratio.name, ratio.spread.median) for ratio in netbench.fabric_ratios(samples)] == [
        ("fabric_vs_vxlan", pytest.approx(0.8)),
        ("fabric_vs_host", pytest.approx(0.5)),
        ("rtt", 1.25),
    ]
    assert summed_up(samples["fabric"]).outward == Spread(6, 4, 8)


def test_the_last_line_names_all_and_what_there_is_none_of() -> None:
    medians = {"fabric_vs_vxlan": 0.912, "fabric_vs_host": 0.7, "rtt": 1.3, "uplink_kernel": 0.9}
    assert netbench.last_line(medians) == (
        "bench-net: fabric_vs_vxlan=0.91 fabric_vs_host=0.70 rtt=1.30"
        " uplink_kernel=0.90 uplink_pasta=none uplink_slirp4netns=none"
    )
