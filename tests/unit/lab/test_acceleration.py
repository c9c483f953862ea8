"""How the lab chooses in what its guests run, and what it says of what it did not choose."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from moorage.common.errors import MoorageError, UsageError
from virtual.build import uml_kernel, uml_source
from virtual.build.tools import Tools
from virtual.build.uml_source import Edit, SourceChanged
from virtual.guest import acceleration
from virtual.guest.acceleration import EMULATION, KVM, UML, Acceleration, Probe, Unfit, uml_obstacle
from virtual.guest.record import Request

MEMORY = 6000


class Host:
    """Files of a machine on which UML guests run; `free` is what its /dev/shm has, in MB."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tap, self.shared, self.status = place / "tun", place / "shm", place / "status"
        self.tap.touch()
        self.shared.mkdir()
        self.status.write_text("Seccomp:\t0\nSeccomp_filters:\t0\n")
        self.free = 16000
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=self.free << 20))

    def obstacle(self, memory: int = MEMORY) -> str:
        return uml_obstacle(memory, self.tap, self.shared, self.status)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def test_a_machine_with_all_of_it_has_no_obstacle(host: Host) -> None:
    assert host.obstacle() == ""


def test_without_a_tap_device_there_is_no_network(host: Host) -> None:
    host.tap.unlink()
    assert host.obstacle() == f"this machine has no {host.tap}, of which the networks of User-Mode Linux are made"


def test_too_little_shared_memory_is_said_with_both_numbers(host: Host) -> None:
    host.free = 2000
    assert host.obstacle() == f"{host.shared} has 2000 MB free, the guests' memory is 6000 MB"
    assert host.obstacle(1800) == ""


def test_without_shared_memory_there_is_no_memory(host: Host) -> None:
    host.shared.rmdir()
    assert host.obstacle() == f"this machine has no {host.shared}, in which User-Mode Linux has its memory"


def test_without_seccomp_no_system_call_is_trapped(host: Host) -> None:
    host.status.write_text("Name:\tcat\n")
    assert "no seccomp filters" in host.obstacle()


def unfit(reason: str) -> Callable[[], Acceleration]:
    def way() -> Acceleration:
        raise Unfit(reason)

    return way


def test_the_first_fit_way_is_taken_and_says_why_the_others_were_not() -> None:
    ways = [unfit("no KVM"), unfit("no tap"), lambda: Acceleration(EMULATION)]
    assert acceleration.first(ways) == Acceleration(EMULATION, why="no KVM; no tap")
    assert str(acceleration.first(ways)) == "in software emulation: no KVM; no tap"


def test_where_nothing_is_fit_all_reasons_are_said() -> None:
    with pytest.raises(Unfit, match="no KVM; no tap"):
        acceleration.first([unfit("no KVM"), unfit("no tap")])


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Probe:
    """On a machine where KVM fails and UML works."""
    monkeypatch.delenv(acceleration.SETTING, raising=False)
    monkeypatch.setattr(Probe, "kvm", lambda _: unfit("no guest boots under KVM here")())
    monkeypatch.setattr(acceleration, "uml_obstacle", lambda _: "")
    monkeypatch.setattr(acceleration, "uml_kernel", lambda: SimpleNamespace(linux=Path("/linux")))
    monkeypatch.setattr(Probe, "_answer", lambda *_: "")
    return Probe(Tools(Path("/tools")), Path("/kernel"), MEMORY)


def test_uml_is_second_where_the_order_says_so(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceleration, "ORDER", (KVM, UML, EMULATION))
    assert probe.choose() == Acceleration(UML, "/linux", "no guest boots under KVM here")


def test_a_machine_unfit_for_uml_emulates_and_says_why(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceleration, "ORDER", (KVM, UML, EMULATION))
    monkeypatch.setattr(acceleration, "uml_obstacle", lambda _: "no tap")
    assert probe.choose() == Acceleration(EMULATION, why="no guest boots under KVM here; no tap")


def test_a_kernel_that_does_not_boot_is_not_taken(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceleration, "ORDER", (KVM, UML, EMULATION))
    monkeypatch.setattr(Probe, "_answer", lambda *_: "no guest boots as User-Mode Linux here: it said nothing")
    assert probe.choose().name == EMULATION
    assert probe.choose().why.endswith("it said nothing")


@pytest.mark.parametrize("name", [UML, EMULATION])
def test_the_setting_forces_a_way(probe: Probe, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(acceleration.SETTING, name)
    assert probe.choose().name == name
    assert probe.choose().why == "MOORAGE_ACCELERATION says so"


def test_a_forced_way_that_does_not_work_is_an_error(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(acceleration.SETTING, KVM)
    with pytest.raises(Unfit, match="no guest boots under KVM here"):
        probe.choose()


def test_an_unknown_way_names_the_known_ones(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(acceleration.SETTING, "xen")
    with pytest.raises(UsageError, match="choose from kvm, uml, emulation"):
        probe.choose()


def test_guests_that_need_their_own_kernel_are_never_uml(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = Request(1, "trixie", 22000, apparmor=True).reason_for_qemu()
    needy = Probe(probe.tools, probe.kernel, MEMORY, reason)
    monkeypatch.setenv(acceleration.SETTING, UML)
    assert needy.choose() == Acceleration(EMULATION, why="AppArmor needs Debian's own kernel")
    monkeypatch.delenv(acceleration.SETTING)
    monkeypatch.setattr(acceleration, "ORDER", (KVM, UML, EMULATION))
    assert needy.choose().name == EMULATION


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (Request(1, "trixie", 22000), ""),
        (Request(1, "bookworm", 22000, bare=True), "Debian bookworm needs its own kernel"),
        (Request(1, "trixie", 22000, only_qemu="snapshots"), "User-Mode Linux has no snapshots"),
    ],
)
def test_guests_say_why_they_must_be_qemus(request_: Request, reason: str) -> None:
    assert request_.reason_for_qemu() == reason


def test_an_edit_changes_all_places_that_it_knows() -> None:
    assert Edit("a.c", "one", "two", 2).applied("one, one") == "two, two"


@pytest.mark.parametrize("text", ["", "one", "one, one, one"])
def test_an_edit_that_does_not_fit_fails(text: str) -> None:
    with pytest.raises(SourceChanged, match=r"a\.c has 'one' \d times, not 2"):
        Edit("a.c", "one", "two", 2).applied(text)


def test_a_source_without_a_file_fails(tmp_path: Path) -> None:
    with pytest.raises(SourceChanged, match="this source has no "):
        uml_source.edit(tmp_path)


def test_a_configuration_that_lost_something_is_told() -> None:
    fragment = "# words\nCONFIG_SMP=y\nCONFIG_NR_CPUS=8\nCONFIG_SOUND=n\nCONFIG_INPUT=n\nCONFIG_TUN=y\n"
    config = "CONFIG_SMP=y\nCONFIG_NR_CPUS=8\n# CONFIG_SOUND is not set\nCONFIG_INPUT=y\n"
    assert list(uml_kernel.unmet(fragment, config)) == ["CONFIG_INPUT=n", "CONFIG_TUN=y"]


def test_last_words_are_the_last_line_with_any() -> None:
    assert acceleration.last_words("Checking ...\nno seccomp\n\n") == "no seccomp"
    assert acceleration.last_words("") == "it said nothing"
    assert issubclass(SourceChanged, MoorageError)
