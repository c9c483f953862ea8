"""A node that is broken in one way after the other, and what the Prolog makes of it.

    broken_node hooks BREAKAGE...       run the installed Prolog as slurmd would: one JSON line for each
    broken_node during BREAKAGE ARGV...   run a command while this is broken
    broken_node configure SETTING         change the configuration for good

Runs in a guest as root.
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from support.faults.changes import changed, undone_when_stopped
from support.faults.hooks import EPILOG, PROLOG, RUN, hook
from support.faults.on_a_guest import BREAKAGES, CONFIGURATION


def prolog(name: str) -> dict[str, object]:
    """What the Prolog ends with, says, leaves as its word for the job, and makes."""
    with BREAKAGES[name]() as twist:
        since, began = time.time(), time.monotonic()
        code, said = hook(PROLOG, twist)
        seconds = time.monotonic() - began
    made = sorted(entry.name for entry in RUN.iterdir()) if RUN.exists() else []
    refusal = (RUN / "refusal").read_text() if "refusal" in made else ""
    if made == ["refusal", "release"]:
        shutil.rmtree(RUN)
    elif made:
        hook(EPILOG)
    return {
        "name": name, "code": code, "said": said, "refusal": refusal, "made": made,
        "journal": _journal(since) if code else "", "gone": not RUN.exists(), "seconds": seconds,
    }  # fmt: skip


def _journal(since: float) -> str:
    argv = ["journalctl", "--identifier=moorage", "--output=cat", f"--since=@{since:.6f}", "PHASE=prolog"]
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def during(name: str, argv: list[str]) -> int:
    with BREAKAGES[name]():
        return subprocess.run(argv, check=False).returncode


undone_when_stopped()
match sys.argv[1:]:
    case ["hooks", *names]:
        for name in names:
            print(json.dumps(prolog(name)), flush=True)
    case ["configure", text]:
        Path(CONFIGURATION).write_bytes(changed(Path(CONFIGURATION).read_bytes(), text))
    case ["during", name, *argv]:
        sys.exit(during(name, argv))
