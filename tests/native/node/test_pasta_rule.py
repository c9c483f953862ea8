"""What the role writes for pasta, where AppArmor confines it, goes again and takes nothing of the site's along."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.playbook import play

INCLUDE = "  include if exists <local/pasta>\n"
PROFILE = "profile pasta /usr/bin/pasta {\n  include <abstractions/pasta>\n  sub {\n  }\n}\n"
SITES = "  /site/** r,\n"


@dataclass(frozen=True)
class Node:
    place: Path

    @property
    def profile(self) -> Path:
        return self.place / "usr.bin.pasta"

    @property
    def rules(self) -> Path:
        return self.place / "pasta"

    def see_to_it(self, state: str) -> int:
        """How many tasks have changed something."""
        known = {"moorage_pasta_profile": str(self.profile), "moorage_pasta_rules": str(self.rules)}
        tasks = [{"ansible.builtin.include_role": {"name": "moorage", "tasks_from": "apparmor"}}]
        one = {"hosts": "compute", "gather_facts": False, "tasks": tasks}
        done = play(self.place, one, {"n1": {}}, f"--extra-vars={json.dumps(known | {'moorage_state': state})}")
        assert done.code == 0, done.stdout
        (changed,) = re.findall(r"changed=(\d+)", done.stdout)
        return int(changed)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize(
    ("profile", "rules"),
    [(PROFILE, ""), (PROFILE.replace("  sub", f"{INCLUDE}  sub"), SITES)],
    ids=["nothing", "rules that are read"],
)
def test_what_is_the_sites_stays(node: Node, profile: str, rules: str) -> None:
    node.profile.write_text(profile)
    if rules:
        node.rules.write_text(rules)
    assert node.see_to_it("present") == 2
    assert "  /run/moorage/*/user/** rw,\n" in node.rules.read_text()
    assert node.profile.read_text().endswith(f"# BEGIN Moorage\n{INCLUDE}# END Moorage\n}}\n")
    assert node.see_to_it("present") == 0
    assert node.see_to_it("absent") == 2
    assert (node.profile.read_text(), node.rules.read_text()) == (profile, rules)
    assert node.see_to_it("absent") == 0


def test_nothing_is_written_where_nothing_confines_pasta(node: Node) -> None:
    assert node.see_to_it("present") == 0
    assert node.see_to_it("absent") == 0
    assert not node.rules.exists()


def test_a_rule_goes_after_the_profile_as_well(node: Node) -> None:
    node.profile.write_text(PROFILE)
    node.see_to_it("present")
    node.profile.unlink()
    assert node.see_to_it("absent") == 1
    assert node.rules.read_text() == ""
