"""What the lab does to a guest's node to break it: here to a made-up one, where a try takes no minute."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from moorage.doctor.examine import examine
from moorage.node.hostfiles import Node
from support.faults.changes import Breakage, away, both, covered, edited, instead, mode
from support.faults.events import linked, mounted, on_ramfs, overlaid, planted
from support.faults.lines import FOUND
from support.site import IMAGE, Site
from support.site import site as site_here

JOB = 67000000


@pytest.fixture(autouse=True)
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with site_here(monkeypatch) as site:
        yield site


def found(site: Site) -> list[str]:
    return [f"{finding.check}: {finding}" for finding in examine(site.environment, node=Node(site.root)).findings]


BREAKAGES: dict[str, Callable[[Site], Breakage]] = {
    "states open to all": lambda site: mode(site.states, 0o755),
    "no room for states": lambda site: covered(site.states, "tmpfs", "size=512k,mode=700"),
    "store open to all": lambda site: mode(site.store, 0o755),
    "store on an overlay": lambda site: overlaid(site.store),
    "store without mapped owners": lambda site: both(
        on_ramfs(site.store), edited(site.configuration, "view: copy", "view: idmap")
    ),
    "list of images damaged": lambda site: instead(site.graph / "overlay-images/images.json", "{"),
    "description of an image damaged": lambda site: instead(
        site.description, lambda old: old.replace(b"amd64", b"arm64")
    ),
    "layer lost": lambda site: away(site.motd.parent),
    "no node image": lambda site: edited(site.configuration, IMAGE, "localhost/other:v1.36.3"),
    "unit missing": lambda site: away(site.root / "etc/systemd/system/moorage-warden@.service"),
    "unit masked": lambda site: linked(site.root / "etc/systemd/system/moorage-warden@.service", "/dev/null"),
    "state that nobody understands": lambda site: planted(site.states / f"{JOB}.json", "?"),
    "scratch of no job": lambda site: planted(site.scratch / f"{JOB}.img"),
    "mount of no job": lambda site: mounted(site.run / str(JOB)),
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_it_is_found_as_long_as_it_lasts(name: str, site: Site) -> None:
    with BREAKAGES[name](site)():
        (line,) = found(site)
        assert re.fullmatch(rf"[\w. ]+: {FOUND[name]}", line), line
    assert found(site) == []


def test_what_is_not_there_cannot_be_taken_away(site: Site) -> None:
    with pytest.raises(FileNotFoundError, match="not there to be taken away"), away(site.place / "nothing")():
        pass
    assert not (site.place / ".away").exists()
