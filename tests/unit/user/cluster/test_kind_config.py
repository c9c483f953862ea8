"""What kind is told: the patches fit what it and kubeadm have, and keep strangers out."""

from __future__ import annotations

import json
import secrets
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moorage.common import node_image
from moorage.common.errors import UserError
from moorage.common.hardware import Bind, Hardware
from moorage.user import failure_report
from moorage.user.cluster import control_plane, kind_config
from moorage.user.cluster.kind_config import Plan

# In kind's own source, and so the same for everybody.
WELL_KNOWN = "abcdef.0123456789abcdef"
UNIT = "/etc/systemd/system/kubelet.service.d/20-moorage.conf"
PLAN = Plan(
    job=17,
    image="kindest/node:v1.36.3",
    version=(1, 36, 3),
    token="a1b2c3.a1b2c3d4e5f6g7h8",  # noqa: S106
    etcd="memory",
    patience=1.0,
    reserved={"cpu": "6100m", "memory": "1024Ki"},
    files=Path("/run/moorage/17/scratch/kubernetes"),
)


def patch(kind_: str, plan: Plan = PLAN) -> dict[str, Any]:
    patches = [json.loads(text) for text in kind_config.configuration(plan)["kubeadmConfigPatches"]]
    (found,) = [one for one in patches if one["kind"] == kind_]
    return dict(found)


# The last for which kind uses kubeadm's older format.
OLDER = replace(PLAN, version=(1, 35, 9))


def arguments(of: dict[str, Any]) -> dict[str, str]:
    assert len({one["name"] for one in of["extraArgs"]}) == len(of["extraArgs"])
    return {one["name"]: one["value"] for one in of["extraArgs"]}


class TestCluster:
    def test_one_node_of_the_image(self) -> None:
        (node,) = kind_config.configuration(PLAN)["nodes"]
        assert (node["role"], node["image"]) == ("control-plane", PLAN.image)
        files = "/run/moorage/17/scratch/kubernetes"
        assert node["extraMounts"] == [
            {"hostPath": files, "containerPath": "/kind/moorage", "readOnly": True},
            {"hostPath": f"{files}/kubelet.conf", "containerPath": UNIT, "readOnly": True},
            {"hostPath": f"{files}/kuberc", "containerPath": "/root/.kube/kuberc", "readOnly": True},
        ]
        (older,) = kind_config.configuration(replace(PLAN, version=(1, 33, 1)))["nodes"]
        assert older["extraMounts"] == node["extraMounts"][:2]

    def test_hardware_is_mounted_where_it_is(self) -> None:
        hardware = Hardware(("/dev/tape0",), (Bind("/opt/lib", "/opt/tape"), Bind("/a", "/a", writable=True)), ("A=b",))
        (node,) = kind_config.configuration(replace(PLAN, hardware=hardware))["nodes"]
        assert node["extraMounts"][2:-1] == [
            {"hostPath": "/dev/tape0", "containerPath": "/dev/tape0", "readOnly": False},
            {"hostPath": "/opt/lib", "containerPath": "/opt/tape", "readOnly": True},
            {"hostPath": "/a", "containerPath": "/a", "readOnly": False},
        ]

    def test_names_come_from_the_job(self) -> None:
        assert kind_config.configuration(PLAN)["name"] == kind_config.name(17) == "moorage-17"
        assert kind_config.node(17) == "moorage-17-control-plane"
        # kind's own limit for a name.
        assert len(kind_config.name((1 << 32) - 3)) < 50

    def test_its_networks_are_the_sites_choice(self) -> None:
        found = kind_config.configuration(replace(PLAN, pods="10.60.0.0/16", services="10.61.0.0/20"))
        assert found["networking"] == {"podSubnet": "10.60.0.0/16", "serviceSubnet": "10.61.0.0/20"}

    def test_it_is_data_and_survives_as_text(self) -> None:
        assert json.loads(json.dumps(kind_config.configuration(PLAN))) == kind_config.configuration(PLAN)

    @pytest.mark.parametrize("etcd", ["memory", "disk"])
    def test_older_versions_are_told_the_same_in_the_older_format(self, etcd: kind_config.Storage) -> None:
        newer, older = (patch("ClusterConfiguration", replace(plan, etcd=etcd)) for plan in (PLAN, OLDER))
        for part in ("apiServer", "controllerManager", "scheduler"):
            assert older[part]["extraArgs"] == arguments(newer[part])
        assert older["etcd"]["local"]["extraArgs"] == arguments(newer["etcd"]["local"])
        assert not {"extraEnvs"} & {*older["etcd"]["local"], *older["apiServer"]}
        assert older["apiServer"]["extraVolumes"] == newer["apiServer"]["extraVolumes"]

    def test_what_the_older_format_has_no_word_for_is_left_out(self) -> None:
        cluster = patch("ClusterConfiguration", replace(OLDER, patience=2.0))
        assert "encryptionAlgorithm" not in cluster
        assert cluster["apiServer"]["timeoutForControlPlane"] == "480s"
        assert "timeoutForControlPlane" not in patch("ClusterConfiguration")["apiServer"]
        assert "timeouts" not in patch("InitConfiguration", OLDER)

    def test_no_patch_is_tied_to_a_version_of_kubeadms_format(self) -> None:
        """One that does not fit is dropped by kind without a word."""
        assert all(
            "apiVersion" not in json.loads(text) for text in kind_config.configuration(PLAN)["kubeadmConfigPatches"]
        )


class TestStrangers:
    def test_the_well_known_token_is_replaced_wherever_kind_has_it(self) -> None:
        assert patch("InitConfiguration")["bootstrapTokens"] == [{"token": PLAN.token}]
        assert patch("JoinConfiguration")["discovery"]["bootstrapToken"]["token"] == PLAN.token

    def test_tokens_are_random_and_in_kubeadms_form(self) -> None:
        tokens = {kind_config.bootstrap_token() for _ in range(100)}
        assert len(tokens) == 100
        assert WELL_KNOWN not in tokens
        for token in tokens:
            name, _, secret = token.partition(".")
            assert (len(name), len(secret)) == (6, 16)
            assert (name + secret).isalnum()
            assert (name + secret).islower()

    def test_tokens_are_never_to_be_taken_for_names(self, monkeypatch: pytest.MonkeyPatch) -> None:
        letters = iter("a" * 22 + "b" * 21 + "7")
        monkeypatch.setattr(secrets, "choice", lambda _: next(letters))
        token = kind_config.bootstrap_token()
        assert token == "bbbbbb.bbbbbbbbbbbbbbb7"  # noqa: S105
        assert token not in failure_report.without_secrets(f"joined with {token}")

    def test_without_credentials_there_is_nothing_but_health(self) -> None:
        content = kind_config.files(PLAN)["authentication.json"]
        assert content["kind"] == "AuthenticationConfiguration"
        assert content["anonymous"] == {
            "enabled": True,
            "conditions": [{"path": "/livez"}, {"path": "/readyz"}, {"path": "/healthz"}],
        }

    @pytest.mark.parametrize(
        ("version", "format"), [((1, 32, 0), "v1beta1"), ((1, 33, 9), "v1beta1"), ((1, 34, 0), "v1"), ((1, 36), "v1")]
    )
    def test_in_a_format_that_the_api_server_knows(self, version: node_image.Version, format: str) -> None:
        assert control_plane.authentication(version)["apiVersion"] == f"apiserver.config.k8s.io/{format}"

    def test_the_api_server_is_told_of_the_file_that_the_node_sees(self) -> None:
        server = patch("ClusterConfiguration")["apiServer"]
        volume = server["extraVolumes"][0]
        assert volume["hostPath"] == "/kind/moorage/authentication.json"
        assert arguments(server)["authentication-config"] == volume["mountPath"]
        assert volume["pathType"] == "File"
        # It is mounted anew for that, which fails in a user namespace where a flag is locked.
        assert volume["readOnly"] is False


class TestCost:
    def test_keys_are_cheap(self) -> None:
        assert patch("ClusterConfiguration")["encryptionAlgorithm"] == "ECDSA-P256"
        assert patch("ClusterConfiguration", OLDER)["featureGates"] == {"PublicKeysECDSA": True}

    @pytest.mark.parametrize(("etcd", "directory", "syncs"), [("memory", "/run/etcd", True), ("disk", None, False)])
    def test_etcd(self, etcd: kind_config.Storage, directory: str | None, syncs: bool) -> None:
        local = patch("ClusterConfiguration", replace(PLAN, etcd=etcd))["etcd"]["local"]
        assert local.get("dataDir") == directory
        assert ("unsafe-no-fsync" in arguments(local)) is not syncs

    @pytest.mark.parametrize(("etcd", "directory"), [("memory", "/run/etcd"), ("disk", "/var/lib/etcd")])
    def test_the_api_server_reaches_etcd_without_handshakes(self, etcd: kind_config.Storage, directory: str) -> None:
        """By a socket beside its data, which both have from the node under the same name; and there is no other way."""
        cluster = patch("ClusterConfiguration", replace(PLAN, etcd=etcd))
        server, local = arguments(cluster["apiServer"]), arguments(cluster["etcd"]["local"])
        door = f"unix://{directory}/door"
        assert local["listen-client-urls"] == server["etcd-servers"] == door
        # etcd refuses to start with that (3.6).
        assert "advertise-client-urls" not in local
        assert {server[f"etcd-{name}"] for name in ("cafile", "certfile", "keyfile")} == {""}
        volume = next(volume for volume in cluster["apiServer"]["extraVolumes"] if volume["name"] == "etcd")
        assert (volume["hostPath"], volume["mountPath"]) == (directory, directory)

    def test_an_etcd_that_knows_no_sockets_has_its_port(self) -> None:
        cluster = patch("ClusterConfiguration", replace(PLAN, version=(1, 33, 4)))
        assert "etcd-servers" not in cluster["apiServer"]["extraArgs"]
        assert "listen-client-urls" not in cluster["etcd"]["local"]["extraArgs"]
        assert [volume["name"] for volume in cluster["apiServer"]["extraVolumes"]] == ["authentication"]

    def test_two_of_them_collect_less_often(self) -> None:
        cluster = patch("ClusterConfiguration")
        for part in (cluster["apiServer"], cluster["etcd"]["local"]):
            assert part["extraEnvs"] == [{"name": "GOGC", "value": "200"}]

    def test_what_all_others_wait_for_comes_first(self) -> None:
        wanted = {
            name.partition("+")[0].partition("/")[2]: content for name, content in kind_config.files(PLAN).items()
        }
        cpu = {
            pod: int(wanted[pod]["spec"]["containers"][0]["resources"]["requests"]["cpu"].rstrip("m"))
            for pod in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
        }
        assert min(cpu["etcd"], cpu["kube-apiserver"]) >= 2 * max(cpu["kube-controller-manager"], cpu["kube-scheduler"])
        assert sum(cpu.values()) < 650

    @pytest.mark.parametrize(("patience", "often"), [(1.0, "10s"), (8.0, "20s")])
    def test_a_slow_api_server_has_time_to_take_a_nodes_status(self, patience: float, often: str) -> None:
        """By this kubelet bounds these requests, too: what does not get through in time is sent again and again."""
        assert patch("KubeletConfiguration", replace(PLAN, patience=patience))["nodeStatusUpdateFrequency"] == often

    def test_kubelet_is_not_restarted_in_the_middle(self) -> None:
        """kubeadm does that for a certificate's sake; what is skipped is taken whole, kind's own included."""
        assert patch("InitConfiguration")["skipPhases"] == ["preflight", "kubelet-finalize"]

    def test_one_node_has_one_name_server_which_must_be_there(self) -> None:
        spec = self.names(PLAN)
        assert (spec["replicas"], spec["strategy"]) == (1, {"rollingUpdate": {"maxUnavailable": 0}})

    def test_several_have_as_many_as_kubeadm_likes(self) -> None:
        assert not {"replicas", "strategy"} & self.names(replace(PLAN, nodes=2)).keys()

    @pytest.mark.parametrize(("nodes", "patience", "often", "timeout"), [(1, 1.0, 1, 1), (3, 8.0, 2, 8)])
    def test_that_names_can_be_asked_for_is_seen_at_once(
        self, nodes: int, patience: float, often: int, timeout: int
    ) -> None:
        (container,) = self.names(replace(PLAN, nodes=nodes, patience=patience))["template"]["spec"]["containers"]
        assert container["name"] == "coredns"
        assert container["readinessProbe"] == {"periodSeconds": often, "timeoutSeconds": timeout}

    def names(self, plan: Plan) -> dict[str, Any]:
        return dict(kind_config.files(plan)["patches/corednsdeployment+strategic.json"]["spec"])

    def test_containers_are_not_counted_every_second(self) -> None:
        (patch,) = kind_config.configuration(PLAN)["containerdConfigPatches"]
        assert tomllib.loads(patch)["plugins"]["io.containerd.cri.v1.runtime"] == {"stats_collect_period": "10s"}

    def test_kubelet_leaves_alone_what_is_reserved(self) -> None:
        assert patch("KubeletConfiguration")["systemReserved"] == {"cpu": "6100m", "memory": "1024Ki"}


class TestPatience:
    def test_without_any_all_is_as_kubernetes_has_it(self) -> None:
        cluster = patch("ClusterConfiguration")
        elections = {"leader-elect-lease-duration": "15s", "leader-elect-renew-deadline": "10s"}
        elections["leader-elect-retry-period"] = "1s"
        assert arguments(cluster["scheduler"]) == elections
        calls = {"kube-api-qps": "200", "kube-api-burst": "400"}
        assert arguments(cluster["controllerManager"]) == elections | calls | {"node-monitor-grace-period": "50s"}
        etcd = arguments(cluster["etcd"]["local"])
        assert (etcd["heartbeat-interval"], etcd["election-timeout"]) == ("100", "1000")
        assert patch("InitConfiguration")["timeouts"]["controlPlaneComponentHealthCheck"] == "240s"
        kubelet = patch("KubeletConfiguration")
        assert (kubelet["nodeLeaseDurationSeconds"], kubelet["runtimeRequestTimeout"]) == (40, "120s")
        probes = self.probes("kube-apiserver", PLAN)
        assert probes["livenessProbe"] == {"timeoutSeconds": 15, "periodSeconds": 10, "failureThreshold": 8}
        assert probes["readinessProbe"] == {"timeoutSeconds": 15, "periodSeconds": 1}

    def test_with_it_waits_grow_and_leases_only_so_far(self) -> None:
        plan = replace(PLAN, patience=8.0)
        cluster = patch("ClusterConfiguration", plan)
        assert arguments(cluster["scheduler"])["leader-elect-lease-duration"] == "30s"
        assert patch("InitConfiguration", plan)["timeouts"]["discovery"] == "2400s"
        probe = self.probes("etcd", plan)["livenessProbe"]
        assert probe["timeoutSeconds"] == 120
        assert probe["periodSeconds"] * probe["failureThreshold"] == 640

    @pytest.mark.parametrize(("patience", "lasts", "renewed"), [(1.0, "15s", "10s"), (8.0, "60s", "40s")])
    def test_with_several_nodes_who_is_slow_is_elected_for_longer(
        self, patience: float, lasts: str, renewed: str
    ) -> None:
        """Who loses an election begins anew, which makes an overloaded node slower still."""
        cluster = patch("ClusterConfiguration", replace(PLAN, nodes=3, patience=patience))
        for part in ("controllerManager", "scheduler"):
            told = arguments(cluster[part])
            assert (told["leader-elect-lease-duration"], told["leader-elect-renew-deadline"]) == (lasts, renewed)

    @pytest.mark.parametrize("pod", ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"])
    def test_kubeadm_finds_the_probes_of(self, pod: str) -> None:
        assert patch("InitConfiguration")["patches"] == {"directory": "/kind/moorage/patches"}
        assert self.probes(pod, PLAN)["startupProbe"]

    def probes(self, pod: str, plan: Plan) -> dict[str, Any]:
        (container,) = kind_config.files(plan)[f"patches/{pod}+strategic.json"]["spec"]["containers"]
        assert container["name"] == pod
        return dict(container)


class TestVersion:
    @pytest.mark.parametrize(
        ("image", "wanted", "version"),
        [
            ("kindest/node:v1.36.3", None, (1, 36, 3)),
            ("kindest/node:v1.36.3", "1.36", (1, 36, 3)),
            ("kindest/node:v1.36.3", "1.36.3", (1, 36, 3)),
            ("localhost:5000/kindest/node:v1.32.0-site.2", None, (1, 32, 0)),
            (f"kindest/node:v1.34.1@sha256:{'0' * 64}", "1.34", (1, 34, 1)),
        ],
    )
    def test_is_in_the_tag(self, image: str, wanted: str | None, version: node_image.Version) -> None:
        assert node_image.version(image, wanted) == version

    @pytest.mark.parametrize(
        ("image", "wanted", "line"),
        [
            ("kindest/node:latest", None, "names no version: give it one"),
            ("kindest/node:v1", None, "names no version"),
            ("localhost:5000/node", None, "names no version"),
            ("kindest/node:v1.31.9", None, "cannot be closed to strangers: take Kubernetes 1.32 or newer"),
            ("kindest/node:v1.36.3", "1.3", "this node has Kubernetes 1.36.3 and not 1.3: ask for version=1.36.3"),
            ("kindest/node:v1.36.3", "1.36.2", "has Kubernetes 1.36.3 and not 1.36.2"),
        ],
    )
    def test_which_will_not_do(self, image: str, wanted: str | None, line: str) -> None:
        with pytest.raises(UserError, match=line):
            node_image.version(image, wanted)

    IMAGES = ("kindest/node:v1.36.3", "site/node:v1.35.4", "kindest/node:v1.35.9")

    @pytest.mark.parametrize(
        ("wanted", "image"),
        [
            ("1.36", "kindest/node:v1.36.3"),
            ("1.35", "site/node:v1.35.4"),
            ("1.35.9", "kindest/node:v1.35.9"),
        ],
    )
    def test_chooses_the_first_image_that_is_it(self, wanted: str, image: str) -> None:
        assert node_image.chosen(self.IMAGES, wanted) == image

    @pytest.mark.parametrize("wanted", ["1.3", "1.35.5", "1.37"])
    def test_that_no_image_is(self, wanted: str) -> None:
        with pytest.raises(UserError) as refused:
            node_image.chosen(self.IMAGES[:2], wanted)
        assert str(refused.value) == (
            f"this node has Kubernetes 1.36.3 and 1.35.4 and not {wanted}: ask for version=1.36.3 or version=1.35.4"
        )
