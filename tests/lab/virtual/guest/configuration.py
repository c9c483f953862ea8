"""The moorage.yaml of a running guest."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ..build.installation import CONFIGURATION
from .shell import Shell

PLACE = "/etc/moorage/moorage.yaml"


def change(shell: Shell, section: str, settings: Mapping[str, object]) -> None:
    """Change these settings of a section; the others stay as in all guests."""
    changed = CONFIGURATION | {section: {**CONFIGURATION.get(section, {}), **settings}}
    # YAML holds JSON.
    shell.run(["sh", "-euc", 'cat >"$1"', "sh", PLACE], input=json.dumps(changed).encode())
