"""The role on the files of guests, natively: what it would do, what it does, that again, and all of it undone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from moorage.common.command import CommandFailed, Completed, run
from moorage.node import features
from virtual.build import installation
from virtual.build.cache import CACHE
from virtual.build.guest import configured, package_tree
from virtual.build.tools import ENTER
from virtual.rollout import PROGRAM, differences

pytestmark = pytest.mark.long

PLACE = CACHE / "test-role"
GROUPS = ("login", "compute", "controller")
MORE = {
    "moorage_features": {"lab": {"gres": "lab", "devices": ["/dev/lab%"]}},
    "moorage_slurm_conf": "edit",
    "moorage_subids": {"users": ["alice", "carol"], "lowest_uid": 1000, "highest_id": 60000},
}
CAROL = "carol:1879244800:65536"
SLURM_CONF = "etc/slurm/slurm.conf"
# What the role is to add: these are taken out first.
LACKING = (
    "TaskPlugin=task/cgroup,task/affinity",
    "JobAcctGatherType=jobacct_gather/cgroup",
    "Prolog=/etc/slurm/prolog.d/*",
    "Epilog=/etc/slurm/epilog.d/*",
)
ADDED = "\n".join(("# BEGIN Moorage", *LACKING, "# END Moorage", ""))
# Two hosts of one tree have their hooks in different places.
APART = {"moorage_prolog_directory": "/etc/slurm/b/prolog.d", "moorage_epilog_directory": "/etc/slurm/b/epilog.d"}
HOOKED = [
    "/etc/slurm/b",
    "/etc/slurm/b/epilog.d",
    "/etc/slurm/b/epilog.d/50-moorage",
    "/etc/slurm/b/prolog.d",
    "/etc/slurm/b/prolog.d/50-moorage",
    "/etc/slurm/epilog.d/50-moorage",
    "/etc/slurm/prolog.d/50-moorage",
]
# Nothing runs here that could be told of it. /tmp is anybody's, and so no difference.
SCONTROL = "#!/bin/sh\necho $* >>/tmp/scontrol\n"
CONTROL = """\
Package: brought
Version: 1
Architecture: all
Maintainer: nobody <nobody@example.org>
Description: a package that a site has brought along
"""
KIND = "#!/bin/sh\necho kind v0.99.0 go1.25.0 linux/amd64\n"


@dataclass(frozen=True)
class Tree:
    """One host in all groups: the files of a node, where nothing runs."""

    path: Path
    wheels: Path

    @property
    def variables(self) -> dict[str, object]:
        return installation.variables(self.path, self.wheels) | MORE

    def play(self, playbook: str, *options: str, **more: object) -> int:
        hosts = {group: {"hosts": {"guest": self.variables | more}} for group in GROUPS}
        return installation.changed(played(playbook, hosts, *options).stdout)

    @property
    def slurm_conf(self) -> str:
        return (self.path / SLURM_CONF).read_text()

    @property
    def reconfigured(self) -> int:
        """How often Slurm was told to read it."""
        said = self.path / "tmp/scontrol"
        return said.read_text().splitlines().count("reconfigure") if said.exists() else 0

    def says(self, *words: str) -> str:
        return run([ENTER, self.path, "/", "--", *words]).stdout

    def as_after_a_boot(self) -> None:
        """Podman has systemd make this."""
        (self.path / "var/lib/containers/storage/tmp").mkdir(parents=True)

    def with_rules_of_the_sites(self) -> None:
        """For pasta, where ours come as well, and read by its profile already."""
        (self.path / "etc/apparmor.d/local/pasta").write_text("  /site/** r,\n")
        profile = self.path / "etc/apparmor.d/usr.bin.pasta"
        before, brace, after = profile.read_text().rpartition("}")
        profile.write_text(f"{before}  include if exists <local/pasta>\n{brace}{after}")

    def as_after_an_image_was_added(self) -> None:
        cache = self.path / "var/lib/containers/cache"
        cache.mkdir()
        (cache / "blob-info-cache-v1.sqlite").touch()

    def system(self) -> dict[str, str]:
        inside: list[str | Path] = [ENTER, self.path, "/", "--", "python3", "-I", "-B", "-"]
        seen: dict[str, str] = json.loads(run(inside, input=PROGRAM.read_bytes(), limit=300).stdout)
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
    lacking(path / SLURM_CONF)
    program(path / "usr/bin/scontrol", SCONTROL)
    yield Tree(path, installation.brought(PLACE, installation.python_of(path)))
    shutil.rmtree(PLACE)


def lacking(slurm_conf: Path) -> None:
    lines = slurm_conf.read_text().splitlines(keepends=True)
    left = [line for line in lines if line.rstrip() not in LACKING]
    assert len(left) == len(lines) - len(LACKING)
    slurm_conf.write_text("".join(left))


def program(place: Path, script: str) -> None:
    place.unlink(missing_ok=True)
    place.write_text(script)
    place.chmod(0o755)


def test_on_and_off(tree: Tree) -> None:
    tree.as_after_a_boot()
    tree.with_rules_of_the_sites()
    before, slurm_conf = tree.system(), tree.slurm_conf
    assert tree.play("install.yml", "--check") > 0
    assert differences(before, tree.system()) == []
    assert tree.play("install.yml") > 0
    assert (tree.slurm_conf.rstrip(), tree.reconfigured) == ((slurm_conf + ADDED).rstrip(), 1)
    assert CAROL in (tree.path / "etc/subuid").read_text()
    assert "/run/moorage/" in (tree.path / "etc/apparmor.d/local/pasta").read_text()
    described, faults = features.examine(tree.path / "etc/moorage/features.d")
    assert ([one.gres for one in described], faults) == (["lab"], [])
    assert tree.play("install.yml") == 0
    assert tree.play("install.yml", "--check") == 0
    tree.as_after_an_image_was_added()
    assert tree.play("uninstall.yml") > 0
    assert differences(before, tree.system()) == []
    assert tree.reconfigured == 2
    assert tree.play("uninstall.yml") == 0


def test_what_slurm_conf_lacks_is_printed_unless_it_is_to_be_written(tree: Tree) -> None:
    before = tree.slurm_conf
    told = played("install.yml", {"controller": {"hosts": {"guest": tree.variables | {"moorage_slurm_conf": "print"}}}})
    listed = [line.strip().strip('",') for line in told.stdout.splitlines()]
    start = listed.index(f"add to /{SLURM_CONF}, once every compute node has a hook in these directories:")
    assert listed[start + 1 :][: len(LACKING) + 1] == [*LACKING, "then: scontrol reconfigure"]
    assert (installation.changed(told.stdout), tree.slurm_conf) == (0, before)


def test_a_node_that_fails_ends_a_rollout_node_by_node_once_all_have_hooks(tree: Tree) -> None:
    """The next one is not begun with, but slurm.conf may name the hooks by then, as a first run says it should."""
    before = tree.system()
    variables = installation.variables(tree.path, tree.wheels) | {"moorage_slurm_conf": "print"}
    hosts = {"a": variables | {"moorage_python": "/bin/false"}, "b": variables | APART}
    groups = {"compute": {"hosts": hosts}, "controller": {"hosts": {"guest": variables}}}
    with pytest.raises(CommandFailed) as failed:
        played("install.yml", groups, "--extra-vars=moorage_serial=1")
    told, begun = failed.value.stdout.split("PLAY [Moorage on compute nodes]")
    assert "once every compute node has a hook" in told
    assert "fatal: [a]: FAILED!" in begun
    assert "[b]" not in begun
    assert [name.partition(":")[0] for name in differences(before, tree.system())] == HOOKED


def test_without_a_network_all_is_brought_along(tree: Tree) -> None:
    """Last: packages of the distribution stay."""
    directories = {name: PLACE / name for name in ("package_files", "shims", "programs")}
    for directory in directories.values():
        directory.mkdir()
    package(directories["package_files"])
    built = directories["shims"] / f"moorage-{tree.says('sinfo', '--version').split()[-1]}.so"
    built.write_bytes(b"built elsewhere")
    program(directories["programs"] / "kind", KIND)
    brought = {f"moorage_{name}": str(directory) for name, directory in directories.items()}
    more = brought | {"moorage_kind_version": "v0.99.0", "moorage_slurm_conf": "print"}
    assert tree.play("install.yml", **more) > 0
    assert tree.says("dpkg-query", "--show", "brought").split() == ["brought", "1"]
    (shim,) = tree.path.glob("usr/lib/*/slurm-wlm/moorage.so")
    assert shim.read_bytes() == b"built elsewhere"
    assert not (tree.path / "opt/moorage/spank/Makefile").exists()
    assert (tree.path / "usr/local/bin/kind").readlink() == Path("/opt/moorage/programs/kind")
    assert tree.play("install.yml", **more) == 0
    with pytest.raises(CommandFailed) as failed:
        tree.play("install.yml", **(more | {"moorage_kind_version": "v0.98.0"}))
    assert "Ask for their versions" in failed.value.stdout.rpartition("TASK [")[2]


def package(directory: Path) -> None:
    place = PLACE / "brought"
    (place / "DEBIAN").mkdir(parents=True)
    (place / "DEBIAN/control").write_text(CONTROL)
    run(["dpkg-deb", "--root-owner-group", "--build", place, directory / "brought_1_all.deb"])
