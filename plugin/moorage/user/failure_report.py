"""What a user, and whoever helps him, needs to see of a start that failed: one file, his alone, without secrets."""

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
ROOTS: Final = "root's parts"
LAST_WORDS: Final = 16384

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SECRETS: Final = (
    re.compile(r"-----BEGIN [^-]*PRIVATE KEY[^-]*-----.*?(-----END [^-]*PRIVATE KEY[^-]*-----|\Z)", re.DOTALL),
    # And what is public in it, which nobody misses here; LS0t... is how either begins when it is written in base64.
    re.compile(r"-----BEGIN CERTIFICATE-----.*?(-----END CERTIFICATE-----|\Z)", re.DOTALL),
    re.compile(r"\bLS0tLS1CRUdJTi[A-Za-z0-9+/=]+"),
    # kubeadm's bootstrap tokens, in ours of which there is a digit: names have no other form. A full stop may follow.
    re.compile(r"(?<![\w.])(?=[a-z.]{0,22}[0-9])[a-z0-9]{6}\.[a-z0-9]{16}(?!\w|\.\w)"),
    # user:password@host
    re.compile(r"(?<=://)[^/\s@]+(?=@)"),
    re.compile(r"(?i)(?<=bearer )\S+|(?<=basic )[A-Za-z0-9+/=]{8,}"),
    # eyJ is how a JSON web token begins.
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}(\.[A-Za-z0-9_-]+)*"),
    # A name that says so, and its value: --password x, TOKEN=x, "auth": "x", client-key-data: x; also in a string that
    # holds JSON. What is bounded here keeps the search from taking the square of a long line's length.
    re.compile(
        r"(?i)(?P<name>(?:passw(?:or)?d|passphrase|secret|token|\bauth\b|api[_-]?key|key-data|credentials?)[\w-]{0,40}\\{0,8}[\"']?"
        r"\s{0,4}[=:]\s{0,4}|--?(?:[\w-]{0,20}(?:password|passphrase|secret|token|key)|creds)\s{1,4})"
        r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;}]+)"
    ),
)


def roots_words(run: Path) -> str:
    """What root has said of the job on this node: its user may not read the journal."""
    try:
        return end((run / LOG).read_text(errors="replace"), LAST_WORDS)
    except OSError:
        return ""


def write(directories: Iterable[Path], name: str, parts: Mapping[str, str]) -> Path | None:
    """A new file in the first of the directories that takes one; None if none does."""
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
                # No room, as his quota has it.
                path.unlink(missing_ok=True)
                break
            return path
    return None


def text_of(parts: Mapping[str, str]) -> str:
    """Each part below its title, at its end if it is too long: what went wrong is said last."""
    each = MOST // max(1, len(parts))
    return "\n".join(f"==== {title}\n{end(part, each).rstrip()}\n" for title, part in parts.items())


def end(text: str, most: int) -> str:
    """What was said last, without secrets: looked for before it is cut, for half of one may look like nothing."""
    return without_secrets(text)[-most:]


def without_secrets(text: str) -> str:
    for secret in _SECRETS[:-1]:
        text = secret.sub(HIDDEN, text)
    return _SECRETS[-1].sub(lambda found: found["name"] + HIDDEN, text)
