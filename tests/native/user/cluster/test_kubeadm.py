"""kubeadm reads what kind makes of our patches, in the format that it uses for that version of Kubernetes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moorage.common.command import CommandFailed, run
from moorage.common.description import Segment
from moorage.user.cluster import join_config, kind_config
from moorage.user.cluster.kind_config import Plan
from support.engine import CACHE

NEWER = Plan(
    job=17,
    image="kindest/node:v1.36.3",
    version=(1, 36, 3),
    token=kind_config.bootstrap_token(),
    etcd="memory",
    patience=2.0,
    reserved={"cpu": "6100m", "memory": "1024Ki"},
    files=Path("/run/moorage/17/scratch/kubernetes"),
    name="n1",
    labels={"moorage/node": "n1"},
)
OLDER = replace(NEWER, version=(1, 35, 9))
SEGMENT = Segment("10.89.0.0/16", 1450, "0a:00:00:11:00:02", ("n1", "n2"))
KUBEADM, KUBELET = "kubeadm.k8s.io", "kubelet.config.k8s.io/v1beta1"


@pytest.fixture
def kubeadm(tmp_path: Path) -> Path:
    """It goes by the name that it is called by."""
    found = sorted(CACHE.glob("program-kubernetes-*/kubernetes"))
    if not found:
        pytest.skip("needs kubeadm: make what the lab is made of (make lab)")
    (tmp_path / "kubeadm").symlink_to(found[-1])
    return tmp_path / "kubeadm"


def written(plan: Plan) -> list[dict[str, Any]]:
    """What kind (0.33) has for kubeadm, as far as there is something to merge, or it would be asked for."""
    older = plan.version < (1, 36)
    api = f"{KUBEADM}/v1beta3" if older else f"{KUBEADM}/v1beta4"

    def arguments(name: str, value: str) -> dict[str, Any]:
        return {"extraArgs": {name: value} if older else [{"name": name, "value": value}]}

    endpoint = {"advertiseAddress": "10.89.0.2", "bindPort": 6443}
    discovery = {"apiServerEndpoint": "n1:6443", "token": "abcdef.0123456789abcdef", "unsafeSkipCAVerification": True}
    registration = {"criSocket": "unix:///run/containerd/containerd.sock"}
    return [
        # kubeadm insists on versions near its own, in both formats.
        {"apiVersion": api, "kind": "ClusterConfiguration", "kubernetesVersion": "v1.36.3"}
        | {"apiServer": {"certSANs": ["localhost"], **arguments("runtime-config", "")}}
        | {"controllerManager": arguments("enable-hostpath-provisioner", "true")},
        {"apiVersion": api, "kind": "InitConfiguration", "localAPIEndpoint": endpoint}
        | {"nodeRegistration": registration, "skipPhases": ["preflight"]},
        {"apiVersion": api, "kind": "JoinConfiguration", "nodeRegistration": registration}
        | {"discovery": {"bootstrapToken": discovery}},
        {"apiVersion": KUBELET, "kind": "KubeletConfiguration", "cgroupRoot": "/kubelet"},
    ]


def merged(plan: Plan) -> list[dict[str, Any]]:
    """As kind merges a patch that names no format into its documents."""
    documents = {one["kind"]: one for one in written(plan)}
    for text in kind_config.configuration(plan)["kubeadmConfigPatches"]:
        patch = json.loads(text)
        _merge(documents[patch["kind"]], patch)
    return list(documents.values())


def _merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    for name, value in patch.items():
        if isinstance(value, dict):
            _merge(target.setdefault(name, {}), value)
        elif name == "extraArgs" and name in target and isinstance(target[name], list):
            target[name] += value
        else:
            target[name] = value


def validate(kubeadm: Path, documents: Sequence[dict[str, Any]]) -> None:
    """It takes no field that the format has not got."""
    place = kubeadm.with_name("kubeadm.yaml")
    # YAML holds JSON.
    place.write_text("\n---\n".join(map(json.dumps, documents)))
    run([kubeadm, "config", "validate", "--config", place], limit=60)


@pytest.mark.parametrize("etcd", ["memory", "disk"])
@pytest.mark.parametrize("plan", [OLDER, NEWER], ids=["older", "newer"])
def test_of_the_first_node(kubeadm: Path, plan: Plan, etcd: kind_config.Storage) -> None:
    documents = merged(replace(plan, etcd=etcd))
    validate(kubeadm, documents)
    # It takes those of a start and of a join one at a time.
    validate(kubeadm, [one for one in documents if one["kind"] == "JoinConfiguration"])


def test_one_format_in_the_other_is_seen(kubeadm: Path) -> None:
    """Or the test above could not fail."""
    cluster, *_ = merged(NEWER)
    with pytest.raises(CommandFailed) as refused:
        validate(kubeadm, [cluster | {"apiVersion": f"{KUBEADM}/v1beta3"}])
    assert "cannot unmarshal" in refused.value.stderr


def test_of_a_node_that_joins(kubeadm: Path, tmp_path: Path) -> None:
    document = join_config.configuration(NEWER, SEGMENT, 1)
    known = tmp_path / "discovery.json"
    known.write_text("{}")
    document["discovery"]["file"]["kubeConfigPath"] = str(known)
    validate(kubeadm, [document])


def test_the_nodes_kubectl_understands_its_preferences(kubeadm: Path) -> None:
    kubectl, preferences = kubeadm.with_name("kubectl"), kubeadm.with_name("kuberc")
    kubectl.symlink_to(kubeadm.readlink())
    preferences.write_text(json.dumps(kind_config.preferences()))
    said = run([kubectl, "kuberc", "view", f"--kuberc={preferences}"]).stdout
    assert said.count('default: "false"') == 2
