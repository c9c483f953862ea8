"""Run many commands at once: a list of commands on stdin, a list of their ends on stdout.

Runs in a guest, where starting Python once costs what dozens of commands cost.
"""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

AT_ONCE = 2
LIMIT = 240


def attempt(argv: list[str]) -> dict[str, str | int | float]:
    began = time.monotonic()
    ended = subprocess.run(
        argv, capture_output=True, text=True, errors="backslashreplace", stdin=subprocess.DEVNULL,
        timeout=LIMIT, check=False,
    )  # fmt: skip
    seconds = time.monotonic() - began
    return {"code": ended.returncode, "stdout": ended.stdout, "stderr": ended.stderr, "seconds": seconds}


with ThreadPoolExecutor(AT_ONCE) as pool:
    print(json.dumps(list(pool.map(attempt, json.load(sys.stdin)))))
