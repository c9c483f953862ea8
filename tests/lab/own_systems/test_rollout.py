"""A bare node, the role, and the node as it was: what the rollout promises.

One after the other: each test leaves the node bare.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest

from support.figures import Figures
from virtual import rollout
from virtual.build.binaries import VERSION, binaries
from virtual.build.cache import CACHE
from virtual.guest import builds
from virtual.guest.cluster import Cluster
from virtual.guest.many_commands import run_many
from virtual.guest.record import Request
from virtual.guest.site import Site

pytestmark = pytest.mark.long

DIRECTORY = CACHE / "test-rollout"
PORT = 22900
DRAINS = re.compile(r"update_node: node n1 reason set to: (.*)")
NONSENSE = ["sbatch", "--k8s=nonsense", "--wrap=true"]
HOOKS = ["/etc/slurm/epilog.d/50-moorage", "/etc/slurm/prolog.d/50-moorage"]
LOOK = ["kubectl", "version", "--client"]


@pytest.fixture(scope="module")
def lab() -> Iterator[Cluster]:
    with builds.own(DIRECTORY, Request(1, "trixie", PORT, bare=True)) as lab:
        yield lab


def test_a_node_of_other_partitions_gets_hooks_alone(lab: Cluster) -> None:
    """slurm.conf names them for all partitions."""
    before = rollout.system(lab.first.shell)
    elsewhere = site(lab, "elsewhere")
    assert elsewhere.install(moorage_partitions=["elsewhere"]) == 1
    different = rollout.differences(before, rollout.system(lab.first.shell))
    assert [name.partition(":")[0] for name in different] == HOOKS
    assert elsewhere.uninstall() > 0
    assert rollout.differences(before, rollout.system(lab.first.shell)) == []


def test_from_nothing_and_back(lab: Cluster, figures: Figures) -> None:
    """The node is drained once, to be uninstalled, and takes jobs again."""
    found = rollout.check(lab)
    print(found)
    figures.add("second run of the role: tasks that changed something", found.second_changed, "", at_most=0)
    figures.add("left after it was taken off: files, units", len(found.different), "", at_most=0)
    assert found.good, found
    assert DRAINS.findall(lab.first.shell.output("cat", "/var/log/slurm/slurmctld.log")) == [
        "moorage is being uninstalled"
    ]


def test_a_login_node_has_what_users_type(lab: Cluster) -> None:
    """kubectl, and a look at what follows --k8s= before anything is submitted; nothing of what nodes have."""
    shell = lab.first.shell
    before = rollout.system(shell)
    login = site(lab, "login", "login")
    programs = login.directory / "programs"
    programs.mkdir()
    shutil.copy(binaries().path("kubernetes"), programs / "kubectl")
    assert login.install(moorage_programs=str(programs), moorage_kubectl_version=VERSION) > 0
    refused, looked = run_many(shell, [NONSENSE, LOOK], "alice")
    assert (refused.code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("sbatch: error: moorage: --k8s: 'nonsense' is neither 0, 1 nor key=value: ")
    assert VERSION in looked.stdout
    for place in ("/etc/moorage", "/etc/slurm/prolog.d/50-moorage", "/etc/systemd/system/moorage-warden@.service"):
        assert shell.run(["test", "-e", place], ok=(0, 1)).code == 1, place
    assert login.install(moorage_programs=str(programs), moorage_kubectl_version=VERSION) == 0
    assert login.uninstall() > 0
    assert rollout.differences(before, rollout.system(shell)) == []


def site(lab: Cluster, name: str, *groups: str) -> Site:
    place = lab.directory / name
    place.mkdir()
    return Site(place, lab.first, groups) if groups else Site(place, lab.first)
