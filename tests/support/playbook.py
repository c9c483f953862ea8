"""Plays of the role on this machine itself, by an Ansible that leaves its own files in the place of a test."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from moorage.common.command import Completed, run
from support.role import FACTS

ANSIBLE: Final = Path(__file__).parents[2] / "ansible"
MODULES: Final = Path(__file__).parent / "ansible"
LIMIT: Final = 300.0
# Of all hosts of a playbook, before anything else is done: they are what was recorded of others.
RECORDED: Final = {
    "hosts": "all",
    "gather_facts": False,
    "tasks": [
        {"recorded_facts": {"file": f"{FACTS}/{{{{ recorded }}}}.json"}, "vars": {"ansible_connection": "local"}},
    ],
}


def play(place: Path, one: object, hosts: Mapping[str, dict[str, object]], *options: str) -> Completed:
    """`hosts` of the group compute are all this machine; what they know of themselves comes with their names."""
    return _run(place, [one], {"compute": hosts}, *options)


def check(place: Path, playbook: str, groups: Mapping[str, Mapping[str, str]], *options: str) -> Completed:
    """A playbook in check mode on hosts of which only facts are recorded: host to recording, by group.

    Without facts a host cannot be reached.
    """
    hosts = {group: {name: _recorded(facts) for name, facts in known.items()} for group, known in groups.items()}
    plays = [RECORDED, {"import_playbook": str(ANSIBLE / playbook)}]
    # Facts come from the play itself.
    return _run(place, plays, hosts, "--check", "--diff", *options, ANSIBLE_GATHERING="explicit")


def _recorded(facts: str) -> dict[str, object]:
    """A host without facts is one that ssh cannot reach."""
    away = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    return {"recorded": facts} if facts else {"recorded": "debian-13"} | away


def _run(
    place: Path, plays: object, groups: Mapping[str, Mapping[str, dict[str, object]]], *options: str, **settings: str
) -> Completed:
    here = {
        "ansible_connection": "local",
        "ansible_become": False,
        "ansible_python_interpreter": sys.executable,
        "ansible_remote_tmp": str(place / "tmp"),
    }
    inventory = {
        group: {"hosts": {name: here | known for name, known in hosts.items()}} for group, hosts in groups.items()
    }
    (place / "play.yml").write_text(json.dumps(plays))
    (place / "inventory.json").write_text(json.dumps(inventory))
    own = {
        "ANSIBLE_HOME": str(place / "home"),
        "ANSIBLE_ROLES_PATH": str(ANSIBLE / "roles"),
        "ANSIBLE_LIBRARY": str(MODULES),
    }
    words = ["ansible-playbook", f"--inventory={place}/inventory.json", *options, f"{place}/play.yml"]
    env = dict(os.environ) | own | settings | {"ANSIBLE_NOCOLOR": "1", "LC_ALL": "C.UTF-8"}
    return run(words, env=env, ok=range(256), limit=LIMIT)
