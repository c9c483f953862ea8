"""Print every process of this machine as one JSON line: who it is, whose, and in which cgroup.

Runs in a guest with nothing but Python, and shares no code with what it watches.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def processes() -> Iterator[dict[str, int | str]]:
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            # One that has just ended is not there.
            with suppress(FileNotFoundError, ProcessLookupError):
                yield seen(place)


def seen(place: Path) -> dict[str, int | str]:
    stat = (place / "stat").read_text()
    status = dict(line.split(":\t", 1) for line in (place / "status").read_text().splitlines() if ":\t" in line)
    return {
        "pid": int(place.name),
        "started": int(stat.rpartition(")")[2].split()[19]),
        "uid": int(status["Uid"].split()[0]),
        "cgroup": (place / "cgroup").read_text().strip().rpartition("::")[2],
        "name": status["Name"].strip(),
    }


for process in processes():
    print(json.dumps(process))
