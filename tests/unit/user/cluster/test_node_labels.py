"""By what name and labels a node is known to Kubernetes."""

from __future__ import annotations

import re

import pytest

from moorage.user.cluster import node_resources
from moorage.user.cluster.node_resources import GIB, Share

# As Kubernetes has it.
LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")


@pytest.mark.parametrize(
    ("host", "node", "name"),
    [
        ("berth1", "n1", "berth1"),
        ("Berth1.example.org", "n1", "berth1.example.org"),
        ("my_host", "n1", "n1"),
        ("-", "Node_1", "node-1"),
        ("", "n1", "n1"),
    ],
)
def test_name(host: str, node: str, name: str) -> None:
    assert node_resources.name(node, host) == name


@pytest.mark.parametrize("text", ["n1", "node.example.org", "a" * 100, "n1_", "a b", f"{'a' * 62}-b"])
def test_a_label_is_one_for_kubernetes(text: str) -> None:
    found = node_resources.label(text)
    assert LABEL.fullmatch(found)
    assert len(found) <= 63


@pytest.mark.parametrize(
    ("environ", "seen", "more"),
    [
        ({}, {}, {}),
        ({"SLURM_GPUS_ON_NODE": "2"}, {}, {"moorage/gres-gpu": "2"}),
        ({"SLURM_GPUS_ON_NODE": "0", "SLURM_SHARDS_ON_NODE": "x"}, {}, {}),
        ({"SLURM_SHARDS_ON_NODE": "3"}, {"tape": 2}, {"moorage/gres-shard": "3", "moorage/gres-tape": "2"}),
        ({"SLURM_SHARDS_ON_NODE": "3"}, {"shard": 1}, {"moorage/gres-shard": "3"}),
    ],
)
def test_labels_say_what_slurm_gave(environ: dict[str, str], seen: dict[str, int], more: dict[str, str]) -> None:
    labels = node_resources.labels("n1", Share(4, 8 * GIB, 7 * GIB), environ, seen)
    assert labels == {"moorage/node": "n1", "moorage/cpus": "4", "moorage/memory": "8192", **more}
