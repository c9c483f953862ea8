"""Man pages and completion, as the role installs and removes them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from support.playbook import play

SHARE = Path(__file__).parents[3] / "share"
CHANGED = re.compile(r"changed=(\d+)")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A release with its pages."""
    home = tmp_path / "home"
    shutil.copytree(SHARE, home / "versions/1/share")
    (home / "current").symlink_to("versions/1")
    (tmp_path / "share/man").mkdir(parents=True)
    # As the distribution has it, for a group of its own.
    (tmp_path / "share/man").chmod(0o2775)
    return home


def played(place: Path, tasks: str) -> int:
    """How many tasks have changed something."""
    given = {
        "moorage_home": f"{place}/home",
        "moorage_manual_top": f"{place}/share",
        "moorage_environment": f"{place}/home/versions/1",
    }
    role = {"name": "moorage", "tasks_from": tasks}
    one = {"hosts": "compute", "gather_facts": False, "tasks": [{"ansible.builtin.include_role": role, "vars": given}]}
    ended = play(place, one, {"node": {}})
    assert ended.code == 0, ended.stdout
    found = CHANGED.search(ended.stdout)
    assert found, ended.stdout
    return int(found[1])


def there(top: Path) -> dict[str, int]:
    return {str(path.relative_to(top)): path.lstat().st_mode for path in top.rglob("*")}


def test_they_come_once_and_go_without_a_trace(tmp_path: Path, home: Path) -> None:
    before = there(tmp_path / "share")
    assert played(tmp_path, "manual") > 0
    wanted = {str(file.relative_to(SHARE)) for file in SHARE.rglob("*") if file.is_file()}
    links = {
        str(link.relative_to(tmp_path / "share")): link for link in (tmp_path / "share").rglob("*") if link.is_symlink()
    }
    assert {*links} == wanted
    assert {link.readlink() for link in links.values()} == {home / "current/share" / name for name in wanted}
    assert all(link.read_bytes() == (SHARE / name).read_bytes() for name, link in links.items())
    assert played(tmp_path, "manual") == 0
    assert played(tmp_path, "manual_removed") > 0
    assert there(tmp_path / "share") == before


def test_what_others_have_put_there_stays(tmp_path: Path, home: Path) -> None:
    played(tmp_path, "manual")
    theirs = tmp_path / "share/bash-completion/completions/other"
    theirs.touch()
    played(tmp_path, "manual_removed")
    assert theirs.exists()
    assert not (tmp_path / "share/zsh").exists()
    assert (tmp_path / "share/man").exists()
