"""The description of a job, as its Prolog writes it for a job that asks for little."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from moorage.common.description import Kubernetes, Mooring, Waits
from moorage.common.podman import Places
from moorage.common.spec import Spec


def described(**changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """All fields of job 17 on n1, with these changes; what is an object is changed in part."""
    mooring = Mooring(
        job=17,
        restart=0,
        node="n1",
        spec=Spec(enabled=True, cluster="none"),
        podman=Path("/usr/bin/podman"),
        uplink="pasta",
        srun=None,
        waits=Waits(),
        kubernetes=Kubernetes(),
        places=Places(Path("/run/moorage/17")),
    )
    fields: dict[str, Any] = json.loads(json.dumps(mooring.as_dict()))
    for name, value in changes.items():
        fields[name] = fields[name] | value if isinstance(fields.get(name), dict) else value
    return fields
