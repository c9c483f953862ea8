"""Who may have what --k8s gives: rules, and the line that names the one in the way."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest

from moorage.common.command import CommandError
from moorage.common.job import Job
from moorage.node.config.schema import Policy
from moorage.root import policy
from moorage.root.policy import Applicant
from support.fakes import FakeCommand

ALICE = Applicant("alice", 1000, account="physics", partition="batch", qos="normal", nodes=4)
CONTACT = "the help desk"


def refusals(job: Applicant, member_of: Collection[str] = (), /, **rule: Any) -> list[str]:  # noqa: ANN401
    found = list(policy.check(Policy(contact=CONTACT, **rule), job, lambda: member_of))
    assert all((one.check, one.fault) == ("policy", "user") for one in found)
    assert all(str(one).endswith(f"ask {CONTACT}") for one in found)
    return [str(one) for one in found]


def unasked() -> Collection[str]:
    raise AssertionError("no rule wants to know the user's groups")


def test_without_a_rule_everybody_may() -> None:
    assert list(policy.check(Policy(), Applicant("alice", 1000), unasked)) == []


@pytest.mark.parametrize(
    "rule",
    [
        {"users": ("bob", "alice")},
        {"users": ("alice",), "groups": ("chemists",)},
        {"accounts": ("physics", "chemistry")},
        {"accounts": ("Physics",)},
        {"partitions": ("batch",)},
        {"qos": ("Normal", "high")},
        {"most_nodes": 4},
        {"users": ("alice",), "accounts": ("physics",), "partitions": ("batch",), "qos": ("normal",), "most_nodes": 9},
    ],
)
def test_who_is_named_may(rule: dict[str, Any]) -> None:
    assert list(policy.check(Policy(**rule), ALICE, unasked)) == []


def test_who_is_in_a_group_that_is_named_may() -> None:
    assert refusals(ALICE, {"chemists"}, groups=("chemists",)) == []
    assert refusals(ALICE, {"chemists"}, users=("bob",), groups=("chemists",)) == []


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ({"users": ("bob",)}, "user alice may not use --k8s here (policy.users): "),
        ({"groups": ("chemists",)}, "user alice may not use --k8s here (policy.groups): "),
        (
            {"users": ("bob",), "groups": ("chemists",)},
            "user alice may not use --k8s here (policy.users and policy.groups): ",
        ),
        ({"users": ("Alice", "alic", "alice2")}, "user alice may not use --k8s here (policy.users): "),
        (
            {"accounts": ("chemistry", "biology")},
            "account 'physics' may not use --k8s here (policy.accounts): "
            "submit with --account=chemistry or biology, or ",
        ),
        ({"accounts": tuple("abcdef")}, "account 'physics' may not use --k8s here (policy.accounts): "),
        (
            {"partitions": ("Batch",)},
            "partition 'batch' may not use --k8s here (policy.partitions): submit with --partition=Batch, or ",
        ),
        ({"qos": ("high",)}, "QOS 'normal' may not use --k8s here (policy.qos): submit with --qos=high, or "),
        (
            {"most_nodes": 3},
            "this job has 4 nodes, and one with --k8s may have 3 (policy.most_nodes): ask for nodes=3, or ",
        ),
    ],
)
def test_others_may_not(rule: dict[str, Any], line: str) -> None:
    assert refusals(ALICE, **rule) == [f"{line}ask {CONTACT}"]


@pytest.mark.parametrize(
    ("rule", "what"),
    [
        ({"accounts": ("physics",)}, "which account this job has (policy.accounts)"),
        ({"partitions": ("batch",)}, "which partition this job has (policy.partitions)"),
        ({"qos": ("normal",)}, "which QOS this job has (policy.qos)"),
        ({"most_nodes": 1}, "how many nodes this job has (policy.most_nodes)"),
    ],
)
def test_what_slurm_does_not_tell_is_not_taken_for_granted(rule: dict[str, Any], what: str) -> None:
    assert refusals(Applicant("alice", 1000), **rule) == [f"Slurm does not say {what}: ask {CONTACT}"]


def test_each_rule_has_to_be_met() -> None:
    rules = {"users": ("bob",), "accounts": ("x",), "partitions": ("x",), "qos": ("x",), "most_nodes": 1}
    assert len(refusals(ALICE, **rules)) == len(rules)


def test_an_account_that_a_user_has_made_up_is_shown_harmlessly() -> None:
    (line,) = refusals(Applicant("alice", 1000, account="x\n\x1b[31m" + "y" * 1000), accounts=("physics",))
    assert line.isprintable()
    assert len(line) < 200


ENVIRON = {
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_UID": "1000",
    "SLURM_JOB_GID": "1001",
    "SLURM_JOB_USER": "alice",
    "SLURMD_NODENAME": "n1",
}


@pytest.mark.parametrize(
    ("said", "applicant"),
    [
        ({}, Applicant("alice", 1001)),
        ({"SLURM_JOB_ACCOUNT": "", "SLURM_JOB_NUM_NODES": ""}, Applicant("alice", 1001)),
        ({"SLURM_JOB_NUM_NODES": "-1"}, Applicant("alice", 1001)),
        (
            {
                "SLURM_JOB_ACCOUNT": "physics",
                "SLURM_JOB_PARTITION": "batch",
                "SLURM_JOB_QOS": "normal",
                "SLURM_JOB_NUM_NODES": "4",
                # What a user may set for his own programs decides nothing.
                "SPANK_QOS": "high",
                "SLURM_QOS": "high",
                "SLURM_NNODES": "1",
            },
            Applicant("alice", 1001, "physics", "batch", "normal", 4),
        ),
    ],
)
def test_what_slurmd_says(said: dict[str, str], applicant: Applicant) -> None:
    environ = ENVIRON | said
    assert Applicant.of(Job.from_hook(environ), environ) == applicant


@pytest.mark.parametrize(("job", "wanted", "counted"), [("4", None, 4), ("4", 2, 2), ("4", 9, 4), ("", 2, None)])
def test_nodes_that_take_no_part_do_not_count(job: str, wanted: int | None, counted: int | None) -> None:
    environ = ENVIRON | {"SLURM_JOB_NUM_NODES": job}
    assert Applicant.of(Job.from_hook(environ), environ, wanted).nodes == counted


GETENT = """\
#!/bin/sh
case "$*" in
"initgroups alice") echo "alice  1001 2002 30" ;;
"initgroups nobody-known") echo "nobody-known " ;;
"group physicists domain users ghosts")
    printf 'physicists:x:2002:\\ndomain users:x:30:bob,carol\\n'; exit 2 ;;
"group 2002") echo "physicists:x:2002:" ;;
"group first") echo "first:x:1001:" ;;
*) exit 9 ;;
esac
"""


@pytest.fixture
def getent(fake_command: Callable[..., FakeCommand]) -> FakeCommand:
    fake = fake_command("getent")
    fake.path.write_text(GETENT)
    return fake


@pytest.mark.parametrize(
    ("user", "wanted", "found"),
    [
        ("alice", ("physicists", "domain users", "ghosts"), {"physicists", "domain users"}),
        ("alice", ("first",), {"first"}),
        ("nobody-known", ("physicists", "domain users", "ghosts"), set()),
        # slurmd names the group that the job runs with, whoever else knows the user.
        ("nobody-known", ("first",), {"first"}),
        # A number is no name, though it can be looked up.
        ("alice", ("2002",), set()),
    ],
)
@pytest.mark.usefixtures("getent")
def test_the_groups_of_a_user(user: str, wanted: tuple[str, ...], found: set[str]) -> None:
    assert policy.groups(Applicant(user, 1001), wanted) == found


def test_a_lookup_that_fails_lets_nobody_in(fake_command: Callable[..., FakeCommand]) -> None:
    fake_command("getent", code=3)
    with pytest.raises(CommandError):
        policy.groups(Applicant("alice", 1001), ("physicists",))


def test_a_lookup_without_end_is_ended(getent: FakeCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    getent.path.write_text("#!/bin/sh\nexec tail -f /dev/null\n")
    monkeypatch.setattr(policy, "LIMIT", 0.2)
    with pytest.raises(CommandError, match=r"killed after 0\.2 s"):
        policy.groups(Applicant("alice", 1001), ("physicists",))
