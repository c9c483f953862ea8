"""Where packages come from: always what this machine is configured to use, or what the user sets."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from moorage.common.command import run
from moorage.common.errors import UserError

MIRROR_SETTING = "MOORAGE_DEBIAN_MIRROR"
GO_VARIABLES = ("GOPROXY", "GOSUMDB", "GONOSUMDB", "GONOSUMCHECK", "GOPRIVATE", "GOINSECURE")
PASSED_ON = (
    "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_DEFAULT_TIMEOUT",
)  # fmt: skip


def debian_mirror() -> str:
    """The Debian archive that apt uses here; machines of another distribution name one in a setting."""
    chosen = os.environ.get(MIRROR_SETTING) or _first_debian(_index_targets())
    if not chosen:
        raise UserError(
            "apt on this machine has no Debian archive configured",
            f"set {MIRROR_SETTING} to the address of one that carries Debian 13",
        )
    return chosen.rstrip("/")


def _index_targets() -> str:
    listing = "$(ORIGIN)|$(LABEL)|$(REPO_URI)"
    return run(["apt-get", "indextargets", "--format", listing, "Created-By: Packages"]).stdout


def _first_debian(targets: str) -> str | None:
    rows = (line.split("|") for line in targets.splitlines())
    return next((uri for origin, label, uri in rows if origin == label == "Debian"), None)


def apt_options() -> list[str]:
    """How apt reaches its archives here (proxies, retries), in the form `apt-config dump` prints."""
    dump = run(["apt-config", "dump", "--format", "%F %v%n", "Acquire"]).stdout.splitlines()
    wanted = ("Acquire::http::Proxy", "Acquire::https::Proxy", "Acquire::Retries")
    return [
        f'{name} "{value}"' for name, _, value in (line.partition(" ") for line in dump) if name in wanted and value
    ]


def network_environment() -> dict[str, str]:
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ}


def go_environment() -> dict[str, str]:
    """The Go module proxy this machine uses; Go's own default where it has none."""
    configured = {name: os.environ[name] for name in GO_VARIABLES if name in os.environ}
    go = shutil.which("go")
    if go:
        known = json.loads(run([go, "env", "-json", *GO_VARIABLES], env={"HOME": str(Path.home())} | configured).stdout)
        configured = {name: value for name, value in known.items() if value}
    return network_environment() | configured
