"""The pages about installing, typed as they stand: from a bare node to a first job, to a new version, and off again."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from moorage.common.command import CommandFailed, run
from support.figures import Figures
from virtual.build.binaries import binaries
from virtual.build.cache import CACHE
from virtual.build.installation import CONFIGURATION, SOURCE
from virtual.build.payload import CARRIED, IMAGE
from virtual.guest import builds, guide
from virtual.guest.guide import Block
from virtual.guest.machine import Machine
from virtual.guest.record import Request
from virtual.jobs.cluster_job import START_LIMIT

pytestmark = pytest.mark.long

DIRECTORY = CACHE / "test-guide"
PORT = 22900
SUITE = "trixie"
USER = "alice"
OFF = "Uninstall"
# kind comes with the role, as in the guide, and is found where that puts it.
CLUSTERS = {name: value for name, value in CONFIGURATION["kubernetes"].items() if name != "kind"}
SITE = {
    "moorage_config": CONFIGURATION | {"kubernetes": CLUSTERS},
    "moorage_images": [{"source": f"{CARRIED}/node-image.tar", "name": IMAGE}],
}
# The one node is all of a site.
OTHER_GROUPS = ("login", "controller")
OUTPUTS = "for output in ~/*.out; do [ ! -e $output ] || tail --lines=200 $output; done"
PYTHON = "import sys; print('{}.{}'.format(*sys.version_info))"
# Compiling, unpacking and Python take their time under emulation.
LIMIT = 2700.0
NO_SOURCE = shutil.ignore_patterns(".git", "__pycache__", "*.egg-info", "build", "tests")


def test_the_guide_leads_where_it_says(tmp_path: Path, figures: Figures) -> None:
    """The guests of the lab have Moorage already, so the last section comes first as well."""
    steps = [step for page in guide.PAGES for step in guide.steps((SOURCE / page).read_text())]
    builds.build(SUITE)
    with builds.own(DIRECTORY, Request(1, SUITE, PORT)) as lab:
        release = lab.first.shell.output("python3", "-c", PYTHON)
        reader = Reader(lab.first, tmp_path / "moorage", release)
        reader.prepare()
        reader.type(step for step in steps if step.section == OFF)
        began = time.monotonic()
        reader.type(steps)
    figures.add(
        f"{len(steps)} blocks of the pages about installing, typed as they stand", time.monotonic() - began, "s"
    )


@dataclass(frozen=True)
class Reader:
    """Who has a checkout of the project, one node, and a guide."""

    node: Machine
    checkout: Path
    python: str

    def prepare(self) -> None:
        """What the guide has written before its first command: an inventory, and the site's settings."""
        shutil.copytree(SOURCE, self.checkout, ignore=NO_SOURCE)
        ssh = self.checkout.with_suffix(".ssh")
        ssh.write_text(self.node.shell.configuration)
        variables = {
            "ansible_host": "127.0.0.1",
            "ansible_user": "root",
            "ansible_become": "false",
            "ansible_ssh_common_args": f"'-F {ssh}'",
            "ansible_ssh_pipelining": "true",
            "ansible_python_interpreter": "/usr/bin/python3",
        }
        words = [self.node.name, *(f"{name}={value}" for name, value in variables.items())]
        groups = [f"[compute]\n{' '.join(words)}\n", *(f"[{group}]\n{self.node.name}\n" for group in OTHER_GROUPS)]
        (self.checkout / "inventory").write_text("".join(groups))
        # YAML holds JSON.
        (self.checkout / "site.yml").write_text(json.dumps(SITE | {"moorage_programs": str(self._programs())}))

    def _programs(self) -> Path:
        directory = self.checkout.with_suffix(".programs")
        directory.mkdir()
        shutil.copy(binaries().path("kind"), directory)
        return directory

    def type(self, steps: Iterable[Block]) -> None:
        people: dict[str, Callable[[Block], object]] = {
            "admin": self._as_admin,
            "node": lambda step: self._on_the_node(step, "root"),
            "user": lambda step: self._on_the_node(step, USER),
        }
        for step in steps:
            print(f"{step.section}, line {step.line}, {step.typed_by}:\n{step.text}", flush=True)
            people[step.typed_by](step)

    @property
    def _settings(self) -> dict[str, str]:
        """The names that the guide leaves to its reader."""
        return {"PYTHON": self.python, "SOMEBODY": USER}

    def _as_admin(self, step: Block) -> None:
        environment = dict(os.environ) | {"ANSIBLE_HOME": str(CACHE / "ansible"), "ANSIBLE_NOCOLOR": "1"}
        log = self.checkout.with_suffix(".log")
        run(step.command(self._settings), cwd=self.checkout, env=environment, limit=LIMIT, log=log)

    def _on_the_node(self, step: Block, user: str) -> None:
        try:
            self.node.shell.run(step.command(self._settings), user=user, limit=START_LIMIT)
        except CommandFailed:
            # A job's own words are in a file, which the commands after it would have shown.
            print(self.node.shell.output("sh", "-c", OUTPUTS, user=USER))
            raise
