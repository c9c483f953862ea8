"""Stands in for srun: starts the tasks of a step here, each in a cgroup given to it, and carries their streams.

python srun.py CGROUP... -- OPTION... PROGRAM ARGUMENT...
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from itertools import dropwhile
from pathlib import Path


def main(words: list[str]) -> int:
    end = words.index("--")
    cgroups, options = words[:end], [word for word in words[end:] if word.startswith("--")]
    program = list(dropwhile(lambda word: word.startswith("--"), words[end:]))
    assert f"--ntasks={len(cgroups)}" in options, f"a step of {len(cgroups)} tasks was expected, but {options}"
    tasks = [start(program, number, Path(cgroup)) for number, cgroup in enumerate(cgroups)]
    carry(tasks)
    return max(abs(task.wait()) for task in tasks)


def start(program: list[str], number: int, cgroup: Path) -> subprocess.Popen[bytes]:
    names = {
        "SLURM_PROCID": str(number),
        "SLURM_LOCALID": str(number),
        "SLURM_STEP_ID": "0",
        "SLURMD_NODENAME": "node1",
    }

    def enter() -> None:
        (cgroup / "cgroup.procs").write_text("0")

    return subprocess.Popen(
        program,
        env={**os.environ, **names},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
        preexec_fn=enter,
    )


def carry(tasks: list[subprocess.Popen[bytes]]) -> None:
    """To every task what is said to us, and on from each what it says, until all have ended."""
    events = selectors.DefaultSelector()
    events.register(0, selectors.EVENT_READ, tasks)
    for task in tasks:
        assert task.stdout
        events.register(task.stdout, selectors.EVENT_READ, None)
    while len(events.get_map()) > (0 in events.get_map()):
        for key, _ in events.select():
            chunk = os.read(key.fd, 1 << 16)
            if not chunk:
                events.unregister(key.fileobj)
            if key.data is None:
                os.write(1, chunk)
            else:
                say(tasks, chunk)


def say(tasks: list[subprocess.Popen[bytes]], chunk: bytes) -> None:
    for task in tasks:
        assert task.stdin
        try:
            if chunk:
                os.write(task.stdin.fileno(), chunk)
            else:
                task.stdin.close()
        except BrokenPipeError:
            continue


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
