"""The role on the files of a guest, natively: what it would do, what it does, that again, and all of it undone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from moorage.command import run
from virtual import installation
from virtual.cache import CACHE
from virtual.guest import configured, package_tree
from virtual.rollout import WITNESS, differences
from virtual.tools import ENTER

PLACE = CACHE / "test-role"
GROUPS = ("login", "compute", "controller")
MORE = {
    "moorage_slurm_conf": "edit",
    "moorage_subids": {"users": ["alice", "carol"], "lowest_uid": 1000, "highest_id": 60000},
}
CAROL = "carol:1879244800:65536"


@dataclass(frozen=True)
class Tree:
    """One host in all groups: the files of a node, where nothing runs."""

    path: Path
    wheels: Path

    def play(self, playbook: str, *options: str) -> int:
        variables = installation.variables(self.path, self.wheels) | MORE
        inventory = PLACE / "inventory.json"
        inventory.write_text(json.dumps({group: {"hosts": {"guest": variables}} for group in GROUPS}))
        source = installation.SOURCE / "ansible" / playbook
        return installation.changed(installation.play(source, inventory, *options).stdout)

    def system(self) -> dict[str, str]:
        inside: list[str | Path] = [ENTER, self.path, "/", "--", "python3", "-I", "-B", "-"]
        seen: dict[str, str] = json.loads(run(inside, input=WITNESS.read_bytes(), limit=300).stdout)
        return seen


@pytest.fixture(scope="module")
def tree() -> Iterator[Tree]:
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    path = PLACE / "tree"
    run(["cp", "-a", "--reflink=auto", configured(package_tree("trixie")) / "tree", path], limit=300)
    yield Tree(path, installation.brought(PLACE, installation.python_of(path)))
    shutil.rmtree(PLACE)


def test_on_and_off(tree: Tree) -> None:
    before = tree.system()
    assert tree.play("install.yml", "--check") > 0
    assert differences(before, tree.system()) == []
    assert tree.play("install.yml") > 0
    assert CAROL in (tree.path / "etc/subuid").read_text()
    assert tree.play("install.yml") == 0
    assert tree.play("install.yml", "--check") == 0
    assert tree.play("uninstall.yml") > 0
    assert differences(before, tree.system()) == []
    assert tree.play("uninstall.yml") == 0
