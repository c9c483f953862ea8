"""Moorage in a guest: put there by its own role and in no other way, natively and before the guest ever boots."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

from moorage import __version__
from moorage.common.command import Completed, run

from . import mirror
from .cache import CACHE, Input, cached
from .payload import CARRIED, IMAGE
from .progress import phase

SOURCE = Path(__file__).resolve().parents[4]
PLAYBOOK = SOURCE / "ansible/install.yml"
# All that ends up in a guest, and what makes the wheel of it.
PARTS = ("ansible", "config", "epilog.d", "plugin", "prolog.d", "share", "LICENSE", "README.md", "pyproject.toml")
PRODUCT = tuple(SOURCE / part for part in PARTS)
ENTER = Path(__file__).with_name("enter-chroot")
BUILD = "import setuptools.build_meta as backend, sys; backend.build_wheel(sys.argv[1])"
LIMIT = 900.0

# What the lab wants otherwise than a site: guests have small disks, and where they are emulated a start takes minutes.
CONFIGURATION: dict[str, dict[str, object]] = {
    "scratch": {"size": "3G"},
    # Slurm's names of the nodes are no names of hosts here.
    "fabric": {"hosts": "/etc/slurm/fabric-hosts"},
    "kubernetes": {"image": IMAGE, "kind": f"{CARRIED}/kind", "patience": 6},
}
INPUTS: tuple[Input, ...] = (json.dumps(CONFIGURATION), Path(__file__), *PRODUCT)

_VERSION = re.compile(r'__version__ = "[^"]+"')
_CHANGED = re.compile(r"^guest +:.*\bchanged=(\d+)", re.MULTILINE)


def install(tree: Path, place: Path) -> None:
    """Run the role's parts install and configure in `tree`; `place` keeps its log."""
    wheels = brought(place, python_of(tree))
    with phase("installing Moorage in the guest by its role"):
        _play(tree, place, wheels)
    shutil.rmtree(wheels)


def brought(place: Path, python: str, release: str = __version__, source: Path = SOURCE) -> Path:
    """A directory of wheels as an administrator brings it to the nodes; ours may call itself another release."""
    wheels = place / "wheels"
    wheels.mkdir(parents=True)
    for wheel in dependencies(python).glob("*.whl"):
        shutil.copy(wheel, wheels)
    _build_wheel(place, wheels, release, source)
    return wheels


def python_of(tree: Path) -> str:
    """3.13, say: what wheels must be for."""
    return (tree / "usr/bin/python3").readlink().name.removeprefix("python")


def dependencies(python: str) -> Path:
    """The wheels of what our package needs, as an admin without a network on his nodes would have them."""
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
    wanted: list[str] = project["dependencies"]

    def build(place: Path) -> None:
        with phase(f"fetching the wheels for Python {python}"):
            pip = [sys.executable, "-m", "pip", "--no-input", "download", "--quiet", "--only-binary=:all:"]
            env = dict(os.environ) | mirror.network_environment()
            run([*pip, f"--python-version={python}", "--dest", place, *wanted], env=env, limit=LIMIT)

    return cached(f"wheels-{python}", wanted, build)


def _build_wheel(place: Path, wheels: Path, release: str, tree: Path) -> None:
    """From a copy, because the build leaves files beside its sources."""
    source = place / "source"
    for part in (tree / name for name in PARTS):
        target = source / part.name
        if part.is_dir():
            shutil.copytree(part, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(part, target)
    package = source / "plugin/moorage/__init__.py"
    package.write_text(_VERSION.sub(f'__version__ = "{release}"', package.read_text()))
    # The same source makes the same wheel, whenever that is.
    env = {"SOURCE_DATE_EPOCH": "1700000000"}
    run([sys.executable, "-c", BUILD, wheels], cwd=source, env=env, limit=LIMIT, log=place.with_suffix(".log"))
    shutil.rmtree(source)


def _play(tree: Path, place: Path, wheels: Path) -> None:
    inventory = place / "inventory.json"
    inventory.write_text(json.dumps({"compute": {"hosts": {"guest": variables(tree, wheels)}}}))
    play(PLAYBOOK, inventory, log=place.with_suffix(".log"))
    shutil.rmtree(tree / "tmp/ansible", ignore_errors=True)
    inventory.unlink()


def variables(tree: Path, wheels: Path) -> dict[str, object]:
    """Of a host that is a tree of files."""
    return {
        "ansible_host": str(tree),
        "ansible_connection": "community.general.chroot",
        "ansible_chroot_exe": str(ENTER),
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_remote_tmp": "/tmp/ansible",
        "ansible_become": False,
        "moorage_parts": ["install", "configure"],
        "moorage_wheels": str(wheels),
        "moorage_config": CONFIGURATION,
    }


def changed(recap: str) -> int:
    """How many tasks of a play have changed something, by its last lines."""
    return sum(int(number) for number in _CHANGED.findall(recap))


def play(playbook: Path, inventory: Path, *options: str, limit: float = LIMIT, log: Path | None = None) -> Completed:
    """Groups for which the inventory has no host are passed over."""
    quiet = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_HOST_PATTERN_MISMATCH": "ignore", "LC_ALL": "C.UTF-8"}
    return run(
        ["ansible-playbook", f"--inventory={inventory}", *options, playbook],
        env=dict(os.environ) | {"ANSIBLE_HOME": str(CACHE / "ansible")} | quiet,
        limit=limit,
        log=log,
    )
