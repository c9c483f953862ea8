"""Where AppArmor confines what Podman starts, a job's network works while its user comes to the node and goes.

In a guest of its own, because a kernel has AppArmor on or off from its start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.figures import Figures
from virtual.build.cache import CACHE
from virtual.guest import builds
from virtual.guest.cluster import Cluster
from virtual.guest.record import Request
from virtual.guest.shell import Shell
from virtual.jobs.batch import MOORED, Job, submit
from virtual.jobs.facts import SHELL, Fact, facts

DIRECTORY = CACHE / "test-lab-apparmor"
PORT = 22350
UID = 1001
RULE = "/etc/apparmor.d/local/pasta"
PLACE = "/local/alice"
VISITS = ("first", "gone", "second")
# The script and the test meet on the node's own disk: a test that looked as alice would be her login itself.
SCRIPT = rf"""
{SHELL}
image=localhost/lab/shell:1
podman load --quiet --input /srv/lab/shell.tar
podman load --quiet --input /srv/lab/web.tar
podman network create inner
podman run --detach --name web --network inner --publish 8099:8080 localhost/lab/web:1
fact label sh -c 'cat /proc/$(pgrep --uid {UID} pasta | head -n 1)/attr/current'
fact chosen cat "/run/moorage/$SLURM_JOB_ID/job.json"
touch {PLACE}/ready
for visit in {" ".join(VISITS)}; do
    until [ -e "{PLACE}/$visit" ]; do sleep 0.3; done
    fact "$visit-run" ls /run/user
    fact "$visit-old" podman exec web wget -q -T 60 -O - http://10.77.0.1:8099/
    fact "$visit-new" podman run --rm $image wget -q -T 60 -O - http://10.77.0.1:8099/
    touch "{PLACE}/$visit-done"
done
"""


@pytest.fixture(scope="module")
def guest() -> Iterator[Cluster]:
    builds.build("trixie")
    with builds.own(DIRECTORY, Request(1, "trixie", PORT, apparmor=True)) as guests:
        yield guests


def test_pasta_works_while_its_user_comes_and_goes(guest: Cluster, figures: Figures) -> None:
    shell = guest.first.shell
    assert "pasta (enforce)" in shell.output("cat", "/sys/kernel/security/apparmor/profiles").splitlines()
    job = submit(shell, SCRIPT, MOORED, "--mem=500M")
    await_file(shell, "ready")
    away(shell)
    for visit in VISITS:
        if visit.startswith("gone"):
            away(shell)
            do(shell, visit)
        else:
            with login(shell):
                do(shell, visit)
    job.wait_gone()
    found = facts(job.output)
    assert found["label"].text == "pasta (enforce)"
    assert json.loads(found["chosen"].text)["uplink"] == "pasta"
    for visit in VISITS:
        assert (str(UID) in found[f"{visit}-run"].lines) == (not visit.startswith("gone"))
    pages = [found[f"{visit}-{which}"] for visit in VISITS for which in ("old", "new")]
    assert pages == [Fact(0, pages[0].text)] * len(pages)
    assert pages[0].text
    assert refused(shell, job) == []
    figures.add("visits of a user to a node where AppArmor confines his job's pasta", len(VISITS), "")


def test_without_the_rule_pasta_is_not_offered(guest: Cluster) -> None:
    shell = guest.first.shell
    shell.run(["mv", RULE, f"{RULE}.away"])
    said = shell.output("/opt/moorage/bin/moorage", "net", "explain")
    shell.run(["mv", f"{RULE}.away", RULE])
    assert f"pasta: AppArmor keeps it out of /run/moorage, see {RULE}" in said
    assert "chosen: slirp4netns, pasta: AppArmor keeps it out" in said


@contextmanager
def login(shell: Shell) -> Iterator[None]:
    with shell.lines(["sh", "-c", "echo $$; exec sleep 600"], user="alice") as said:
        process = next(said)
        try:
            yield
        finally:
            shell.run(["kill", process])


def do(shell: Shell, visit: str) -> None:
    shell.run(["touch", f"{PLACE}/{visit}"])
    await_file(shell, f"{visit}-done")


def await_file(shell: Shell, name: str) -> None:
    shell.run(["timeout", "240", "sh", "-c", 'until [ -e "$1" ]; do sleep 0.3; done', "sh", f"{PLACE}/{name}"])


def away(shell: Shell) -> None:
    """Until logind has taken down all that a login of alice's had."""
    shell.run(["timeout", "120", "sh", "-c", f"while [ -e /run/user/{UID} ]; do sleep 0.3; done"])


def refused(shell: Shell, job: Job) -> list[str]:
    """What AppArmor has kept from anybody in the job's own place."""
    said = shell.output("journalctl", "--dmesg", "--output=cat").splitlines()
    return [line for line in said if 'apparmor="DENIED"' in line and f"/run/moorage/{job.id}/" in line]
