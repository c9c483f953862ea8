"""A node that is broken in one way has one finding: what `moorage doctor` says of it, by the code that it runs."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import time
from collections.abc import Iterator

import pytest

from moorage import __version__
from moorage.common.errors import UserError
from moorage.doctor.examine import Report, examine
from moorage.linux.process import Process
from moorage.node import scratch_disk, uplink_speed
from moorage.node.finding import Finding
from moorage.node.hostfiles import Node
from moorage.node.uplink_speed import Record, Speed, Spread
from moorage.root.state import State
from support.coded_lines import explained
from support.fakes import FakeCommand
from support.faults.changes import away
from support.faults.fault import Effect
from support.faults.made_up import FAULTS, broken, pattern
from support.node import JOB, LIMITS, USER
from support.peers import Peer
from support.site import IMAGE, REPOSITORY, Site
from support.site import site as site_here

QUICK = 0.3
IN_TIME = 2.0
HEALTH_CHECK = REPOSITORY / "config/health-check"
SHIM_GONE = "the shim {}/moorage.so is missing on this node: build and install it: plugin/spank/Makefile"
ROUNDS = 15


@pytest.fixture(autouse=True)
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with site_here(monkeypatch) as site:
        yield site


def examined(site: Site, *, quick: bool = False, every_byte: bool = False) -> Report:
    return examine(site.environment, quick=quick, every_byte=every_byte, node=Node(site.root))


def told(finding: Finding) -> str:
    return f"{finding.check}: {finding}"


@pytest.mark.parametrize("way", [{}, {"quick": True}, {"every_byte": True}])
def test_a_healthy_node_has_no_finding(site: Site, way: dict[str, bool]) -> None:
    report = examined(site, **way)
    assert (report.findings, report.left_out) == ([], [])


def test_a_site_whose_jobs_have_one_node_misses_nothing_that_joins_several(site: Site) -> None:
    site.slurm_conf("PrologFlags=Contain", "")
    site.without_module("drivers/net/vxlan/vxlan")
    site.configured("scratch:", "policy: {most_nodes: 1}\nscratch:")
    assert examined(site).findings == []


def test_of_each_thing_the_version_is_told(site: Site) -> None:
    assert examined(site).versions == {
        "crun": "crun version 1.21",
        "kernel": os.uname().release,
        "kind": "kind version 0.33.0",
        "kubectl": "Client Version: v1.37.0",
        "moorage": __version__,
        "pasta": "pasta 2025_05_03.587980c-2",
        "podman": "podman version 5.4.2",
        "shim": "24.11",
        "slirp4netns": "slirp4netns version 1.2.1",
        "slurm": "slurm-wlm 24.11.5",
        f"image {IMAGE}": site.image,
    }


def test_the_way_of_showing_images_is_told_with_its_price(site: Site) -> None:
    said = r"copy \(store.view says so\): each user's first job copies \d+ (bytes|KiB)"
    assert re.fullmatch(said, examined(site).images)
    assert doctor(site).stdout.splitlines()[-1].startswith("images are shown by copy (")
    assert examined(site, quick=True).images == ""


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_as_long_as_it_lasts_and_nothing_else(name: str, site: Site) -> None:
    with broken(site, name):
        report = examined(site)
        (said,) = [told(finding) for finding in report.findings]
        assert re.fullmatch(pattern(site, name), said), said
        assert report.faults == ([] if FAULTS[name].effect is Effect.ADVICE else report.findings)
        assert report.left_out == []
        assert all(finding.remedy and "\n" not in str(finding) for finding in report.findings)
        assert all(explained(one.code, one.cause, one.remedy) for one in report.findings), (
            "the catalogue has no such line"
        )
    assert examined(site).findings == []


def test_there_are_enough_of_them() -> None:
    faults = {fault.doctor for fault in FAULTS.values() if fault.effect is not Effect.ADVICE}
    print(f"faults found exactly: {len(faults)}")
    assert len(faults) >= 30


def test_what_is_not_there_cannot_be_taken_away(site: Site) -> None:
    with pytest.raises(FileNotFoundError, match="not there to be taken away"), away(site.place / "nothing"):
        pass
    assert not (site.place / ".away").exists()


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ("", 500),
        ("policy: {most_nodes: 1}", 480),
        ("fabric: {hosts: /etc/hosts}", 480),
        ("epilog_limit: 100", 580),
        ("wait: {lock: 1, warden: 2, copy: 3}", 146),
    ],
)
def test_a_prolog_needs_time_for_all_that_it_may_wait_for(site: Site, settings: str, seconds: int) -> None:
    """Images are copied here. What an earlier life has left is cleared first, and what is half made when one fails."""
    site.slurm_conf("PrologTimeout=600", f"PrologTimeout={seconds}")
    site.configured("scratch:", f"{settings}\nscratch:")
    (found,) = examined(site).findings
    assert f"PrologTimeout={seconds}, and our Prolog may take {seconds} s" in told(found)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("scratch full", "room"),
        ("no room for states", "room"),
        ("scratch open to all", "node"),
        ("job of an earlier boot", "leftover"),
        ("files that nobody removes", "leftover"),
        ("state that nobody understands", "node"),
    ],
)
def test_what_any_user_can_bring_about_is_no_fault_of_the_nodes(name: str, kind: str, site: Site) -> None:
    with broken(site, name):
        assert [finding.fault for finding in examined(site).findings] == [kind]


def test_a_byte_that_has_changed_shows_to_whoever_reads_all(site: Site) -> None:
    site.motd.write_bytes(site.motd.read_bytes().upper())
    assert examined(site).findings == []
    (found,) = examined(site, every_byte=True).findings
    assert told(found).startswith(f"store: image {IMAGE}: layer {site.layer[:12]}: its files make sha256:")


def test_all_faults_of_a_configuration_are_named(site: Site) -> None:
    site.configured("scratch:", "nodes: 2\npids_max: many\nscratch:")
    assert [finding.cause.partition(": ")[2] for finding in examined(site).findings] == [
        "there is no key nodes",
        "pids_max is 'many'",
    ]


def test_what_cannot_be_looked_into_keeps_nothing_from_being_found(site: Site) -> None:
    (site.programs / "systemctl").write_text("#!/bin/sh\nexit 1\n")
    (site.scratch / "17.img").touch()
    first, second = examined(site).findings
    assert told(first).startswith("states of units: the check failed to run (")
    assert second.check == "leftovers"


def test_a_check_without_room_is_no_fault_of_the_node(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any user can fill a disk on which a check makes a file."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(scratch_disk, "memory", full)
    (found,) = examined(site).findings
    assert (found.check, found.kind, found.drains) == ("state", "room", False)


def test_quickly_no_program_is_asked_whose_version_is_known(site: Site) -> None:
    examined(site)
    inode = (site.run / "facts.json").stat().st_ino
    assert examined(site, quick=True).findings == []
    assert (site.run / "facts.json").stat().st_ino == inode, "something was found out anew"
    examined(site)
    assert (site.run / "facts.json").stat().st_ino != inode


def doctor(site: Site, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [str(site.command), "doctor", *words]
    return subprocess.run(argv, env=site.environment, capture_output=True, text=True, check=False)


def test_quickly_it_takes_less_than_300_ms(site: Site) -> None:
    """In the middle of some rounds: what else this machine does for a moment is not the command's."""
    assert (doctor(site).returncode, doctor(site, "--quick").stdout) == (0, "nothing is wrong\n")
    rounds = [timed(site) for _ in range(ROUNDS)]
    middle = sorted(rounds)[ROUNDS // 2]
    print(f"moorage doctor --quick: {middle * 1000:.0f} ms, quickest of {ROUNDS} {min(rounds) * 1000:.0f} ms")
    assert middle < QUICK


def timed(site: Site) -> float:
    begun = time.perf_counter()
    assert doctor(site, "--quick").returncode == 0
    return time.perf_counter() - begun


def test_slurms_health_check_ends_in_time_and_drains_for_a_fault(site: Site) -> None:
    script = health_check(site)
    site.program("sinfo", "idle")
    scontrol = FakeCommand(site.programs, "scontrol")
    assert timed_check(script, site) < IN_TIME
    assert scontrol.calls == []
    (site.slurm / "moorage.so").unlink()
    assert timed_check(script, site) < IN_TIME
    ((*_, reason),) = scontrol.calls
    assert reason == f"Reason=moorage: shim: {SHIM_GONE.format(site.slurm)} [M-SHIM-9]"


def test_slurms_health_check_drains_for_no_job_that_has_left_something(site: Site) -> None:
    """A process that does not end keeps the rest of its job there, and its Epilog has not drained the node for that."""
    State.begin(JOB, LIMITS).changed(owner=Process(os.getpid(), 1))
    site.program("sinfo", "idle")
    scontrol = FakeCommand(site.programs, "scontrol")
    assert "leftovers: job 17 has not been cleaned up" in doctor(site, "--quick").stdout
    timed_check(health_check(site), site)
    assert scontrol.calls == []


def health_check(site: Site) -> str:
    """The script as it is shipped, but for where it finds its programs."""
    script = HEALTH_CHECK.read_text().replace("/opt/moorage/bin/moorage", str(site.command))
    return re.sub("^PATH=", f"PATH={site.programs}:", script, flags=re.MULTILINE)


def timed_check(script: str, site: Site) -> float:
    begun = time.perf_counter()
    subprocess.run(["sh", "-c", script], env=site.environment | {"SLURMD_NODENAME": "n1"}, check=True)
    return time.perf_counter() - begun


def test_a_user_sees_what_he_may(site: Site) -> None:
    """What shows to root alone is named, and the rest is looked at."""
    site.slurm_conf("task/cgroup,", "")
    site.scratch.chmod(0o755)
    with Peer(USER) as user:
        report = user.do(examined, site)
    (found,) = report.findings
    assert "has TaskPlugin=task/affinity" in told(found)
    for_root = ["systemd", "apparmor", "scratch", "slurmd", "speeds", "state", "node image", "store", "leftovers"]
    assert report.left_out == for_root


def test_a_user_knows_what_root_has_measured_and_nobody_else(site: Site) -> None:
    place = site.slurm / "uplinks.json"
    even = Speed(Spread(1, 1, 1), Spread(1, 1, 1), Spread(1, 1, 1))
    Record(os.uname().release, even, {"kernel": even}, {}).save(place)
    with Peer(USER) as user:
        assert user.do(uplink_speed.known, {}, place) == {"kernel": even}
        assert not user.do(Node().conceals, str(place))
        os.chown(place, USER + 1, 0)
        assert user.do(uplink_speed.known, {}, place) == {}
        place.chmod(0o600)
        assert user.do(Node().conceals, str(place))
        assert not user.do(Node().conceals, str(place.with_name("nothing")))


def test_a_user_is_told_of_what_he_may_not_read(site: Site) -> None:
    (site.slurm / "slurm.conf").chmod(0o600)
    with Peer(USER) as user:
        said = user.do(refused, site)
    assert said == f"{site.slurm}/slurm.conf cannot be read (Permission denied): run it with sudo"


def refused(site: Site) -> str:
    try:
        return repr(examined(site))
    except UserError as error:
        return str(error)
