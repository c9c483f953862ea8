"""What a job may open is its cgroup's to say, and what it is shown agrees with that."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common.hardware import Hardware, Resource
from support import devices
from support.cgroups import leaf, slurm_scope

NULL, ZERO, FULL = "/dev/null", "/dev/zero", "/dev/full"
MINOR = {NULL: 3, ZERO: 5, FULL: 7}
UNITS = tuple((one,) for one in MINOR)


@pytest.fixture
def task(fresh_namespaces: None) -> Iterator[Path]:
    with slurm_scope() as scope:
        yield leaf(scope, "job_17", "step_0", "task_0")


def seen(cgroup: Path) -> tuple[list[str], list[str]]:
    """What a process in there is shown, and what it really opens."""
    reader, writer = os.pipe()
    if not (child := os.fork()):
        (cgroup / "cgroup.procs").write_text(str(os.getpid()))
        found = Hardware(tuple(MINOR), resources=(Resource("lab", UNITS, Hardware()),)).openable()
        shown = found.devices if found.given == {"lab": len(found.devices)} else ()
        os.write(writer, json.dumps([shown, [one for one in MINOR if opens(one)]]).encode())
        os._exit(0)
    os.close(writer)
    assert os.waitpid(child, 0)[1] == 0
    with os.fdopen(reader) as told:
        shown, opened = json.load(told)
    return shown, opened


def opens(device: str) -> bool:
    try:
        os.close(os.open(device, os.O_RDWR))
    except PermissionError:
        return False
    return True


@pytest.mark.parametrize("device", MINOR)
def test_a_job_is_shown_the_devices_that_it_may_open(task: Path, device: str) -> None:
    assert seen(task) == (list(MINOR), list(MINOR))
    devices.only(task.parent.parent, MINOR[device])
    assert seen(task) == ([device], [device])
