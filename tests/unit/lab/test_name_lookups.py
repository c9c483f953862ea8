"""Which names were asked for while a test has listened."""

from __future__ import annotations

import pytest

from virtual.probes.name_lookups import Lookup, between, parse

SAID = """\
Started lab-names.service - Names of the lab.
dnsmasq: started, version 2.91 cachesize 150
dnsmasq: query[AAAA] before.lab from 10.77.0.1
dnsmasq: query[AAAA] submitted.lab from 10.77.0.1
dnsmasq: config submitted.lab is NXDOMAIN
dnsmasq: query[A] submitted.lab from 10.77.0.1
dnsmasq: query[HINFO] 123.456 from 10.77.0.1
dnsmasq: query[A] berth1 from 10.77.0.1
dnsmasq: query[A] registry.example from 10.77.0.1
dnsmasq: query[AAAA] begun.lab from 10.77.0.1
dnsmasq: query[A] begun.lab from 10.77.0.1
dnsmasq: query[A] after.lab from 10.77.0.1
"""


def test_what_was_asked_between_two_marks() -> None:
    found = between(parse(SAID), "submitted.lab", "begun.lab")
    assert found == [Lookup("HINFO", "123.456"), Lookup("A", "berth1"), Lookup("A", "registry.example")]
    assert [one.name for one in found if one.outside] == ["123.456", "registry.example"]


@pytest.mark.parametrize("marks", [("submitted.lab", "never.lab"), ("never.lab", "begun.lab")])
def test_who_has_not_listened_has_heard_nothing(marks: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="not in list"):
        between(parse(SAID), *marks)
