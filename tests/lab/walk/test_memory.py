"""What happens when a moored job runs out of memory: whoever took too much is killed, and nobody else."""

from __future__ import annotations

from virtual.guest.cluster import Cluster
from virtual.jobs.batch import MOORED, run, submit
from virtual.jobs.facts import SHELL, facts

# Together with the container they are more than the job has, and long before the container is at its own limit.
WORKING_SET = 300
HOLD = f'b = bytearray({WORKING_SET} << 20); print("held"); input(); print("kept", len(b) >> 20)'
GREEDY = rf"""
{SHELL}
podman load --quiet --input /srv/lab/shell.tar
coproc holder {{ exec python3 -uc '{HOLD}'; }}
read -r <&"${{holder[0]}}"
fact eaten podman run --rm --network none localhost/lab/shell:1 dd if=/dev/zero of=/dev/null bs=3000M count=1
fact alive podman run --rm --network none localhost/lab/shell:1 echo again
echo go on >&"${{holder[1]}}"
read -r <&"${{holder[0]}}"
echo "$REPLY"
"""
OVERREACHING = "python3 -c 'bytearray(600 << 20)'; echo survived"


def test_a_container_that_takes_too_much_is_killed_and_nothing_else(lab: Cluster) -> None:
    shell = lab.first.shell
    neighbour = submit(shell, "sleep 600", "--nodelist=n1", "--mem=100M", user="bob")
    neighbour.wait_state("RUNNING")
    job = run(shell, GREEDY, MOORED, "--nodelist=n1", "--mem=700M")
    found = facts(job.output)
    assert neighbour.show("JobState") == "RUNNING"
    neighbour.cancel()
    assert found["eaten"].code == 137, found["eaten"]
    assert (found["alive"].code, found["alive"].text) == (0, "again")
    assert f"kept {WORKING_SET}" in job.output
    assert job.accounted("State,ExitCode") == ["COMPLETED", "0:0"]
    assert job.accounted("State", step="batch") == ["COMPLETED"]
    neighbour.wait_gone()
    assert lab.node_states() == ["idle"] * lab.request.nodes


def test_a_script_that_takes_too_much_ends_its_job_as_in_a_plain_one(lab: Cluster) -> None:
    shell = lab.first.shell
    ends = [run(shell, OVERREACHING, *moored, "--mem=400M").accounted("State,ExitCode") for moored in ([MOORED], [])]
    assert ends == [["OUT_OF_MEMORY", "0:125"]] * 2
    assert lab.node_states() == ["idle"] * lab.request.nodes
