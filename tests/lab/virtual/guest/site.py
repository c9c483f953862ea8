"""An administrator's own machine: runs the role over ssh on running guests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from moorage import __version__

from ..build import installation
from ..build.payload import CARRIED, IMAGE
from .machine import Machine

# An emulated guest takes ten seconds and more for each task.
LIMIT = 3600.0
PYTHON = "import sys; print('{}.{}'.format(*sys.version_info))"


@dataclass(frozen=True)
class Site:
    """`directory` has the files that the role needs, and the log of each play; `source` is the product's tree."""

    directory: Path
    machine: Machine
    # That the machine is in.
    groups: tuple[str, ...] = ("compute", "controller")
    source: Path = installation.SOURCE

    def install(self, release: str = __version__, **more: object) -> int:
        """How many tasks have changed something; `more` is what the site says besides."""
        return self._play("install", release, more)

    def uninstall(self) -> int:
        return self._play("uninstall", __version__, {})

    def _play(self, playbook: str, release: str, more: Mapping[str, object]) -> int:
        inventory = self._inventory(self._wheels(release), more)
        log = self.directory / f"{playbook}-{len(list(self.directory.glob('*.log')))}.log"
        installation.play(self.source / f"ansible/{playbook}.yml", inventory, limit=LIMIT, log=log)
        return installation.changed(log.read_text())

    def _wheels(self, release: str) -> Path:
        place = self.directory / release
        if place.exists():
            return place / "wheels"
        return installation.brought(place, self.machine.shell.output("python3", "-c", PYTHON), release, self.source)

    def _inventory(self, wheels: Path, more: Mapping[str, object]) -> Path:
        ssh = self.directory / "ssh"
        ssh.write_text(self.machine.shell.configuration)
        variables = {
            "ansible_host": "127.0.0.1",
            "ansible_user": "root",
            # The lab's kept connection: a new one costs seconds.
            "ansible_ssh_args": f"-F {ssh}",
            "ansible_ssh_pipelining": True,
            "ansible_become": False,
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_remote_tmp": "/tmp/ansible",
            "moorage_wheels": str(wheels),
            "moorage_config": installation.CONFIGURATION,
            "moorage_images": [{"source": f"{CARRIED}/node-image.tar", "name": IMAGE}],
            **more,
        }
        file = self.directory / "inventory.json"
        file.write_text(json.dumps({group: {"hosts": {"guest": variables}} for group in self.groups}))
        return file
