"""Plays of the role on this machine itself, by an Ansible that leaves its own files in the place of a test."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from moorage.common.command import Completed, run

ANSIBLE: Final = Path(__file__).parents[2] / "ansible"
LIMIT: Final = 300.0


def play(place: Path, one: object, hosts: Mapping[str, dict[str, object]], *options: str) -> Completed:
    """`hosts` of the group compute are all this machine; what they know of themselves comes with their names."""
    here = {
        "ansible_connection": "local",
        "ansible_become": False,
        "ansible_python_interpreter": sys.executable,
        "ansible_remote_tmp": str(place / "tmp"),
    }
    inventory = {"compute": {"hosts": {name: here | known for name, known in hosts.items()}}}
    (place / "play.yml").write_text(json.dumps([one]))
    (place / "inventory.json").write_text(json.dumps(inventory))
    own = {"ANSIBLE_HOME": str(place / "home"), "ANSIBLE_ROLES_PATH": str(ANSIBLE / "roles")}
    words = ["ansible-playbook", f"--inventory={place}/inventory.json", *options, f"{place}/play.yml"]
    env = dict(os.environ) | own | {"ANSIBLE_NOCOLOR": "1", "LC_ALL": "C.UTF-8"}
    return run(words, env=env, ok=range(256), limit=LIMIT)
