"""Nodes are drained before slurm.conf loses its lines: all of them, or none, and each only by us."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from moorage.common.command import Completed
from moorage.linux import mounts
from moorage.node.config.values import MIB
from support.namespaces import MOUNT, fresh
from support.playbook import ANSIBLE, play

OURS = "moorage is being uninstalled"
BROKEN = "drained fan is broken"
# What each node is called stands in a file of its name, with its state and why.
SINFO = """\
#!/bin/sh
cat "{nodes}/${{2#--nodes=}}"
"""
SCONTROL = """\
#!/bin/sh
echo "$*" >>{nodes}.calls
case "$2 $3" in
NodeName=stubborn*) exit 1 ;;
*DRAIN) echo 'drained moorage is being uninstalled' ;;
*RESUME) echo 'idle none' ;;
esac >"{nodes}/${{2#NodeName=}}"
"""


@dataclass(frozen=True)
class Site:
    """Nodes that are all this machine, where nothing but jobs tells that Moorage is here."""

    place: Path

    def states(self, **states: str) -> None:
        for name, state in states.items():
            (self.place / "nodes" / name).write_text(f"{state}\n" if state else "")

    def state(self, name: str) -> str:
        return (self.place / "nodes" / name).read_text().strip()

    @property
    def calls(self) -> list[str]:
        calls = self.place / "nodes.calls"
        return sorted(calls.read_text().splitlines()) if calls.exists() else []

    def drain(self, **more: object) -> Completed:
        """The one play of the playbook that changes nothing else."""
        drain = yaml.safe_load((ANSIBLE / "uninstall.yml").read_text())[1]
        names = [path.name for path in (self.place / "nodes").iterdir()]
        return play(self.place, drain, {name: self._variables(name) | more for name in names})

    def _variables(self, name: str) -> dict[str, object]:
        return {
            "moorage_slurm_conf": "edit",
            "moorage_slurm_etc": str(self.place),
            "moorage_node": name,
            "moorage_patience": 0,
        }


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    programs = {"sinfo": SINFO, "scontrol": SCONTROL, "systemctl": "#!/bin/sh\necho 'Active: active (running)'\n"}
    (tmp_path / "bin").mkdir()
    (tmp_path / "nodes").mkdir()
    for name, script in programs.items():
        (tmp_path / "bin" / name).write_text(script.format(nodes=tmp_path / "nodes"))
        (tmp_path / "bin" / name).chmod(0o755)
    with fresh(MOUNT):
        for place in (Path("/opt"), Path("/run"), Path("/var/lib")):
            mounts.mount_tmpfs(place, size=MIB, inodes=1000, uid=0, gid=0, mode=0o755)
        Path("/opt/moorage").mkdir()
        Path("/var/lib/moorage/jobs").mkdir(parents=True)
        yield Site(tmp_path)


def drained(name: str) -> str:
    return f"update NodeName={name} State=DRAIN Reason={OURS}"


def resumed(name: str) -> str:
    return f"update NodeName={name} State=RESUME"


def test_they_wait_drained_for_slurm_conf(site: Site) -> None:
    site.states(n1="idle main", n2=BROKEN, n3=f"drained {OURS}")
    done = site.drain()
    assert done.code == 0, done.stdout
    assert site.calls == [drained("n1")]


def test_a_job_that_does_not_end_lets_all_go_on_but_what_others_have_drained(site: Site) -> None:
    Path("/var/lib/moorage/jobs/7.json").touch()
    site.states(n1="idle main", n2=BROKEN, n3=f"drained {OURS}")
    done = site.drain()
    assert "nothing was removed: see above what kept it" in done.stdout
    assert done.code != 0
    assert site.calls == sorted([drained("n1"), resumed("n1"), resumed("n3")])
    assert site.state("n2") == BROKEN


def test_one_that_cannot_be_drained_lets_the_others_go_on(site: Site) -> None:
    site.states(n1="idle main", stubborn="idle main")
    assert site.drain().code != 0
    assert site.calls == sorted([drained("n1"), resumed("n1"), drained("stubborn")])


def test_where_slurm_does_not_know_a_node_none_is_drained(site: Site) -> None:
    site.states(n1="idle main", n2="")
    done = site.drain()
    assert "Slurm knows no node n2, or does not answer" in done.stdout
    assert "set moorage_node to what slurm.conf calls this node" in " ".join(done.stdout.split())
    assert (done.code != 0, site.calls) == (True, [])


def test_with_lines_that_are_the_sites_none_is_drained(site: Site) -> None:
    site.states(n1="idle main")
    assert site.drain(moorage_slurm_conf="print").code == 0
    assert site.drain(moorage_partitions=["main"]).code == 0
    assert site.calls == []


@pytest.mark.parametrize("served", [False, True], ids=["its own", "what slurmctld serves"])
def test_no_directory_that_slurm_conf_names_is_left_empty(site: Site, served: bool) -> None:
    """The next job would drain the node."""
    directory = Path("/run/slurm/conf") if served else site.place
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "slurm.conf").write_text("Include hooks.conf\n")
    (directory / "hooks.conf").write_text(f"Prolog={site.place}/prolog.d/*\n")
    site.states(n1="idle main")
    done = site.drain()
    assert f"{site.place}/prolog.d would be" in done.stdout
    assert (done.code != 0, site.calls) == (True, [])
