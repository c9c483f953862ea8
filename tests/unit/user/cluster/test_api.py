"""The API of a cluster, asked over real TLS, and what of it is still missing."""

from __future__ import annotations

import copy
import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.common.deadline import Deadline
from moorage.common.errors import MoorageError
from moorage.common.events import Watch
from moorage.user.cluster import readiness
from moorage.user.cluster.api import Access, Api, Refused
from moorage.user.cluster.invitation import JoiningNodes
from moorage.user.cluster.node_resources import label
from support.api import READY, ApiServer, Authority

pytestmark = pytest.mark.commands("openssl")
LIMIT = 10.0


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


@pytest.fixture
def server(authority: Authority) -> Iterator[ApiServer]:
    with ApiServer(authority, READY) as server:
        yield server


def access(tmp_path: Path, text: str) -> Access:
    (tmp_path / "kubeconfig").write_text(text)
    return Access.of(tmp_path / "kubeconfig")


@pytest.fixture
def api(tmp_path: Path, server: ApiServer) -> Iterator[Api]:
    with Api(access(tmp_path, server.kubeconfig()), LIMIT) as api:
        yield api


def test_it_is_asked_with_the_certificate(api: Api, server: ApiServer) -> None:
    assert api.get(readiness.ACCOUNT)["metadata"]["name"] == "default"
    assert api.get(readiness.NODES)["items"]
    assert server.asked == [f"GET {readiness.ACCOUNT}", f"GET {readiness.NODES}"]


def test_a_refusal_carries_its_status(api: Api, server: ApiServer) -> None:
    server.answers["/secret"] = 403
    with pytest.raises(Refused, match="GET /secret: 403") as refused:
        api.get("/secret")
    assert refused.value.status == 403
    # The connection is as good as before.
    assert api.get(readiness.NODES)


def test_what_is_removed_may_be_gone_already(api: Api, server: ApiServer) -> None:
    server.answers["/there"] = {}
    api.remove("/there")
    api.remove("/not/there")
    server.answers["/kept"] = 409
    with pytest.raises(Refused):
        api.remove("/kept")
    assert server.asked == ["DELETE /there", "DELETE /not/there", "DELETE /kept"]


def test_a_lost_connection_is_made_anew(tmp_path: Path, authority: Authority) -> None:
    with ApiServer(authority, READY) as first:
        place = access(tmp_path, first.kubeconfig())
    with Api(place, LIMIT) as api:
        with pytest.raises(OSError, match="refused"):
            api.get(readiness.NODES)
        assert "does not answer (ConnectionRefusedError" in readiness.lacking(api, JoiningNodes())


class TestTrust:
    def test_another_authority_is_not_believed(self, tmp_path: Path, server: ApiServer) -> None:
        """Somebody else on the node may listen where our API server will."""
        other = Authority(tmp_path / "other")
        with Api(access(tmp_path, server.kubeconfig(other)), LIMIT) as api, pytest.raises(ssl.SSLCertVerificationError):
            api.get(readiness.NODES)
        assert server.asked == []

    def test_nor_a_certificate_for_another_name(self, tmp_path: Path) -> None:
        elsewhere = Authority(tmp_path / "elsewhere", names="IP:10.0.0.1")
        with ApiServer(elsewhere, READY) as server, Api(access(tmp_path, server.kubeconfig()), LIMIT) as api:
            with pytest.raises(ssl.SSLCertVerificationError):
                api.get(readiness.NODES)
            assert server.asked == []

    def test_no_key_is_left_in_a_file(self, api: Api) -> None:
        assert api.get(readiness.NODES)
        assert not [link for link in Path("/proc/self/fd").iterdir() if "memfd:pair" in _target(link)]


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "clusters: []", '{"clusters": [{"cluster": {}}], "users": [{}]}', "\x00"]
)
def test_a_kubeconfig_that_is_none(tmp_path: Path, text: str) -> None:
    with pytest.raises(MoorageError, match="is not understood"):
        access(tmp_path, text)


@pytest.mark.parametrize(("server", "port"), [("https://127.0.0.1:41234", 41234), ("https://somewhere", 443)])
def test_port(server: str, port: int) -> None:
    assert Access(server, "", "", "").port == port


@pytest.fixture
def watch() -> Iterator[Watch]:
    with Watch() as watch:
        yield watch


class TestReadiness:
    def test_ready(self, api: Api, server: ApiServer, watch: Watch) -> None:
        told: list[str] = []
        assert readiness.wait(api, Deadline(LIMIT), told.append, JoiningNodes(), watch) == ""
        assert told == []
        assert len(server.asked) == 4

    @pytest.mark.parametrize(
        ("path", "answer", "missing"),
        [
            (readiness.NODES, {"items": []}, "there is no node yet"),
            (readiness.NODES, {}, "there is no node yet"),
            (readiness.NODES, {"items": [{"metadata": {"name": "n1"}}]}, "node n1 is not Ready"),
            (readiness.NODES, 503, "the API answers 503 to GET /api/v1/nodes"),
            (readiness.NODES, 401, "the API answers 401 to GET /api/v1/nodes"),
            (readiness.DNS, 404, f"the API answers 404 to GET {readiness.DNS}"),
            (readiness.DNS, {"status": {}}, "CoreDNS is not available"),
            (
                readiness.DNS,
                {"status": {"conditions": [{"type": "Available", "status": "False"}]}},
                "CoreDNS is not available",
            ),
            (readiness.PROXY, {}, "kube-proxy is ready on 0 of 1 nodes"),
            (
                readiness.PROXY,
                {"status": {"desiredNumberScheduled": 2, "numberReady": 1}},
                "kube-proxy is ready on 1 of 2 nodes",
            ),
            (readiness.ACCOUNT, 404, f"the API answers 404 to GET {readiness.ACCOUNT}"),
            (readiness.ACCOUNT, {}, "there is no default service account"),
        ],
    )
    def test_what_is_missing(
        self,
        api: Api,
        server: ApiServer,
        watch: Watch,
        path: str,
        answer: Any,  # noqa: ANN401
        missing: str,
    ) -> None:
        server.answers[path] = answer
        assert readiness.lacking(api, JoiningNodes()) == missing
        assert readiness.wait(api, Deadline(0), lambda text: None, JoiningNodes(), watch) == missing

    def test_each_change_is_told_once(self, api: Api, server: ApiServer, watch: Watch) -> None:
        server.answers[readiness.NODES] = {"items": [{"metadata": {"name": "n1"}}]}
        server.answers[readiness.DNS] = {}
        told: list[str] = []

        def tell(text: str) -> None:
            told.append(text)
            fitting = {"node n1 is not Ready": readiness.NODES, "CoreDNS is not available": readiness.DNS}
            server.answers[fitting[text]] = copy.deepcopy(READY[fitting[text]])

        assert readiness.wait(api, Deadline(LIMIT), tell, JoiningNodes(), watch) == ""
        assert told == ["node n1 is not Ready", "CoreDNS is not available"]


def joining_nodes(names: tuple[str, ...], given_up: set[str]) -> JoiningNodes:
    joining = JoiningNodes(names)
    joining.give_up(*given_up)
    return joining


def node(name: str, by: str, ready: bool = True) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {"metadata": {"name": name, "labels": {"moorage/node": by}}, "status": {"conditions": conditions}}


class TestSeveralNodes:
    @pytest.mark.parametrize(
        ("nodes", "gone", "missing"),
        [
            ([node("host1", "n1")], set(), "n2 has not joined"),
            ([node("host1", "n1"), node("host2", "n2", ready=False)], set(), "node host2 is not Ready"),
            ([node("host1", "n1"), node("host2", "n2")], set(), "n3 has not joined"),
            ([node("host1", "n1"), node("host2", "n2"), node("host3", "n3")], set(), ""),
            # Whoever will not come is not waited for, also if he was half there.
            ([node("host1", "n1"), node("host2", "n2")], {"n3"}, ""),
            ([node("host1", "n1"), node("host2", "n2", ready=False)], {"n2", "n3"}, ""),
            ([node("host1", "n1", ready=False)], {"n2", "n3"}, "node host1 is not Ready"),
        ],
    )
    def test_all_that_come_have_to_be_ready(
        self, api: Api, server: ApiServer, nodes: list[dict[str, Any]], gone: set[str], missing: str
    ) -> None:
        server.answers[readiness.NODES] = {"items": nodes}
        ready = sum(one["status"]["conditions"][0]["status"] == "True" for one in nodes)
        server.answers[readiness.PROXY] = {"status": {"desiredNumberScheduled": len(nodes), "numberReady": ready}}
        assert readiness.lacking(api, joining_nodes(("n2", "n3"), gone)) == missing

    def test_who_is_late(self, api: Api, server: ApiServer) -> None:
        server.answers[readiness.NODES] = {"items": [node("host2", "n2"), node("host3", "n3", ready=False)]}
        assert readiness.late(api, JoiningNodes(("n2", "n3", "n4"))) == {"n3", "n4"}

    @pytest.mark.parametrize("name", ["n" * 70, "n2-", "n2_", "n2."])
    def test_names_that_cannot_be_labels(self, api: Api, server: ApiServer, name: str) -> None:
        first, second = node("host1", "n1"), node("host2", label(name))
        server.answers[readiness.NODES] = {"items": [first, second]}
        server.answers[readiness.PROXY] = {"status": {"desiredNumberScheduled": 2, "numberReady": 2}}
        assert readiness.lacking(api, JoiningNodes((name,))) == ""
        assert readiness.late(api, JoiningNodes((name,))) == set()
        # Half there, he is neither waited for nor counted.
        server.answers[readiness.NODES] = {"items": [first, node("host2", label(name), ready=False)]}
        server.answers[readiness.PROXY] = {"status": {"desiredNumberScheduled": 2, "numberReady": 1}}
        assert readiness.late(api, JoiningNodes((name,))) == {name}
        assert readiness.lacking(api, joining_nodes((name,), {name})) == ""

    def test_events_are_handled_while_it_waits(self, api: Api, server: ApiServer, watch: Watch) -> None:
        server.answers[readiness.NODES] = {"items": [node("host1", "n1")]}
        joining = JoiningNodes(("n2",))
        reading, writing = os.pipe()

        def hear() -> None:
            watch.off(reading)
            joining.give_up("n2")

        watch.on(reading, hear)
        os.write(writing, b"x")
        assert readiness.wait(api, Deadline(LIMIT), lambda text: None, joining, watch) == ""
        for end in (reading, writing):
            os.close(end)
