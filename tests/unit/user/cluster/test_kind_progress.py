"""The phases of a start: known by kind's lines, each with a limit, and with a name when that runs out."""

from __future__ import annotations

import pytest

from moorage.common import phases
from moorage.common.errors import MoorageError
from moorage.common.phases import Phase
from moorage.user.cluster import kind_progress
from moorage.user.cluster.kind_progress import CurrentPhase


@pytest.mark.parametrize(
    ("line", "word", "text"),
    [
        (" \u2022 Ensuring node image (kindest/node:v1.36.3) \U0001f5bc  ...", "image", "looking for the node image"),
        (" \u2022 Preparing nodes \U0001f4e6   ...", "container", "creating the node container"),
        (" \u2022 Writing configuration \U0001f4dc  ...", "configuration", "configuring the node"),
        (" \u2022 Starting control-plane \U0001f579\ufe0f  ...\n", "control-plane", "starting the control plane"),
        (" \u2022 Installing CNI \U0001f50c  ...", "network", "installing the pod network"),
        (" \u2022 Installing StorageClass \U0001f4be  ...", "storage", "installing the storage class"),
        (" \u2022 Doing something new  ...", "other", "kind: Doing something new"),
    ],
)
def test_announced(line: str, word: str, text: str) -> None:
    phase = kind_progress.announced(line)
    assert phase
    assert (phase.word, phase.text) == (word, text)
    assert phase.timeout > 0


@pytest.mark.parametrize(
    "line",
    [
        "",
        'Creating cluster "moorage-17" ...',
        " \u2713 Preparing nodes \U0001f4e6 ",
        " \u2717 Starting control-plane \U0001f579\ufe0f",
        "ERROR: failed to create cluster: ...",
        " \u2022 WARNING: Timed out waiting for Ready",
    ],
)
def test_nothing_announced(line: str) -> None:
    assert kind_progress.announced(line) is None


def test_together_they_take_no_longer() -> None:
    each = [phases.LOAD, phases.KIND, phases.READINESS, *kind_progress.ANNOUNCED.values()]
    assert kind_progress.longest(1.0) == sum(phase.timeout for phase in each) + kind_progress.EVIDENCE
    assert kind_progress.longest(4.0) > 3.9 * (kind_progress.longest(1.0) - kind_progress.EVIDENCE)


class TestCurrentPhase:
    def test_each_phase_is_told(self) -> None:
        told: list[tuple[str, str]] = []
        current = CurrentPhase(lambda phase, text: told.append((phase.word, text)), 1.0)
        current.begin(phases.READINESS)
        current.detail("CoreDNS is not available")
        assert told == [
            ("image", "looking for the node image"),
            ("readiness", "waiting until the cluster is ready"),
            ("readiness", "waiting until the cluster is ready: CoreDNS is not available"),
        ]

    @pytest.mark.parametrize("slowness", [1.0, 8.0])
    def test_slowness_makes_timeouts_longer(self, slowness: float) -> None:
        current = CurrentPhase(lambda phase, text: None, slowness)
        current.begin(Phase("x", "x", 100))
        assert current.deadline.left == pytest.approx(100 * slowness, abs=1)
        current.check()

    def test_one_that_runs_out_names_itself(self) -> None:
        current = CurrentPhase(lambda phase, text: None, 2.0)
        current.begin(Phase("control-plane", "starting the control plane", 0.0))
        with pytest.raises(MoorageError, match=r"^starting the control plane: not done after 0 s$"):
            current.check()
        current.begin(phases.READINESS)
        assert str(current.overdue("CoreDNS is not available")) == (
            "waiting until the cluster is ready: not done after 600 s, CoreDNS is not available"
        )
