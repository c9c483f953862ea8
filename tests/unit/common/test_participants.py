"""Which nodes of a job take part."""

from __future__ import annotations

import pytest

from moorage.common import participants
from moorage.common.errors import MoorageError, UserError
from moorage.common.job import Job
from moorage.common.participants import Participants
from moorage.common.spec import Spec


def of(nodes: str | None, wanted: int | None = None, own: str = "n1", **more: str) -> Participants:
    job = Job(17, 0, 1, 1, "alice", own, frozenset())
    environ = more if nodes is None else {"SLURM_JOB_NODELIST": nodes, **more}
    return participants.of(job, Spec(True, "kind", nodes=wanted), environ)


@pytest.mark.parametrize(
    ("nodes", "wanted", "own", "names", "place"),
    [
        (None, None, "n1", ["n1"], 0),
        ("n1", None, "n1", ["n1"], 0),
        ("n1", 1, "n1", ["n1"], 0),
        ("n[1-3]", None, "n1", ["n1", "n2", "n3"], 0),
        ("n[1-3]", None, "n3", ["n1", "n2", "n3"], 2),
        ("n[1-3]", 2, "n2", ["n1", "n2"], 1),
        ("n[1-3]", 2, "n3", ["n1", "n2"], None),
        ("n[1-3]", 1, "n1", ["n1"], 0),
        ("n[1-3]", 1, "n2", ["n1"], None),
        ("n[1-300]", 2, "n2", ["n1", "n2"], 1),
    ],
)
def test_the_first_of_them(nodes: str | None, wanted: int | None, own: str, names: list[str], place: int) -> None:
    found = of(nodes, wanted, own)
    assert (list(found.nodes), found.place) == (names, place)
    assert found.alone is (len(names) == 1)


@pytest.mark.parametrize(
    ("nodes", "wanted", "more", "line"),
    [
        (
            "n[1-2]",
            3,
            {},
            "nodes=3 is more than this job has, which is 2: submit with --nodes=3, or ask for nodes=2 or leave it out",
        ),
        ("n[1-255]", None, {}, "255 nodes are more than --k8s can join: ask for nodes=254 or fewer"),
        (
            "n1",
            None,
            {"SLURM_HET_JOB_ID": "16"},
            "this job is heterogeneous, and --k8s is for jobs of one part: submit it as one part",
        ),
    ],
)
def test_what_cannot_be(nodes: str, wanted: int | None, more: dict[str, str], line: str) -> None:
    with pytest.raises(UserError) as refusal:
        of(nodes, wanted, **more)
    assert str(refusal.value) == line


def test_each_element_of_an_array_is_a_job_of_its_own() -> None:
    assert of("n[1-2]", SLURM_ARRAY_JOB_ID="16", SLURM_ARRAY_TASK_ID="1").nodes == ("n1", "n2")


def test_a_list_that_is_none() -> None:
    with pytest.raises(MoorageError, match="not understood"):
        of("n[1-")
