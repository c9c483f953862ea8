"""A user's resource limits, before anything fails in its own words for lack of them."""

from __future__ import annotations

import resource

import pytest

from moorage.common.errors import UserError
from moorage.user.agent import ulimits

PLENTY = dict.fromkeys(ulimits.DEMANDS, resource.RLIM_INFINITY)


@pytest.mark.parametrize(
    ("kind", "hard", "said"),
    [
        (resource.RLIMIT_NOFILE, 1023, "`ulimit -Hn` allows 1023 open files where 1024 are needed"),
        (resource.RLIMIT_NPROC, 10, "`ulimit -Hu` allows 10 processes"),
        (resource.RLIMIT_AS, 1 << 30, "`ulimit -Hv`"),
        (resource.RLIMIT_FSIZE, 0, "`ulimit -Hf`"),
    ],
)
def test_too_little(kind: int, hard: int, said: str) -> None:
    (complaint,) = ulimits.complaints(PLENTY | {kind: hard})
    assert said in complaint.what


@pytest.mark.parametrize("kind", ulimits.DEMANDS)
@pytest.mark.parametrize("extra", [0, 1])
def test_just_enough(kind: int, extra: int) -> None:
    assert not list(ulimits.complaints(PLENTY | {kind: ulimits.DEMANDS[kind].least + extra}))


class Fakes:
    def __init__(self, hard: int) -> None:
        self.hard = hard
        self.set: dict[int, tuple[int, int]] = {}

    def getrlimit(self, kind: int) -> tuple[int, int]:
        return self.set.get(kind, (1, self.hard))

    def setrlimit(self, kind: int, pair: tuple[int, int]) -> None:
        self.set[kind] = pair


@pytest.mark.parametrize(
    ("hard", "files"),
    [
        (resource.RLIM_INFINITY, 1 << 20),
        (1 << 30, 1 << 20),
        (1 << 20, 1 << 20),
        (4096, 4096),
    ],
)
def test_all_is_taken_but_files_without_end(monkeypatch: pytest.MonkeyPatch, hard: int, files: int) -> None:
    fakes = Fakes(1 << 40)
    fakes.set[resource.RLIMIT_NOFILE] = (1024, hard)
    monkeypatch.setattr(resource, "getrlimit", fakes.getrlimit)
    monkeypatch.setattr(resource, "setrlimit", fakes.setrlimit)
    ulimits.raised()
    assert fakes.set.pop(resource.RLIMIT_NOFILE) == (files, hard)
    assert all(soft == most for soft, most in fakes.set.values())


def test_too_little_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = Fakes(512)
    monkeypatch.setattr(resource, "getrlimit", fakes.getrlimit)
    monkeypatch.setattr(resource, "setrlimit", fakes.setrlimit)
    with pytest.raises(UserError, match="ulimit -Hn"):
        ulimits.raised()
