"""Refuse connections to services that kube-proxy has no rules for yet.

Without rules its first packet goes to the outside. The kernel remembers the connection that way: its later packets go
there, too, when the rules are in place, until the client gives up. CoreDNS does so after 30 s, and the cluster is not
ready before. A client that is refused comes again with a new connection.
"""

from __future__ import annotations

from typing import Final

from moorage.user.cluster.control_plane import FILES

UNIT: Final = "kubelet.conf"
UNIT_PLACE: Final = "/etc/systemd/system/kubelet.service.d/20-moorage.conf"
SCRIPT: Final = "refuse-services"
# kube-proxy turns what it knows to an endpoint before these chains see it.
_RULES: Final = """\
#!/bin/sh
# Refuses what goes to a service that has no rules. It may run more than once.
rule() {
    iptables --wait --check "$@" 2>/dev/null || iptables --wait --append "$@"
}
for chain in FORWARD OUTPUT; do
    rule "$chain" --destination "$1" --protocol tcp --jump REJECT --reject-with tcp-reset
    rule "$chain" --destination "$1" ! --protocol tcp --jump REJECT
done
"""


def files(services: str) -> dict[str, str]:
    """By their names in the directory that the node sees as FILES.

    systemd runs the script before kubelet, which starts all pods. A node in which it fails starts all the same.
    """
    return {UNIT: f"[Service]\nExecStartPre=-/bin/sh {FILES}/{SCRIPT} {services}\n", SCRIPT: _RULES}
