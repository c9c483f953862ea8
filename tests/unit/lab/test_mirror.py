"""Packages come from where this machine's own configuration points."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from moorage.common.errors import UserError
from support.fakes import FakeCommand
from virtual.build import mirror

Fake = Callable[..., FakeCommand]


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(mirror.MIRROR_SETTING, raising=False)


def test_the_first_debian_archive_of_apt_is_taken(fake_command: Fake) -> None:
    rows = "Other|Other|http://other/x/\nDebian|Debian-Security|http://s/\nDebian|Debian|http://a/debian/\n"
    fake_command("apt-get", stdout=rows)
    assert mirror.debian_mirror() == "http://a/debian"


def test_a_setting_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(mirror.MIRROR_SETTING, "http://b/debian/")
    assert mirror.debian_mirror() == "http://b/debian"


def test_without_either_the_setting_is_named(fake_command: Fake) -> None:
    fake_command("apt-get", stdout="Ubuntu|Ubuntu|http://u/ubuntu/\n")
    with pytest.raises(UserError, match="set MOORAGE_DEBIAN_MIRROR"):
        mirror.debian_mirror()


def test_proxies_and_retries_of_apt_are_handed_on(fake_command: Fake) -> None:
    fake_command("apt-config", stdout="Acquire \nAcquire::http::Proxy http://p:3128\nAcquire::Languages en\n")
    assert mirror.apt_options() == ['Acquire::http::Proxy "http://p:3128"']
