"""What a site is shown to write is right: the product takes it as it stands in the pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from moorage.node import features
from moorage.node.config import load, schema
from moorage.node.features import Feature
from support import role
from virtual.guest import guide

ROOT = Path(__file__).parents[2]
PAGES = sorted({*ROOT.glob("docs/**/*.md"), *ROOT.glob("ansible/*.md")})
OPTIONS = role.read("meta/argument_specs.yml")["argument_specs"]["main"]["options"]
SETTINGS = {name.partition(".")[0] for name in schema.settings()}
OF_A_FEATURE = set(schema.settings(Feature))
GROUPS = set(re.findall(r"^  hosts: (\w+)$", (ROOT / "ansible/install.yml").read_text(), re.MULTILINE))
PARAGRAPH = re.compile(r"^\n((?: {4}.+\n)+)", re.MULTILINE)
ROLES = re.compile(r"\bmoorage_[a-z_]+")


@dataclass(frozen=True)
class Shown:
    """Settings that stand in a page, from this line on."""

    page: Path
    line: int
    settings: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def fenced() -> list[Shown]:
    """What is the role's to read."""
    blocks = ((page, block) for page in PAGES for block in guide.blocks(page.read_text()))
    return [Shown(page, one.line, yaml.safe_load(one.text)) for page, one in blocks if one.words[:1] == ("yaml",)]


def indented(names: set[str]) -> list[Shown]:
    """What begins with one of these."""
    begins = re.compile(rf"(?: *#.*\n)* *({'|'.join(names)}):")
    found = ((page, match) for page in PAGES for match in PARAGRAPH.finditer(page.read_text()))
    return [
        Shown(page, match.string[: match.start(1)].count("\n") + 1, yaml.safe_load(match[1]))
        for page, match in found
        if begins.match(match[1])
    ]


def of_the_role(variables: Mapping[str, Any], place: Path) -> list[str]:
    """What of its variables the role, or a node, would not take."""
    told = variables.get("moorage_features", {}).items()
    return [
        *ArgumentSpecValidator(OPTIONS).validate(dict(variables)).error_messages,
        *of_moorage(variables.get("moorage_config", {}), place),
        *chain.from_iterable(of_a_feature(feature, place, name) for name, feature in told),
    ]


def of_moorage(settings: Mapping[str, Any], place: Path) -> list[str]:
    file = place / "moorage.yaml"
    file.write_text(yaml.safe_dump(settings))
    return [str(fault) for fault in load.examine(file)[1]]


def of_a_feature(settings: Mapping[str, Any], place: Path, name: str = "tape") -> list[str]:
    directory = place / name
    directory.mkdir()
    (directory / f"{name}.yaml").write_text(yaml.safe_dump(settings))
    return [str(fault) for fault in features.examine(directory)[1]]


@pytest.mark.parametrize("shown", fenced(), ids=str)
def test_variables_of_the_role(shown: Shown, tmp_path: Path) -> None:
    assert of_the_role(shown.settings, tmp_path) == []


@pytest.mark.parametrize("shown", indented(SETTINGS), ids=str)
def test_settings_of_moorage(shown: Shown, tmp_path: Path) -> None:
    assert of_moorage(shown.settings, tmp_path) == []


@pytest.mark.parametrize("shown", indented(OF_A_FEATURE), ids=str)
def test_a_file_of_features(shown: Shown, tmp_path: Path) -> None:
    assert of_a_feature(shown.settings, tmp_path) == []


def test_there_are_some_of_each() -> None:
    assert [len(found) for found in (fenced(), indented(SETTINGS), indented(OF_A_FEATURE))] == [2, 2, 3]


def test_the_example_of_an_inventory(tmp_path: Path) -> None:
    groups = yaml.safe_load((ROOT / "ansible/inventory.yml.example").read_text())
    assert set(groups) == GROUPS | {"all"}
    for number, group in enumerate(groups.values()):
        place = tmp_path / str(number)
        place.mkdir()
        assert of_the_role(group.get("vars", {}), place) == []


def test_the_inventory_of_the_guide() -> None:
    blocks = guide.blocks((ROOT / "docs/install/by-role.md").read_text())
    (text,) = [block.text for block in blocks if block.words == ("ini",)]
    assert set(re.findall(r"^\[(\w+)\]$", text, re.MULTILINE)) == GROUPS


def test_every_variable_that_a_page_names_is_the_roles() -> None:
    known = set(OPTIONS) | set(ROLES.findall((ROOT / "ansible/install.yml").read_text()))
    # These pages name what Prometheus is told.
    pages = [page for page in PAGES if page.parent.name != "operate" and page.name != "records.md"]
    assert {name for page in pages for name in ROLES.findall(page.read_text())} - known == set()


@pytest.mark.parametrize(
    "wrong",
    [
        {"moorage_wheel": "/srv/wheels"},
        {"moorage_slurm_conf": "write"},
        {"moorage_images": [{"source": "/root/node-image.tar"}]},
        {"moorage_config": {"kubernetes": {"imge": "localhost/kindest/node:v1.36.3"}}},
        {"moorage_config": {"scratch": {"size": "20 G"}}},
        {"moorage_features": {"tape": {"gres": "tape"}}},
    ],
    ids=str,
)
def test_a_mistake_is_noticed(wrong: Mapping[str, Any], tmp_path: Path) -> None:
    assert len(of_the_role(wrong, tmp_path)) == 1
