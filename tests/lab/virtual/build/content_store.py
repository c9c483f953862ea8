"""Images put into containerd's store at build time, packed as they are, by a containerd that runs here for a moment."""

from __future__ import annotations

import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moorage.common.errors import MoorageError

from .tools import PATH, Tools, inside

START_LIMIT = 60.0
STOP_LIMIT = 30.0
# What keeps the CRI plug-in from removing images that the node was made with.
PINNED = "io.cri-containerd.pinned=pinned"
CONFIGURATION = """\
version = 4
disabled_plugins = ["io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"]
"""


def import_images(tools: Tools, containerd: Path, ctr: Path, archive: Path, store: Path) -> None:
    """Fill `store`, the directory that will be containerd's root, with the images of `archive`."""
    store.mkdir(parents=True)
    with running(tools, containerd, store) as address:
        client = [str(ctr), "--address", str(address), "--namespace", "k8s.io"]
        options = ["--label", PINNED, "--all-platforms", "--no-unpack", "--digests"]
        tools.run([*client, "images", "import", *options, str(archive)], binds=[address.parent, archive.parent])


@contextmanager
def running(tools: Tools, containerd: Path, store: Path) -> Iterator[Path]:
    """A containerd with its content in `store`; yields its socket."""
    with tempfile.TemporaryDirectory() as scratch, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        place = Path(scratch)
        ready.bind(str(place / "ready"))
        ready.settimeout(START_LIMIT)
        (place / "config.toml").write_text(CONFIGURATION)
        command = [
            str(containerd), "--log-level", "error", "--config", str(place / "config.toml"),
            "--root", str(store), "--state", str(place / "state"), "--address", str(place / "socket"),
        ]  # fmt: skip
        process = subprocess.Popen(
            inside(tools.root, command, binds=[place, store]),
            env={"PATH": PATH, "NOTIFY_SOCKET": str(place / "ready")}, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            await_start(ready)
            yield place / "socket"
        finally:
            process.terminate()
            process.wait(STOP_LIMIT)


def await_start(ready: socket.socket) -> None:
    try:
        while b"READY=1" not in ready.recv(4096).split(b"\n"):
            pass
    except TimeoutError:
        raise MoorageError(f"containerd did not start within {START_LIMIT:.0f} s") from None
