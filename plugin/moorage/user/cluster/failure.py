"""Why the start of a node has failed, with the logs that may explain it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from moorage.common.command import CommandFailed, CommandTimeout
from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError, UserError
from moorage.user import failure_report
from moorage.user.cluster.kind_progress import EVIDENCE, CurrentPhase
from moorage.user.cluster.node_container import Container

LINES: Final = "300"
# Of each container of the cluster's own.
EACH: Final = "40"
MOST: Final = 32 << 10
JOURNAL: Final = ("journalctl", "--no-pager", "--output=short-iso-precise", f"--lines={LINES}")


class Failed(MoorageError):
    """The start of a node has failed; `logs` are by their titles."""

    def __init__(self, cause: str, logs: Mapping[str, str], code: str = "") -> None:
        super().__init__(cause, code=code)
        self.logs = logs


@contextmanager
def explained(phase: CurrentPhase, logs: Callable[[], Mapping[str, str]]) -> Iterator[None]:
    """Turn errors into Failed, with logs; but a UserError already says what the user or the site has to do."""
    try:
        yield
    except UserError:
        raise
    except CommandTimeout as error:
        overdue = phase.overdue()
        raise Failed(str(overdue), logs(), overdue.code) from error
    except MoorageError as error:
        raise Failed(str(error), logs(), error.code) from error
    except OSError as error:
        raise Failed(f"{phase.text} failed: {error.strerror}", logs(), code="M-KUBE-10") from error


def collect(node: Container, logs: Mapping[str, Path]) -> dict[str, str]:
    """These logs, and those of the node container if that runs, by their titles."""
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
    """Return the error as the text: an error in here must not hide the one that is being explained."""
    try:
        return ask()
    except CommandFailed as error:
        return f"{error.stdout}{error.stderr}({error.reason})"
    except (MoorageError, OSError) as error:
        return f"({error})"
