"""The report of a failure: one file with all that may explain it, for the user alone and without secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from moorage.common.job import LOG

MOST: Final = 1 << 20
MOST_NAMES: Final = 100
HIDDEN: Final = "(removed)"
# The title of the log of root's parts.
ROOT_LOG: Final = "root's parts"
LOG_END: Final = 16384

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SECRETS: Final = (
    re.compile(r"-----BEGIN [^-]*PRIVATE KEY[^-]*-----.*?(-----END [^-]*PRIVATE KEY[^-]*-----|\Z)", re.DOTALL),
    # A certificate is public, but of no use here. In base64, keys and certificates begin with LS0t.
    re.compile(r"-----BEGIN CERTIFICATE-----.*?(-----END CERTIFICATE-----|\Z)", re.DOTALL),
    re.compile(r"\bLS0tLS1CRUdJTi[A-Za-z0-9+/=]+"),
    # kubeadm's bootstrap tokens. Ours contain a digit, because names can have the same form. A full stop may follow.
    re.compile(r"(?<![\w.])(?=[a-z.]{0,22}[0-9])[a-z0-9]{6}\.[a-z0-9]{16}(?!\w|\.\w)"),
    # user:password@host
    re.compile(r"(?<=://)[^/\s@]+(?=@)"),
    re.compile(r"(?i)(?<=bearer )\S+|(?<=basic )[A-Za-z0-9+/=]{8,}"),
    # A JSON web token begins with eyJ.
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}(\.[A-Za-z0-9_-]+)*"),
    # A name that stands for a secret, and its value: --password x, TOKEN=x, "auth": "x", client-key-data: x; also in a
    # string that holds JSON. Without the bounds, a search would take the square of a line's length.
    re.compile(
        r"(?i)(?P<name>(?:passw(?:or)?d|passphrase|secret|token|\bauth\b|api[_-]?key|key-data|credentials?)[\w-]{0,40}\\{0,8}[\"']?"
        r"\s{0,4}[=:]\s{0,4}|--?(?:[\w-]{0,20}(?:password|passphrase|secret|token|key)|creds)\s{1,4})"
        r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;}]+)"
    ),
)


def root_log(run: Path) -> str:
    """The log of root's parts for this job on this node; the user may not read the journal."""
    try:
        return end((run / LOG).read_text(errors="replace"), LOG_END)
    except OSError:
        return ""


def write(directories: Iterable[Path], name: str, parts: Mapping[str, str]) -> Path | None:
    """Write a new file into the first directory that takes it; None if none does."""
    text = text_of(parts).encode(errors="backslashreplace")
    for directory in directories:
        for number in range(MOST_NAMES):
            path = directory / (f"{name}.{number}.log" if number else f"{name}.log")
            try:
                descriptor = os.open(path, _NEW, 0o600)
            except FileExistsError:
                continue
            except OSError:
                break
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(text)
            except OSError:
                # There is no room, in the user's quota for example.
                path.unlink(missing_ok=True)
                break
            return path
    return None


def text_of(parts: Mapping[str, str]) -> str:
    """The parts below their titles; of a part that is too long, the end, because errors come last."""
    each = MOST // max(1, len(parts))
    return "\n".join(f"==== {title}\n{end(part, each).rstrip()}\n" for title, part in parts.items())


def end(text: str, most: int) -> str:
    """The end of the text, without secrets. They are removed before the cut: half a secret is not recognized."""
    return without_secrets(text)[-most:]


def without_secrets(text: str) -> str:
    for secret in _SECRETS[:-1]:
        text = secret.sub(HIDDEN, text)
    return _SECRETS[-1].sub(lambda found: found["name"] + HIDDEN, text)
