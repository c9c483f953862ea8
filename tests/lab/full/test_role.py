"""The role on the files of guests, natively: what it would do, what it does, that again, and all of it undone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from moorage import features
from moorage.command import CommandFailed, Completed, run
from virtual import installation
from virtual.cache import CACHE
from virtual.guest import configured, package_tree
from virtual.rollout import WITNESS, differences
from virtual.tools import ENTER

PLACE = CACHE / "test-role"
GROUPS = ("login", "compute", "controller")
MORE = {
    "moorage_features": {"lab": {"gres": "lab", "devices": ["/dev/lab%"]}},
    "moorage_slurm_conf": "edit",
    "moorage_subids": {"users": ["alice", "carol"], "lowest_uid": 1000, "highest_id": 60000},
}
CAROL = "carol:1879244800:65536"


@dataclass(frozen=True)
class Tree:
    """One host in all groups: the files of a node, where nothing runs."""

    path: Path
    wheels: Path

    @property
    def variables(self) -> dict[str, object]:
        return installation.variables(self.path, self.wheels) | MORE

    def play(self, playbook: str, *options: str) -> int:
        hosts = {group: {"hosts": {"guest": self.variables}} for group in GROUPS}
        return installation.changed(played(playbook, hosts, *options).stdout)

    def as_after_a_boot(self) -> None:
        """Podman has systemd make this."""
        (self.path / "var/lib/containers/storage/tmp").mkdir(parents=True)

    def as_after_an_image_was_added(self) -> None:
        cache = self.path / "var/lib/containers/cache"
        cache.mkdir()
        (cache / "blob-info-cache-v1.sqlite").touch()

    def system(self) -> dict[str, str]:
        inside: list[str | Path] = [ENTER, self.path, "/", "--", "python3", "-I", "-B", "-"]
        seen: dict[str, str] = json.loads(run(inside, input=WITNESS.read_bytes(), limit=300).stdout)
        return seen


def played(playbook: str, inventory: Mapping[str, object], *options: str) -> Completed:
    place = PLACE / "inventory.json"
    place.write_text(json.dumps(inventory))
    return installation.play(installation.SOURCE / "ansible" / playbook, place, *options)


@pytest.fixture(scope="module")
def tree() -> Iterator[Tree]:
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    path = PLACE / "tree"
    run(["cp", "-a", "--reflink=auto", configured(package_tree("trixie")) / "tree", path], limit=300)
    yield Tree(path, installation.brought(PLACE, installation.python_of(path)))
    shutil.rmtree(PLACE)


def test_on_and_off(tree: Tree) -> None:
    tree.as_after_a_boot()
    before = tree.system()
    assert tree.play("install.yml", "--check") > 0
    assert differences(before, tree.system()) == []
    assert tree.play("install.yml") > 0
    assert CAROL in (tree.path / "etc/subuid").read_text()
    described, faults = features.examine(tree.path / "etc/moorage/features.d")
    assert ([one.gres for one in described], faults) == (["lab"], [])
    assert tree.play("install.yml") == 0
    assert tree.play("install.yml", "--check") == 0
    tree.as_after_an_image_was_added()
    assert tree.play("uninstall.yml") > 0
    assert differences(before, tree.system()) == []
    assert tree.play("uninstall.yml") == 0


def test_a_node_that_fails_ends_a_rollout_node_by_node(tree: Tree) -> None:
    """The next one is not begun with."""
    before = tree.system()
    variables = installation.variables(tree.path, tree.wheels)
    hosts = {"a": variables | {"moorage_python": "/bin/false"}, "b": variables}
    with pytest.raises(CommandFailed) as failed:
        played("install.yml", {"compute": {"hosts": hosts}}, "--extra-vars=moorage_serial=1")
    _, begun = failed.value.stdout.split("PLAY [Moorage on compute nodes]")
    assert "fatal: [a]: FAILED!" in begun
    assert "[b]" not in begun
    assert differences(before, tree.system()) == []
