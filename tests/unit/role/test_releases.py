"""An environment has another name as soon as anything in it would be another one."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError

from support.role import filters

releases = filters("releases")


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    (tmp_path / "moorage-0.1.0-py3-none-any.whl").write_bytes(b"ours")
    (tmp_path / "psutil-7.2-cp313.whl").write_bytes(b"theirs")
    return tmp_path


def test_the_name_says_version_and_python(wheels: Path) -> None:
    name = releases.release(str(wheels), "3.13")
    assert name.startswith("0.1.0-py3.13-")
    assert releases.release(str(wheels), "3.13") == name


@pytest.mark.parametrize("changed", ["moorage-0.1.0-py3-none-any.whl", "psutil-7.2-cp313.whl", "more-1.whl"])
def test_whatever_changes_gives_another_name(wheels: Path, changed: str) -> None:
    before = releases.release(str(wheels), "3.13")
    (wheels / changed).write_bytes(b"changed")
    assert releases.release(str(wheels), "3.13") != before
    assert releases.release(str(wheels), "3.12") != releases.release(str(wheels), "3.13")


def test_what_lies_about_does_not(wheels: Path) -> None:
    before = releases.release(str(wheels), "3.13")
    (wheels / "notes.txt").touch()
    assert releases.release(str(wheels), "3.13") == before


def test_one_wheel_of_ours_is_needed(wheels: Path) -> None:
    (wheels / "moorage-0.2.0-py3-none-any.whl").touch()
    with pytest.raises(AnsibleFilterError, match="has 2 wheels of Moorage: name a directory with one"):
        releases.release(str(wheels), "3.13")
    with pytest.raises(AnsibleFilterError, match="moorage_wheels='' has 0 wheels"):
        releases.release("", "3.13")
