"""What may help to understand a cluster that did not come up: the end of each log there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from moorage.common.command import CommandFailed
from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError
from moorage.user import failure_report
from moorage.user.cluster.kind_progress import EVIDENCE
from moorage.user.cluster.node_container import Container

LINES: Final = "300"
# Of each container of the cluster's own.
EACH: Final = "40"
MOST: Final = 32 << 10
JOURNAL: Final = ("journalctl", "--no-pager", "--output=short-iso-precise", f"--lines={LINES}")


def collect(node: Container, logs: Mapping[str, Path]) -> dict[str, str]:
    """By their titles: these logs, and those of the node container if that runs."""
    deadline = Deadline(EVIDENCE)
    asked: dict[str, tuple[str, ...]] = {
        "node container": ("logs", f"--tail={LINES}", node.name),
        "pods": ("exec", node.name, "sh", "-c", f"tail -n {EACH} /var/log/containers/*.log"),
        "containers": ("exec", node.name, "crictl", "ps", "--all"),
        "containerd": ("exec", node.name, *JOURNAL, "--unit=containerd"),
        "kubelet": ("exec", node.name, *JOURNAL, "--unit=kubelet"),
    }
    found = {title: _quietly(partial(log.read_text, errors="replace")) for title, log in logs.items()}
    for title, words in asked.items():
        found[title] = _quietly(partial(_said, node, words, deadline))
    return {title: failure_report.end(text, MOST) for title, text in found.items()}


def _said(node: Container, words: tuple[str, ...], deadline: Deadline) -> str:
    if deadline.passed:
        return "there was no time left to ask"
    done = node.podman(*words, limit=deadline.left)
    return done.stdout + done.stderr


def _quietly(ask: Callable[[], str]) -> str:
    """What is wrong here must not hide what is being looked into."""
    try:
        return ask()
    except CommandFailed as error:
        return f"{error.stdout}{error.stderr}({error.reason})"
    except (MoorageError, OSError) as error:
        return f"({error})"
