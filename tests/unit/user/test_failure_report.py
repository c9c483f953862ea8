"""The file that a failed start leaves: its owner's alone, and without what must not be sent around."""

from __future__ import annotations

import resource
import stat
import time
from pathlib import Path

import pytest

from moorage.user import failure_report

WEB = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("pulling https://alice:hunter2@registry.site/x", "hunter2"),
        ("Authorization: Bearer abc.def-123", "abc.def-123"),
        ("Authorization: Basic YWxpY2U6aHVudGVyMg==", "YWxpY2U6aHVudGVyMg=="),
        (f"token is {WEB}", WEB),
        (f"a{WEB[1:]} {WEB}", WEB),
        ("podman login --password hunter2 -u alice", "hunter2"),
        ("podman login --password=hunter2", "hunter2"),
        ("REGISTRY_PASSWORD=hunter2 podman pull", "hunter2"),
        ("AWS_SECRET_ACCESS_KEY: hunter2", "hunter2"),
        ('{"auths": {"r": {"auth": "aHVudGVyMg=="}}}', "aHVudGVyMg=="),
        ("client-key-data: aHVudGVyMg==", "aHVudGVyMg=="),
        ("passphrase: 'two words'", "two words"),
        ("api_key=hunter2,next=1", "hunter2"),
        ("skopeo copy --creds alice:hunter2 a b", "hunter2"),
        ("curl --registry-token hunter2", "hunter2"),
        ("x\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\nhunter2\n-----END RSA PRIVATE KEY-----\ny", "hunter2"),
        ("x\n-----BEGIN CERTIFICATE-----\nMIIE\nhunter2\n-----END CERTIFICATE-----\ny", "hunter2"),
        ("cut off: -----BEGIN CERTIFICATE-----\nhunter2", "hunter2"),
        ("  certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0t", "CRUdJTiBDRVJUSUZJQ0FURS0t"),
        ("bootstrapTokens: a1b2c3.a1b2c3d4e5f6g7h8", "a1b2c3d4e5f6g7h8"),
        ("using abcdef.0123456789abcdef to join", "0123456789abcdef"),
        ("cut off: -----BEGIN PRIVATE KEY-----\nhunter2", "hunter2"),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nhunter2\n-----END PGP PRIVATE KEY BLOCK-----", "hunter2"),
        ("The token is a1b2c3.a1b2c3d4e5f6g7h8.", "a1b2c3d4e5f6g7h8"),
        (r'config "{\"auths\":{\"r\":{\"auth\":\"aHVudGVyMg==\"}}}"', "aHVudGVyMg=="),
        (r'body="{\\\"password\\\": \\\"hunter2\\\"}"', "hunter2"),
    ],
)
def test_secrets_are_removed(text: str, secret: str) -> None:
    clean = failure_report.without_secrets(text)
    assert secret not in clean
    assert failure_report.HIDDEN in clean


@pytest.mark.parametrize(
    "text",
    [
        "Error: short-name resolution enforced but cannot prompt without a TTY",
        "warden: process 1192 is not the owner's",
        "https://registry.site/v2/library/x: no such host",
        "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_17: Permission denied",
        "moorage:    1.2 s  asking for a cgroup",
        "unauthorized: authentication required",
        "no token was found, the key is missing",
        "author: alice",
        "system.containermanager is at v1.36.3, kernel 6.12.48, sha256:0123456789abcdef0123456789abcdef",
        "I1118 19:14:06.123456 kubelet.go:2451 node.0123456789abcdef.slice",
    ],
)
def test_the_rest_stays(text: str) -> None:
    assert failure_report.without_secrets(text) == text


def test_parts_have_titles_and_their_ends() -> None:
    text = failure_report.text_of({"first": "a\n", "second": "x" * failure_report.MOST + "the end"})
    assert text.startswith("==== first\na\n\n==== second\nxxx")
    assert text.endswith("the end\n")
    assert len(text) < failure_report.MOST


@pytest.mark.parametrize("letter", ["x", "-", "token", "a:", "://", "-----BEGIN ", '"', " ", "token\\"])
def test_a_long_line_takes_no_time(letter: str) -> None:
    started = time.monotonic()
    failure_report.without_secrets(letter * ((1 << 20) // len(letter)))
    assert time.monotonic() - started < 20


def test_it_is_its_owners_alone(tmp_path: Path) -> None:
    path = failure_report.write([tmp_path], "moorage-17", {"cause": "x"})
    assert path == tmp_path / "moorage-17.log"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == "==== cause\nx\n"


def test_nothing_is_written_over_or_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "moorage-17.log").symlink_to(victim)
    (tmp_path / "moorage-17.1.log").write_text("an earlier one")
    assert failure_report.write([tmp_path], "moorage-17", {"cause": "x"}) == tmp_path / "moorage-17.2.log"
    assert victim.read_text() == "mine"


def test_one_without_room_is_none(tmp_path: Path) -> None:
    """As with a quota that is used up: nothing of it stays there, and the job goes on to its end."""
    full, empty = tmp_path / "full", tmp_path / "empty"
    full.mkdir()
    empty.mkdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, hard))
    try:
        assert failure_report.write([full, empty], "b", {"cause": "x" * 100}) is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(full.iterdir())
    assert failure_report.write([full], "b", {"cause": "x" * 100}) == full / "b.log"


def test_the_next_directory_is_tried(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert failure_report.write([missing, tmp_path], "b", {}) == tmp_path / "b.log"
    assert failure_report.write([missing], "b", {}) is None
