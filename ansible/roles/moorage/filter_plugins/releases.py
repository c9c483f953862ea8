"""What an environment of Moorage is called: another one for all that makes it another one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from ansible.errors import AnsibleFilterError

WHEEL = "moorage-*.whl"


def release(wheels: str, python: str) -> str:
    """0.1.0-py3.13-1f2e3d4c: the version in the directory of wheels, the Python, and a digest of all the wheels.

    What is being developed keeps its version and changes all the same.
    """
    ours = sorted(Path(wheels).glob(WHEEL)) if wheels else []
    if len(ours) != 1:
        raise AnsibleFilterError(
            f"moorage_wheels={wheels!r} has {len(ours)} wheels of Moorage: name a directory with one,"
            " as `pip wheel --wheel-dir DIRECTORY .` makes it"
        )
    digest = hashlib.sha256()
    for wheel in sorted(Path(wheels).glob("*.whl")):
        digest.update(wheel.name.encode() + b"\0" + hashlib.sha256(wheel.read_bytes()).digest())
    return f"{ours[0].name.split('-')[1]}-py{python}-{digest.hexdigest()[:8]}"


class FilterModule:
    def filters(self) -> dict[str, Callable[..., object]]:
        return {"moorage_release": release}
