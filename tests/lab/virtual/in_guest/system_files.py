"""A node's files and units, as JSON: what an installation could have changed, each thing with a description."""

import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# What changes by itself while a node runs, by what else runs there.
LEFT_OUT = {
    "/boot": "nothing writes there",
    "/dev": "the kernel's",
    "/export": "homes of users",
    "/home": "homes of users, on a file server",
    "/proc": "the kernel's",
    "/run": "gone with the boot; what is ours in there is looked at",
    "/scratch": "another file system",
    "/srv/lab": "another file system",
    "/sys": "the kernel's",
    "/tmp": "anybody's",
    "/var/cache": "anybody's",
    "/var/lib/mysql": "the accounting's",
    "/var/lib/nfs": "the file server's",
    "/var/lib/slurm": "Slurm's spool and state",
    "/var/lib/systemd": "systemd's notes of seeds and timers",
    "/var/log": "logs, which stay",
    "/var/tmp": "anybody's",
}
COMPILED = "__pycache__"
OURS_IN_MEMORY = "/run/moorage"
# Here each byte counts, elsewhere only the size, and in /var not even that.
EXACT = ("/etc", "/opt", "/root", "/usr/local")
UNSIZED = "/var"


def main() -> None:
    seen = {str(path): described(path) for path in paths(Path("/"))}
    if os.path.lexists(OURS_IN_MEMORY):
        seen[OURS_IN_MEMORY] = described(Path(OURS_IN_MEMORY))
    if Path("/run/systemd/system").exists():
        seen |= dict(units())
    json.dump(seen, sys.stdout)


def paths(top: Path) -> Iterator[Path]:
    for entry in sorted(os.scandir(top), key=lambda one: one.name):
        if entry.path in LEFT_OUT or entry.name == COMPILED:
            continue
        yield Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from paths(Path(entry.path))


def described(path: Path) -> str:
    status = path.lstat()
    words = [oct(status.st_mode), str(status.st_uid), str(status.st_gid)]
    if stat.S_ISLNK(status.st_mode):
        words.append(str(path.readlink()))
    elif stat.S_ISREG(status.st_mode) and str(path).startswith(EXACT):
        words.append(hashlib.sha256(path.read_bytes()).hexdigest()[:16])
    elif stat.S_ISREG(status.st_mode) and not str(path).startswith(UNSIZED):
        words.append(str(status.st_size))
    return " ".join(words)


def units() -> Iterator[tuple[str, str]]:
    for verb in ("list-unit-files", "list-timers"):
        argv = ["systemctl", verb, "--all", "--plain", "--no-legend"]
        # systemd 252 ends with 1 where there is a link to a unit that is not.
        said = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False).stdout
        if not said:
            raise SystemExit(f"{' '.join(argv)} said nothing")
        for line in said.splitlines():
            words = line.split()
            if verb == "list-timers":
                yield f"timer {words[-2]}", "there"
            elif words[1] not in ("generated", "transient"):
                yield f"unit {words[0]}", words[1]


main()
