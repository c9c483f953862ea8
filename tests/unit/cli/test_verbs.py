"""What `moorage config` and `moorage net explain` print."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from moorage.cli import config as verb
from moorage.cli import main
from moorage.node import factcache
from moorage.node.config import load as configuration
from moorage.node.config.load import load
from moorage.node.config.schema import Config
from moorage.node.hostfiles import Node
from moorage.node.uplink import PROFILES
from support.fakes import FakeCommand


def called(*words: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == code


def test_config_says_where_values_come_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "moorage.yaml"
    file.write_text("scratch:\n  size: 3G\nuplink:\n  allowed: [pasta]\n")
    called("config", "show", str(file))
    lines = capsys.readouterr().out.splitlines()
    assert f"scratch.size: 3G  # {file}:2" in lines
    assert f"uplink.allowed: [pasta]  # {file}:4" in lines
    assert "scratch.kind: loop  # default" in lines
    assert len(lines) == len(list(Config().values()))


def test_config_of_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    called("config", "show", str(tmp_path / "missing.yaml"), code=1)
    said = capsys.readouterr()
    assert (said.out, said.err) == (
        "",
        f"moorage: there is no file {tmp_path}/missing.yaml: name a configuration file [M-COMMAND-5]\n",
    )


def test_a_node_without_a_configuration_has_all_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verb, "PLACE", tmp_path / "moorage.yaml")
    called("config", "show")
    assert "scratch.kind: loop  # default" in capsys.readouterr().out.splitlines()


def test_config_prints_what_it_could_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.yaml").touch()
    called("config", "show", str(tmp_path / "empty.yaml"))
    nested: dict[str, object] = {}
    for name, value in yaml.safe_load(capsys.readouterr().out).items():
        if value is not None:
            *section, last = name.split(".")
            place = nested.setdefault(section[0], {}) if section else nested
            assert isinstance(place, dict)
            place[last] = value
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(nested))
    assert load(tmp_path / "again.yaml") == Config()


def test_config_shows_where_no_word_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "moorage.yaml"
    file.write_text("nodes: 4\n")
    monkeypatch.setattr(verb, "PLACE", file)
    called("config", code=1)


def test_config_names_everything_that_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is right is shown all the same."""
    file = tmp_path / "moorage.yaml"
    file.write_text("scratch:\n  size: 3G\n  kind: disk\nnodes: 4\npids_max: many\n")
    called("config", "show", str(file), code=1)
    said = capsys.readouterr()
    assert f"scratch.size: 3G  # {file}:2" in said.out.splitlines()
    assert [line.split(": ")[1:3] for line in said.err.splitlines()] == [
        [f"{file}:3", "scratch.kind is 'disk'"],
        [f"{file}:4", "there is no key nodes"],
        [f"{file}:5", "pids_max is 'many'"],
    ]


def test_config_of_a_file_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "moorage.yaml"
    file.write_text("scratch: [\n")
    called("config", "show", str(file), code=1)
    assert f"{file}:2: this is not YAML" in capsys.readouterr().err


def test_config_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "moorage.yaml"
    file.write_text("scratch:\n  path: /local/moorage\n")
    called("config", "show", "--json", str(file))
    said = json.loads(capsys.readouterr().out)
    shown = said["settings"]
    assert said["schema"] == 1
    assert shown["scratch.path"] == {"value": "/local/moorage", "source": f"{file}:2"}
    assert shown["uplink.order"] == {"value": ["kernel", "pasta", "slirp4netns"], "source": "default"}
    assert set(shown) == {name for name, _ in Config().values()}


def test_config_shows_features(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "moorage.yaml").touch()
    (tmp_path / "features.d").mkdir()
    (tmp_path / "features.d" / "tape.yaml").write_text("gres: gpu\ndevices: [/dev/tape%]\n")
    called("config", "show", str(tmp_path / "moorage.yaml"))
    lines = capsys.readouterr().out.splitlines()
    assert f"features.tape.gres: gpu  # {tmp_path}/features.d/tape.yaml:1" in lines
    assert f"features.tape.devices: [/dev/tape%]  # {tmp_path}/features.d/tape.yaml:2" in lines
    assert not any("binds" in line for line in lines)
    called("config", "show", "--json", str(tmp_path / "moorage.yaml"))
    shown = json.loads(capsys.readouterr().out)["settings"]
    assert shown["features.tape.devices"] == {
        "value": ["/dev/tape%"],
        "source": f"{tmp_path}/features.d/tape.yaml:2",
    }


def test_config_names_what_is_wrong_in_features(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "moorage.yaml").write_text("nodes: 4\n")
    (tmp_path / "features.d").mkdir()
    (tmp_path / "features.d" / "tape.yaml").write_text("gres: tape\n")
    called("config", "show", str(tmp_path / "moorage.yaml"), code=1)
    said = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in said] == [
        f"{tmp_path}/moorage.yaml:1",
        f"{tmp_path}/features.d/tape.yaml:1",
    ]


@pytest.mark.usefixtures("bare_node")
def test_net_explain(
    tmp_path: Path,
    fake_command: Callable[..., FakeCommand],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(configuration, "PLACE", tmp_path / "moorage.yaml")
    monkeypatch.setattr(factcache, "PLACE", tmp_path / "facts.json")
    for name, version in (("podman", "podman version 5.4.2"), ("slirp4netns", "slirp4netns version 1.2.1")):
        fake_command(name, stdout=version)
    fake_command("pasta", stdout="pasta 2022_01_01")
    called("net", "explain")
    assert capsys.readouterr().out.splitlines()[-1] == "chosen: slirp4netns, pasta: too old: pasta 2022_01_01"
    called("net", "explain", "--uplink", "pasta", code=1)
    assert "chosen: nothing, uplink=pasta cannot be had" in capsys.readouterr().out
    called("net", "explain", "--json")
    said = json.loads(capsys.readouterr().out)
    assert {name: said[name] for name in ("schema", "podman", "chosen", "reason")} == {
        "schema": 1,
        "podman": "podman version 5.4.2",
        "chosen": "slirp4netns",
        "reason": "pasta: too old: pasta 2022_01_01",
    }
    assert said["uplinks"]["pasta"] == {
        "usable": False,
        "cause": "too old: pasta 2022_01_01",
        "version": "pasta 2022_01_01",
        "speed": None,
    }
    called("net", "explain", "--json", "--uplink", "pasta", code=1)
    said = json.loads(capsys.readouterr().out)
    assert said["chosen"] is None
    assert said["reason"].startswith("uplink=pasta cannot be had on this node")


@pytest.mark.usefixtures("bare_node")
def test_net_explain_says_what_it_could_not_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(configuration, "PLACE", tmp_path / "moorage.yaml")
    monkeypatch.setattr(factcache, "PLACE", tmp_path / "facts.json")
    monkeypatch.setattr(Node, "conceals", lambda _, place: place == PROFILES)
    called("net", "explain", code=1)
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"not looked at, which only root can: whether AppArmor keeps pasta out of jobs ({PROFILES})"
    )


def test_only_root_measures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    called("net", "measure", code=1)
    assert "only root can make the networks to measure in: run it as root, on a node" in capsys.readouterr().err
