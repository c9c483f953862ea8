"""Give a node one fault after the other, and print what `moorage doctor` says of each: one JSON line for each.

    doctor_with_faults FAULT...

Runs in a guest as root, by Moorage's own Python. Where Python is emulated it takes seconds to start, so it starts once:
each look is a child that goes on from here, with the installed code and the command's own words.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import IO

from support.faults.catalogue import broken
from support.faults.changes import undone_when_stopped

MOORAGE = "/opt/moorage/bin/moorage"
QUICKLY = ("--quick",)
# What only the service manager knows, and what only shows in the account of a user.
WORDS: dict[str, tuple[str, ...]] = {
    "sound": (),
    "sound again": (),
    "unit failed": (),
    "unit changed": (),
    "timer stopped": (),
    "no subgids": (*QUICKLY, "--user=alice"),
    "few subuids": (*QUICKLY, "--user=alice"),
}
LIMIT = 120


def look(name: str) -> dict[str, object]:
    """The exit code and the output; or why the node cannot have this fault."""
    try:
        return {"name": name, "trouble": "", **_looked(name)}
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return {"name": name, "trouble": f"{type(error).__name__}: {error}", "code": 0, "said": "", "seconds": 0.0}


def _looked(name: str) -> dict[str, object]:
    words = ["doctor", "--json", *WORDS.get(name, QUICKLY)]
    with tempfile.TemporaryFile("w+") as said:
        with broken(name) as (environment, prefix):
            began = time.monotonic()
            code = _started([*prefix, MOORAGE, *words], said) if prefix else _forked(words, environment, said)
            seconds = time.monotonic() - began
        said.seek(0)
        return {"code": code, "said": said.read(), "seconds": seconds}


def _started(argv: list[str], said: IO[str]) -> int:
    return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=said, timeout=LIMIT, check=False).returncode


def _forked(words: list[str], environment: dict[str, str], said: IO[str]) -> int:
    child = os.fork()
    if not child:
        os.dup2(said.fileno(), 1)
        os.environ.update(environment)
        # The parent undoes the fault: nothing may be unwound here.
        os._exit(_command(words))
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _command(words: list[str]) -> int:
    from moorage.cli import main

    try:
        main(words)
    except SystemExit as ended:
        sys.stdout.flush()
        return ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    return 1


def warm_up() -> None:
    """Import all modules before the first look, so that every look finds them loaded."""
    from moorage.doctor.examine import examine

    examine(os.environ, quick=True)


undone_when_stopped()
warm_up()
for name in sys.argv[1:]:
    print(json.dumps(look(name)), flush=True)
