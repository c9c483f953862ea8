"""What `moorage config` and `moorage net explain` print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from moorage import config as configuration
from moorage import facts
from moorage.cli import main
from moorage.config import Config, load
from support.fakes import FakeCommand


def called(*words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0


def test_config_says_where_values_come_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "moorage.yaml"
    file.write_text("scratch:\n  size: 3G\nuplink:\n  allowed: [pasta]\n")
    called("config", str(file))
    lines = capsys.readouterr().out.splitlines()
    assert f"scratch.size: 3G  # {file}:2" in lines
    assert f"uplink.allowed: [pasta]  # {file}:4" in lines
    assert "scratch.kind: loop  # default" in lines
    assert len(lines) == len(list(Config().values()))


def test_config_prints_what_it_could_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    called("config", str(tmp_path / "missing.yaml"))
    nested: dict[str, object] = {}
    for name, value in yaml.safe_load(capsys.readouterr().out).items():
        if value is not None:
            *section, last = name.split(".")
            place = nested.setdefault(section[0], {}) if section else nested
            assert isinstance(place, dict)
            place[last] = value
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(nested))
    assert load(tmp_path / "again.yaml") == Config()


def test_net_explain(
    tmp_path: Path,
    fake_command: Callable[..., FakeCommand],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(configuration, "PLACE", tmp_path / "moorage.yaml")
    monkeypatch.setattr(facts, "PLACE", tmp_path / "facts.json")
    for name, version in (("podman", "podman version 5.4.2"), ("slirp4netns", "slirp4netns version 1.2.1")):
        fake_command(name, stdout=version)
    fake_command("pasta", stdout="pasta 2022_01_01")
    called("net", "explain")
    assert capsys.readouterr().out.splitlines()[-1] == "chosen: slirp4netns, pasta: too old: pasta 2022_01_01"
    called("net", "explain", "--uplink", "pasta")
    assert "chosen: nothing, uplink=pasta cannot be had" in capsys.readouterr().out
