"""The programs in tools/, which have no ending, as modules."""

from __future__ import annotations

import sys
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

TOOLS = Path(__file__).parents[2] / "tools"


@cache
def tool(name: str) -> ModuleType:
    spec = spec_from_loader(f"tools_{name}", SourceFileLoader(f"tools_{name}", str(TOOLS / name)))
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
