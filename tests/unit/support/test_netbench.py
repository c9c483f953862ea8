"""What the benchmark of networks makes of its figures."""

from __future__ import annotations

import pytest

from moorage.node.uplink_speed import Spread
from moorage.root.net.bench.measure import Sample, summed_up
from support import netbench
from support.netbench import Ratio


@pytest.mark.parametrize(
    ("median", "best", "bounds", "holds", "at_best"),
    [
        (0.9, 0.9, (0.85, None), True, True),
        (0.8, 0.9, (0.85, None), False, True),
        (0.9, 0.8, (0.85, None), True, False),
        (1.3, 1.3, (None, 1.4), True, True),
        (1.5, 1.3, (None, 1.4), False, True),
        (1.3, 1.5, (None, 1.4), True, False),
        (0.1, 0.1, (None, None), True, True),
    ],
)
def test_bounds(
    median: float, best: float, bounds: tuple[float | None, float | None], holds: bool, at_best: bool
) -> None:
    ratio = Ratio("rtt", Spread(median, 0.01, 9), best, *bounds)
    assert (ratio.holds, ratio.holds_at_best) == (holds, at_best)
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
    assert [ratio.best for ratio in netbench.fabric_ratios(samples)] == [0.8, 0.5, 1.25]
    assert summed_up(samples["fabric"]).outward == Spread(6, 4, 8)


def test_a_round_in_which_nothing_came_through_is_none() -> None:
    ours, theirs = [Sample(8, 8, 60), Sample(8, 8, 60)], [Sample(10, 10, 50), Sample(0, 0, 50)]
    assert netbench.throughput("uplink_kernel", ours, theirs, at_least=0.75).spread == Spread(0.8, 0.8, 0.8)


def test_the_last_line_names_all_and_what_there_is_none_of() -> None:
    medians = {"fabric_vs_vxlan": 0.912, "fabric_vs_host": 0.7, "rtt": 1.3, "uplink_kernel": 0.9}
    assert netbench.last_line(medians) == (
        "bench-net: fabric_vs_vxlan=0.91 fabric_vs_host=0.70 rtt=1.30"
        " uplink_kernel=0.90 uplink_pasta=none uplink_slirp4netns=none"
    )
