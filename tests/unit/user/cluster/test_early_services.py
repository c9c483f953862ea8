"""What a node is given so that it refuses connections to services that it does not know yet."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from moorage.user.cluster import early_services

SERVICES = "10.96.0.0/16"
# Notes its arguments; asked whether a rule is there, it says so if it has been appended.
IPTABLES = """\
#!/bin/sh
wait=$1 verb=$2
shift 2
[ "$wait" = --wait ] || exit 9
case $verb in
--check) grep -qxF -- "$*" "$RULES" ;;
--append) echo "$*" >>"$RULES" ;;
esac
"""


def test_the_unit_runs_the_script_before_kubelet() -> None:
    files = early_services.files(SERVICES)
    assert files["kubelet.conf"] == f"[Service]\nExecStartPre=-/bin/sh /kind/moorage/refuse-services {SERVICES}\n"
    assert set(files) == {"kubelet.conf", "refuse-services"}


@pytest.mark.commands("sh", "grep")
def test_each_chain_has_its_rules_once_however_often_kubelet_starts(tmp_path: Path) -> None:
    script, rules, iptables = tmp_path / "script", tmp_path / "rules", tmp_path / "bin/iptables"
    script.write_text(early_services.files(SERVICES)["refuse-services"])
    rules.touch()
    iptables.parent.mkdir()
    iptables.write_text(IPTABLES)
    iptables.chmod(0o755)
    for _ in range(2):
        environment = {"PATH": f"{iptables.parent}:/usr/bin:/bin", "RULES": str(rules)}
        subprocess.run(["/bin/sh", script, SERVICES], env=environment, check=True)
    tcp, other = "--protocol tcp --jump REJECT --reject-with tcp-reset", "! --protocol tcp --jump REJECT"
    assert rules.read_text().splitlines() == [
        f"{chain} --destination {SERVICES} {rule}" for chain in ("FORWARD", "OUTPUT") for rule in (tcp, other)
    ]
