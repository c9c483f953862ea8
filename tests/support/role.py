"""The role's variables and templates, as Ansible would evaluate them on a host with these facts."""

from __future__ import annotations

import json
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLE: Final = Path(__file__).parents[2] / "ansible/roles/moorage"
FACTS: Final = Path(__file__).parents[1] / "unit/facts"
# In the order in which one gives way to another.
VARIABLES: Final = ("defaults/main.yml", "vars/main/places.yml", "vars/main/systems.yml")


class Host:
    """`facts` names a file of what Ansible has gathered."""

    def __init__(self, facts: str, **variables: Any) -> None:  # noqa: ANN401
        known: dict[str, Any] = {}
        for name in VARIABLES:
            known |= read(name)
        known |= {"role_path": str(ROLE), "ansible_managed": "Ansible's"} | variables
        known["ansible_facts"] = json.loads((FACTS / f"{facts}.json").read_text())
        self._templar = Templar(loader=DataLoader(), variables=_trusted(known))

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401
        return self.says(f"{{{{ {name} }}}}")

    def says(self, text: str) -> Any:  # noqa: ANN401
        return self._templar.template(_trusted(text))


def read(name: str) -> Any:  # noqa: ANN401
    return yaml.safe_load((ROLE / name).read_text())


@cache
def filters(name: str) -> ModuleType:
    """One of the role's filter plug-ins."""
    place = ROLE / "filter_plugins" / f"{name}.py"
    spec = spec_from_file_location(f"role_{name}", place)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _trusted(value: Any) -> Any:  # noqa: ANN401
    match value:
        case str():
            return trust_as_template(value)
        case dict():
            return {key: _trusted(one) for key, one in value.items()}
        case list():
            return [_trusted(one) for one in value]
    return value
