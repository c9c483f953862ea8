"""What the lab says of its guest's packages comes from Debian's own records."""

from __future__ import annotations

from pathlib import Path

import pytest

from virtual.build import guest

STATUS = """\
Package: podman
Status: install ok installed
Version: 5.4.2+ds1-2+b2
Description: tool to manage containers
 Version: of a paragraph, not of the package

Package: zlib1g
Status: install ok installed
Version: 1:1.3

Package: slurmd
Version: 24.11.5-4
Conffiles:
 /etc/default/slurmd 0123
"""


def test_versions_of_the_packages_that_matter(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text(STATUS)
    assert guest.versions(status) == {"podman": "5.4.2+ds1-2+b2", "slurmd": "24.11.5-4"}


@pytest.mark.parametrize(
    ("line", "day"),
    [("Date: Fri, 30 Oct 2026 08:08:01 UTC", "2026-10-30"), ("Date: Sat, 12 Sep 2026 23:59:59 UTC", "2026-09-12")],
)
def test_the_day_of_the_archive(tmp_path: Path, line: str, day: str) -> None:
    release = tmp_path / "InRelease"
    release.write_text(f"Origin: Debian\nSuite: unstable\n{line}\nValid-Until: Sun, 01 Nov 2026 00:00:00 UTC\n")
    assert guest.archive_date(release) == day


def test_a_suite_is_made_of_packages_each_named_once() -> None:
    assert len(guest.PACKAGES) == len(set(guest.PACKAGES))
    assert set(guest.SHOWN) <= set(guest.PACKAGES)
