"""Give a node one fault after the other, and print what the Prolog does with each.

    prolog_with_faults hooks FAULT...       run the installed Prolog as slurmd would: one JSON line for each
    prolog_with_faults during FAULT ARGV...   run a command while the node has this fault
    prolog_with_faults configure SETTING      change the configuration for good

Runs in a guest as root.
"""

import json
import shutil
import subprocess
import sys
import time

from support.faults.catalogue import GUEST, broken
from support.faults.changes import changed, undone_when_stopped
from support.faults.hooks import EPILOG, PROLOG, RUN, hook


def prolog(name: str) -> dict[str, object]:
    """The Prolog's exit code, its output, its line for the job, and all that it made."""
    with broken(name) as twist:
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
    with broken(name):
        return subprocess.run(argv, check=False).returncode


undone_when_stopped()
match sys.argv[1:]:
    case ["hooks", *names]:
        for name in names:
            print(json.dumps(prolog(name)), flush=True)
    case ["configure", text]:
        GUEST.configuration.write_bytes(changed(GUEST.configuration.read_bytes(), text))
    case ["during", name, *argv]:
        sys.exit(during(name, argv))
