"""A real containerd for a moment: it makes the images that a node image brings along, and says what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.engine import CACHE, Engine

# As the first program that finds both of them: those that the lab builds, and Debian's, which are older.
PLACES: Final = (("program-containerd-[0-9a-f]*", "program-ctr-*"), ("tools-*/usr/bin", "tools-*/usr/bin"))
CONFIGURATION: Final = 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
RUN: Final = """\
set -e
containerd=$1 ctr=$2 root=$3 kind=$4
shift 4
place=$(mktemp -d)
cd "$place"
mkdir -p /kind files
[ -z "$kind" ] || mount --bind "$kind" /kind
printf %s "$CONFIGURATION" >config.toml
"$containerd" --log-level fatal --config config.toml --root "$root" --state "$place/state" --address "$place/socket" &
daemon=$!
trap 'kill $daemon; wait $daemon || true' EXIT
ctr() { "$ctr" --address "$place/socket" --namespace k8s.io "$@"; }
attempt=0
until ctr version >/dev/null 2>&1; do
    attempt=$((attempt + 1))
    [ $attempt -lt 300 ] || exit 9
    sleep 0.1
done
"""
IMPORT: Final = 'for archive; do ctr images import --all-platforms $OPTIONS "$archive" >/dev/null; done\n'
SHOW: Final = """\
for image; do
    mkdir -p "files/$image"
    ctr images mount "$image" "files/$image" >/dev/null
    (
        cd "files/$image"
        find . -printf "$image %P %y %m %U:%G %l\\n"
        find . -type f -exec sha256sum {} + | sed "s|^|$image |"
    )
done
"""
KNOWN: Final = """\
ctr images list --quiet
ctr snapshots list | sort
ctr content prune references
ctr snapshots list | grep -c Committed
"""


@dataclass(frozen=True)
class Containerd:
    engine: Engine
    daemon: Path
    client: Path

    def fill(self, root: Path, archives: Sequence[Path], *, unpack: bool) -> None:
        """As kind's own build does it, or with every layer unpacked."""
        root.mkdir()
        self._run(IMPORT, root, None, archives, "" if unpack else "--no-unpack")

    def show(self, root: Path, images: Sequence[str], kind: Path | None = None) -> list[str]:
        """All files of these images, as a container would have them."""
        return sorted(self._run(SHOW, root, kind, images))

    def known(self, root: Path, kind: Path | None = None) -> list[str]:
        """Images and snapshots, also after everything was cleared away that nothing points to."""
        return self._run(KNOWN, root, kind, ())

    def _run(
        self, script: str, root: Path, kind: Path | None, words: Sequence[str | Path], options: str = ""
    ) -> list[str]:
        argv = ("sh", "-c", RUN + script, "sh", self.daemon, self.client, root, kind or "", *words)
        return self.engine.run(*argv, env={"CONFIGURATION": CONFIGURATION, "OPTIONS": options}).stdout.splitlines()


def found(engine: Engine) -> list[Containerd]:
    """Every one that there is."""
    pairs = ((_first(daemon, "containerd"), _first(client, "ctr")) for daemon, client in PLACES)
    return [Containerd(engine, daemon, client) for daemon, client in pairs if daemon and client]


def _first(pattern: str, name: str) -> Path | None:
    return next((place / name for place in sorted(CACHE.glob(pattern)) if (place / name).exists()), None)
