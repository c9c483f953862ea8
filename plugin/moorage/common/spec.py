"""What a user asks for with --k8s=SPEC."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from moorage.common.errors import UsageError

MOST_BYTES: Final = 1024
LONGEST_SHOWN: Final = 40

CLUSTERS: Final = ("kind", "none")
UPLINKS: Final = ("pasta", "slirp4netns", "kernel", "none")
REQUIRED: Final = ("all", "any")
KEYS: Final = ("cluster", "nodes", "require", "uplink", "version")

_EXAMPLE: Final = "--k8s=cluster=none,uplink=pasta"
_EXAMPLES: Final = {"nodes": ("2",), "version": ("1.36", "1.36.3")}
_VERSION: Final = re.compile(r"1\.(0|[1-9][0-9]{0,2})(\.(0|[1-9][0-9]{0,2}))?")
_NODES: Final = re.compile(r"[1-9][0-9]{0,3}")
_OTHER_WORDS: Final = {"0": ("no", "off", "false", "never"), "1": ("yes", "on", "true", "k8s", "kubernetes")}
HOOK: Final = "SPANK_K8S"
_OPTION: Final = "_SLURM_SPANK_OPTION_moorage_k8s"
# Slurm puts these into a job's environment, and each srun and sbatch in the job reads them there (24.11).
INHERITED: Final = frozenset({"SLURM_SPANK_K8S", f"SLURM_SPANK_{_OPTION}", _OPTION, HOOK, f"SPANK_{_OPTION}"})


@dataclass(frozen=True)
class Spec:
    """The parsed SPEC: `cluster` is "kind" or "none". The site chooses what is None.

    The first `nodes` of the job's nodes take part, or all. With `require` "any" the job goes on without some of them.
    """

    enabled: bool
    cluster: str
    version: str | None = None
    uplink: str | None = None
    nodes: int | None = None
    require: str = "all"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def parse(text: str) -> Spec:
    """Parse SPEC as the user wrote it; a UsageError says in one line what is wrong and what to write."""
    _check_characters(text)
    if text == "0":
        return Spec(enabled=False, cluster="none")
    wishes = {} if text == "1" else _wishes(text)
    wishes.setdefault("cluster", "kind")
    for key, value in wishes.items():
        _check_value(key, value)
    if wishes["cluster"] == "none" and "version" in wishes:
        raise _wrong("version chooses a Kubernetes and cluster=none wants none", "keep one of them", code="M-SPEC-1")
    return _spec(**wishes)


def _spec(cluster: str, nodes: str | None = None, require: str = "all", **chosen: str) -> Spec:
    return Spec(True, cluster, nodes=int(nodes) if nodes else None, require=require, **chosen)


def _check_characters(text: str) -> None:
    if not text:
        raise _wrong("nothing follows the equals sign", f"write 0, 1 or key=value, like {_EXAMPLE}", code="M-SPEC-2")
    for position, character in enumerate(text, 1):
        if not "!" <= character <= "~":
            what = "a space" if character == " " else "not printable ASCII"
            raise _wrong(f"character {position} is {what}", f"write it like {_EXAMPLE}", code="M-SPEC-3")
    if len(text) > MOST_BYTES:
        raise _wrong(f"it is {len(text)} bytes long", f"{MOST_BYTES} are allowed", code="M-SPEC-4")


def _wishes(text: str) -> dict[str, str]:
    wishes: dict[str, str] = {}
    for item in text.split(","):
        key, value = _wish(item, alone=item == text)
        if key in wishes:
            raise _wrong(f"{key} is given twice", "keep one of them", code="M-SPEC-5")
        wishes[key] = value
    return wishes


def _wish(item: str, *, alone: bool) -> tuple[str, str]:
    key, equals, value = item.partition("=")
    if not item:
        raise _wrong("there is a comma with nothing beside it", "remove it", code="M-SPEC-6")
    if not equals:
        raise _not_a_pair(item, alone)
    if not key:
        raise _wrong(f"{_shown(item)} has no key", f"choose among {', '.join(KEYS)}", code="M-SPEC-14")
    if key not in KEYS:
        close = _closest(key, KEYS)
        remedy = f"did you mean {close}={value}?" if close else f"choose among {', '.join(KEYS)}"
        raise _wrong(f"unknown key {_shown(key)}", remedy, code="M-SPEC-7")
    if not value:
        raise _wrong(f"{key} has no value", f"write {_example(key)}", code="M-SPEC-8")
    return key, value


def _not_a_pair(word: str, alone: bool) -> UsageError:
    """The error for a word that is not a pair, with a guess at what the user meant."""
    if not alone and word in ("0", "1"):
        return _wrong(f"{word} cannot be combined with anything", "remove it, or everything else", code="M-SPEC-9")
    if word in KEYS:
        return _wrong(f"{word} has no value", f"write {_example(word)}", code="M-SPEC-8")
    kind = "neither 0, 1 nor key=value" if alone else "not key=value"
    return _wrong(f"{_shown(word)} is {kind}", _meant(word, alone) or f"write it like {_EXAMPLE}", code="M-SPEC-10")


def _meant(word: str, alone: bool) -> str | None:
    lower = word.lower()
    meanings = {value: f"{key}={value}" for key in reversed(KEYS) for value in _choices(key)}
    if _VERSION.fullmatch(lower.removeprefix("v")):
        meanings[lower] = f"version={lower.removeprefix('v')}"
    # What 0 and 1 mean is said already.
    if _NODES.fullmatch(word) and word != "1":
        return f"did you mean nodes={word}?"
    if alone:
        meanings |= {other: meaning for meaning, others in _OTHER_WORDS.items() for other in others}
    key, separator, value = word.partition(":")
    if separator and key in KEYS and value:
        meanings[lower] = f"{key}={value}"
    return f"did you mean {meanings[lower]}?" if lower in meanings else None


def _check_value(key: str, value: str) -> None:
    if key == "version" and not _VERSION.fullmatch(value):
        number = value.removeprefix("v")
        hint = f"did you mean version={number}?" if _VERSION.fullmatch(number) else f"write {_example(key)}"
        raise _wrong(f"{_shown(value)} is not a version of Kubernetes", hint, code="M-SPEC-11")
    if key == "nodes" and not _NODES.fullmatch(value):
        raise _wrong(
            f"{_shown(value)} is not a number of nodes",
            f"write {_example(key)}, or leave it out for all",
            code="M-SPEC-12",
        )
    if (choices := _choices(key)) and value not in choices:
        close = _closest(value, choices)
        raise _wrong(
            f"unknown {key} {_shown(value)}",
            f"did you mean {key}={close}?" if close else f"write {_example(key)}",
            code="M-SPEC-13",
        )


def _choices(key: str) -> Sequence[str]:
    return {"cluster": CLUSTERS, "require": REQUIRED, "uplink": UPLINKS}.get(key, ())


def _example(key: str) -> str:
    choices = _choices(key) or _EXAMPLES[key]
    return " or ".join(f"{key}={choice}" for choice in choices)


def _closest(word: str, known: Sequence[str]) -> str | None:
    # Importing it takes longer than everything else here.
    from difflib import get_close_matches

    return next(iter(get_close_matches(word.lower(), known, n=1)), None)


def _shown(word: str) -> str:
    return f"'{word}'" if len(word) <= LONGEST_SHOWN else f"'{word[:LONGEST_SHOWN]}...'"


def _wrong(what: str, remedy: str, *, code: str) -> UsageError:
    return UsageError(f"--k8s: {what}", remedy, code=code)


def without(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without --k8s: srun and sbatch do not inherit it."""
    return {name: value for name, value in environ.items() if name not in INHERITED}
