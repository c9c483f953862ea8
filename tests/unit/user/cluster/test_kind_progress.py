"""The phases of a start: known by kind's lines, each with a limit, and with a name when that runs out."""

from __future__ import annotations

import pytest

from moorage.common.errors import MoorageError
from moorage.user.cluster import kind_progress
from moorage.user.cluster.kind_progress import Course, Phase


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (" \u2022 Ensuring node image (kindest/node:v1.36.3) \U0001f5bc  ...", "looking for the node image"),
        (" \u2022 Preparing nodes \U0001f4e6   ...", "creating the node container"),
        (" \u2022 Writing configuration \U0001f4dc  ...", "configuring the node"),
        (" \u2022 Starting control-plane \U0001f579\ufe0f  ...\n", "starting the control plane"),
        (" \u2022 Installing CNI \U0001f50c  ...", "installing the pod network"),
        (" \u2022 Installing StorageClass \U0001f4be  ...", "installing the storage class"),
        (" \u2022 Doing something new  ...", "kind: Doing something new"),
    ],
)
def test_begun(line: str, text: str) -> None:
    phase = kind_progress.begun(line)
    assert phase
    assert phase.text == text


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
def test_nothing_begun(line: str) -> None:
    assert kind_progress.begun(line) is None


def test_together_they_take_no_longer() -> None:
    each = [kind_progress.LOADING, kind_progress.STARTING, kind_progress.READYING, *kind_progress.OF_KIND.values()]
    assert kind_progress.longest(1.0) == sum(phase.limit for phase in each) + kind_progress.EVIDENCE
    assert kind_progress.longest(4.0) > 3.9 * (kind_progress.longest(1.0) - kind_progress.EVIDENCE)


class TestCourse:
    def test_each_phase_is_told(self) -> None:
        told: list[str] = []
        course = Course(told.append, 1.0)
        course.begin(kind_progress.READYING)
        course.detail("CoreDNS is not available")
        assert told == [
            "looking for the node image",
            "waiting until the cluster is ready",
            "waiting until the cluster is ready: CoreDNS is not available",
        ]

    @pytest.mark.parametrize("patience", [1.0, 8.0])
    def test_patience_makes_limits_longer(self, patience: float) -> None:
        course = Course(lambda text: None, patience)
        deadline = course.begin(Phase("x", 100))
        assert deadline.left == pytest.approx(100 * patience, abs=1)
        course.check()

    def test_one_that_runs_out_names_itself(self) -> None:
        course = Course(lambda text: None, 2.0)
        course.begin(Phase("starting the control plane", 0.0))
        with pytest.raises(MoorageError, match=r"^starting the control plane: not done after 0 s$"):
            course.check()
        course.begin(kind_progress.READYING)
        assert str(course.overdue("CoreDNS is not available")) == (
            "waiting until the cluster is ready: not done after 600 s, CoreDNS is not available"
        )
