"""Facts about a node: remembered as long as they are true."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import moorage
from moorage.node import factcache as module
from moorage.node.factcache import Facts, remembered, stamp


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run" / "facts.json"


def noted(place: Path, value: str = "5.4.2") -> str:
    with remembered(place) as facts:
        return facts.recall("podman", ["stamp", 1], lambda: value)


def test_a_fact_is_found_out_once(place: Path) -> None:
    assert noted(place) == "5.4.2"
    with remembered(place) as facts:
        assert facts.recall("podman", ["stamp", 1], lambda: pytest.fail("found out again")) == "5.4.2"


def test_another_stamp_makes_it_another_fact(place: Path) -> None:
    noted(place)
    with remembered(place) as facts:
        assert facts.recall("podman", ["stamp", 2], lambda: "5.8.0") == "5.8.0"


def test_what_fails_is_not_remembered(place: Path) -> None:
    with pytest.raises(ZeroDivisionError), remembered(place) as facts:
        facts.recall("podman", ["stamp", 1], lambda: 1 // 0)
    assert noted(place) == "5.4.2"


def test_what_was_found_out_before_a_failure_is_kept(place: Path) -> None:
    with pytest.raises(ZeroDivisionError), remembered(place) as facts:
        facts.recall("crun", [facts.recall("podman", ["stamp", 1], lambda: "5.4.2")], lambda: 1 // 0)
    assert noted(place, "another") == "5.4.2"


def test_nothing_is_written_when_nothing_is_new(place: Path) -> None:
    noted(place)
    before = place.stat()
    noted(place)
    assert os.path.samestat(before, place.stat())


def test_a_boot_forgets_all(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted(place)
    other = tmp_path / "boot_id"
    other.write_text("another boot\n")
    monkeypatch.setattr(module, "BOOT_ID", other)
    assert noted(place, "new") == "new"


def test_so_does_another_release(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted(place)
    monkeypatch.setattr(module, "__version__", "another")
    assert noted(place, "new") == "new"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        '{"valid": 1}',
        '{"valid": "VALID", "facts": [1]}',
        '{"valid": "VALID", "facts": {"podman": 3}}',
    ],
)
def test_a_broken_file_is_no_fact(place: Path, content: str) -> None:
    place.write_text(content.replace("VALID", f"{module.BOOT_ID.read_text().strip()} {moorage.__version__}"))
    place.chmod(0o600)
    assert noted(place, "new") == "new"
    assert json.loads(place.read_text())["facts"]["podman"]["value"] == "new"


def test_a_file_that_others_can_write_is_no_fact(place: Path) -> None:
    noted(place)
    place.chmod(0o622)
    assert noted(place, "new") == "new"


def test_a_link_is_no_fact(place: Path, tmp_path: Path) -> None:
    noted(tmp_path / "elsewhere.json", "evil")
    place.symlink_to(tmp_path / "elsewhere.json")
    assert noted(place, "new") == "new"
    assert not place.is_symlink()


def test_nobody_else_reads_it(place: Path) -> None:
    noted(place)
    assert place.stat().st_mode & 0o777 == 0o600
    assert os.listdir(place.parent) == ["facts.json"]  # noqa: PTH208


def test_without_a_place_to_keep_them_facts_are_still_found(tmp_path: Path) -> None:
    assert noted(tmp_path / "missing" / "facts.json") == "5.4.2"


def test_a_stamp_tells_files_apart(tmp_path: Path) -> None:
    file = tmp_path / "program"
    missing = stamp(file)
    file.write_text("1")
    first = stamp(file)
    other = tmp_path / "other"
    other.write_text("1")
    os.utime(other, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    other.rename(file)
    assert len({json.dumps(one) for one in (missing, first, stamp(file))}) == 3
    assert stamp(file) == stamp(file)


def test_facts_in_memory_alone() -> None:
    facts = Facts()
    assert [facts.recall("one", [1], lambda: 1), facts.recall("one", [1], lambda: 2)] == [1, 1]
