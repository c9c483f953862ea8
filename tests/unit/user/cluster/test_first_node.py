"""The start of a cluster: kind and Podman are stand-ins, the API server speaks real TLS."""

from __future__ import annotations

import json
import os
import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moorage.common import phases
from moorage.common.description import Kubernetes, Mooring, Segment
from moorage.common.errors import MoorageError, UserError
from moorage.common.events import Watch
from moorage.common.hardware import Bind, Hardware, Resource
from moorage.common.podman import Places
from moorage.user.cluster import failure, first_node, kind_progress, node_container, node_resources
from moorage.user.cluster.failure import Failed
from moorage.user.cluster.invitation import Invitation, JoiningNodes
from moorage.user.cluster.node_resources import GIB, Share
from support.api import READY, ApiServer, Authority
from support.described import described

pytestmark = pytest.mark.commands("openssl")

IMAGE = "kindest/node:v1.36.3"
FULL = f"docker.io/{IMAGE}"
PODMAN = """\
#!/bin/sh
echo "$@" >>{state}/podman
case "$1 $2" in
"image exists") grep -sqxF "$3" {state}/image || exit 1 ;;
"load --quiet") {load} ;;
"inspect --type=container") echo {pid} ;;
"logs --tail=300") echo "the node says" ;;
"run "*) ;;
"exec moorage-17-control-plane") case "$*" in
    *kubelet) echo "kubelet says" ;;
    */containers/\\*.log) echo "the API server says" ;;
    *) echo "nothing of that" >&2; exit 3 ;;
    esac ;;
*) exit 9 ;;
esac
"""
KIND = """\
#!/bin/sh
echo "$@" >{state}/kind
echo "$KIND_EXPERIMENTAL_PROVIDER $XDG_RUNTIME_DIR $(command -v podman)" >{state}/environment
podman run probe
echo "$KIND_EXPERIMENTAL_PODMAN_NETWORK" >{state}/network
echo "$HTTPS_PROXY" >{state}/proxy
for word; do case $word in
    --config=*) cp -p "${{word#--config=}}" {state}/configuration ;;
    --kubeconfig=*) kubeconfig=${{word#--kubeconfig=}} ;;
esac; done
cp -r {scratch}/kubernetes {state}/files
say() {{ echo " • $1  ..." >&2; }}
say "Preparing nodes"
{then}
say "Starting control-plane"
say "Installing CNI"
umask 077
cp {state}/kubeconfig "$kubeconfig"
"""


class Site:
    """A job on a node; `said` are the phases that it was told."""

    def __init__(self, place: Path, fakes: Path, api: ApiServer) -> None:
        self.state = place / "state"
        self.state.mkdir()
        self.api = api
        self.fakes = fakes
        self.places = Places(place / "run")
        self.tree = place / "k8s"
        for directory in (self.places.user, self.places.scratch, self.tree):
            directory.mkdir(parents=True)
        (self.state / "kubeconfig").write_text(api.kubeconfig())
        (self.state / "image").write_text(f"{FULL}\n")
        self.podman()
        self.kind()
        self.settled = Kubernetes(image=IMAGE, kind=str(fakes / "kind"))
        self.hardware = Hardware()
        self.said: list[str] = []

    def podman(self, pid: int = 0, load: str = "") -> None:
        load = load or f"echo {FULL} >{self.state}/image"
        self._program("podman", PODMAN.format(state=self.state, pid=pid or os.getpid(), load=load))

    def kind(self, then: str = "") -> None:
        self._program("kind", KIND.format(state=self.state, scratch=self.places.scratch, then=then))

    def _program(self, name: str, text: str) -> None:
        (self.fakes / name).write_text(text)
        (self.fakes / name).chmod(0o755)

    def boot(self, **settled: Any) -> first_node.Cluster:  # noqa: ANN401
        mooring = replace(self.mooring(), kubernetes=replace(self.settled, **settled))
        return self.start(mooring, JoiningNodes(), lambda invitation: None)

    def start(
        self,
        mooring: Mooring,
        joining: JoiningNodes,
        invite: Callable[[Invitation], object],
        prepare: Callable[[Watch], object] = lambda watch: None,
    ) -> first_node.Cluster:
        with Watch() as watch:
            prepare(watch)
            return first_node.boot(
                mooring, self.tree, lambda phase, text: self.said.append(text), watch, joining, invite
            )

    def mooring(self, require: str = "all") -> Mooring:
        fields = described(spec={"cluster": "kind", "require": require}, podman=str(self.fakes / "podman"))
        mooring = Mooring.from_dict(fields, self.places)
        return replace(mooring, kubernetes=self.settled, hardware=self.hardware)

    def noted(self, name: str) -> str:
        return (self.state / name).read_text()


@pytest.fixture
def site(tmp_path: Path, fakes: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(node_container, "KUBECTL", "bin/sh")
    monkeypatch.setattr(node_container, "astray", lambda process, tree: False)
    monkeypatch.setattr(node_resources, "of_job", lambda tree, whole, environ: Share(2, 4 * GIB, 4 * GIB - 1))
    with ApiServer(Authority(tmp_path / "pki"), READY) as api:
        yield Site(tmp_path, fakes, api)


def hurry(monkeypatch: pytest.MonkeyPatch, name: str, timeout: float) -> None:
    """Let this phase have a short timeout."""
    monkeypatch.setattr(phases, name, replace(getattr(phases, name), timeout=timeout))


class TestStart:
    def test_it_comes_up(self, site: Site) -> None:
        up = site.boot()
        assert (up.name, up.server) == ("moorage-17", site.api.url)
        assert site.said == [
            "looking for the node image",
            "starting kind",
            "creating the node container",
            "starting the control plane",
            "installing the pod network",
            "waiting until the cluster is ready",
        ]

    def test_kind_is_told_all_it_needs(self, site: Site) -> None:
        site.boot()
        words = site.noted("kind").split()
        assert words[:2] == ["create", "cluster"]
        # A failed one is kept to be looked into, and we wait by ourselves.
        assert {"--wait=0s", "--retain", f"--kubeconfig={site.places.user}/kubeconfig"} <= set(words)
        podman = str(site.places.user / "kind/podman")
        assert site.noted("environment").split() == ["podman", str(site.places.user), podman]
        assert json.loads(site.noted("configuration"))["nodes"][0]["image"] == FULL
        found = {path.name for path in (site.state / "files").rglob("*") if path.is_file()}
        assert {"authentication.json", "etcd+strategic.json"} <= found

    def test_kind_has_the_users_proxies(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
        site.boot()
        assert site.noted("proxy") == "http://proxy:3128\n"

    def test_the_kubeconfig_is_the_owners_alone_and_kubectl_is_there(self, site: Site) -> None:
        site.boot()
        assert stat.S_IMODE((site.places.user / "kubeconfig").stat().st_mode) == 0o600
        assert os.access(site.places.user / "bin/kubectl", os.X_OK)

    def test_the_token_is_gone_once_the_cluster_is_ready(self, site: Site) -> None:
        site.boot()
        patches = [json.loads(text) for text in json.loads(site.noted("configuration"))["kubeadmConfigPatches"]]
        (token,) = [token["token"] for patch in patches for token in patch.get("bootstrapTokens", [])]
        name = token.partition(".")[0]
        assert site.api.asked[-1] == f"DELETE /api/v1/namespaces/kube-system/secrets/bootstrap-token-{name}"
        assert not [
            path for path in site.places.run.rglob("*") if path.is_file() and token.encode() in path.read_bytes()
        ]
        assert stat.S_IMODE((site.state / "configuration").stat().st_mode) == 0o600

    def test_one_failure_to_remove_it_loses_nothing(self, site: Site) -> None:
        site.api.refuse("DELETE", 500, 503)
        site.boot()
        assert len([one for one in site.api.asked if one.startswith("DELETE ")]) == 3

    def test_one_that_cannot_be_removed_is_no_success(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        hurry(monkeypatch, "READINESS", 1.0)
        monkeypatch.setattr(kind_progress, "ANSWER", 1.0)
        site.api.refuse("DELETE", *[500] * 100)
        with pytest.raises(Failed, match=r"the bootstrap token cannot be removed: DELETE .*: 500$"):
            site.boot()

    def test_what_it_waits_for_is_told(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        hurry(monkeypatch, "READINESS", 0.5)
        site.api.answers["/api/v1/nodes"] = {"items": []}
        with pytest.raises(Failed, match=r"ready: not done after 0\.5 s, there is no node yet$"):
            site.boot()
        assert site.said[-1] == "waiting until the cluster is ready: there is no node yet"


class TestLoop:
    """kind is a child of the keeper's event loop."""

    def test_events_are_handled_while_kind_runs(self, site: Site) -> None:
        """kind goes on only after an event that comes while it runs."""
        site.kind(then=f"echo x >{site.state}/fifo; until [ -e {site.state}/go ]; do sleep 0.02; done")
        os.mkfifo(site.state / "fifo")
        reading = os.open(site.state / "fifo", os.O_RDWR)

        def prepare(watch: Watch) -> None:
            def hear() -> None:
                os.read(reading, 16)
                (site.state / "go").touch()

            watch.on(reading, hear)

        site.start(site.mooring(), JoiningNodes(), lambda invitation: None, prepare)
        os.close(reading)

    def test_kind_ends_with_a_start_that_makes_no_sense_any_more(self, site: Site) -> None:
        site.kind(then=f"echo $$ >{site.state}/pid; sleep 60")

        def check() -> None:
            if (site.state / "pid").exists():
                raise MoorageError("the agent has ended")

        with ExitStack() as guards, pytest.raises(Failed, match=r"^the agent has ended$"):
            site.start(
                site.mooring(),
                JoiningNodes(),
                lambda invitation: None,
                lambda watch: guards.enter_context(watch.guarded(check)),
            )
        assert not Path(f"/proc/{site.noted('pid').strip()}").exists()
        assert not (site.places.user / "kind.json").exists()

    def test_the_others_are_invited_before_kind_ends(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(first_node, "ADMIN", f"{site.state}/kubeconfig")
        kind = site.fakes / "kind"
        kind.write_text(
            kind.read_text().replace(
                'say "Installing CNI"\n',
                f'say "Installing CNI"\nuntil [ -e {site.state}/invited ]; do sleep 0.02; done\n',
            )
        )
        site.api.answers["/api/v1/nodes"] = {"items": [ready("host-n1", "n1"), ready("host-n2", "n2")]}
        segment = Segment("10.89.0.0/16", 1450, "0a:00:00:11:00:01", ("n1", "n2"))
        mooring = replace(site.mooring(), nodes=2, fabric=segment)
        site.start(mooring, JoiningNodes(("n2",)), lambda invitation: (site.state / "invited").touch())
        assert (site.state / "invited").exists()


def test_the_node_has_the_devices_that_the_job_may_open(site: Site) -> None:
    site.hardware = Hardware(("/dev/null", "/dev/no-such-device"), (Bind("/opt/lib", "/opt/tape"),))
    site.boot()
    (node,) = json.loads(site.noted("configuration"))["nodes"]
    assert [mount["hostPath"] for mount in node["extraMounts"]][2:-1] == ["/dev/null", "/opt/lib"]
    assert not [name for name in node["labels"] if name.startswith("moorage/gres-")]


def test_the_node_is_labelled_by_the_resources_of_which_the_job_may_open_some(site: Site) -> None:
    there = {"tape": ("/dev/null", "/dev/zero"), "disk": ("/dev/no-such-device",)}
    resources = [Resource(name, tuple((one,) for one in ours), Hardware(ours)) for name, ours in there.items()]
    site.hardware = Hardware(resources=tuple(resources))
    site.boot()
    (node,) = json.loads(site.noted("configuration"))["nodes"]
    assert [mount["hostPath"] for mount in node["extraMounts"]][2:-1] == ["/dev/null", "/dev/zero"]
    gres = {name: value for name, value in node["labels"].items() if name.startswith("moorage/gres-")}
    assert gres == {"moorage/gres-tape": "2"}


def ready(name: str, by: str) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True"}]
    return {"metadata": {"name": name, "labels": {"moorage/node": by}}, "status": {"conditions": conditions}}


class TestSeveralNodes:
    SEGMENT = Segment("10.89.0.0/16", 1450, "0a:00:00:11:00:01", ("n1", "n2", "n3"))

    @pytest.fixture(autouse=True)
    def _admin(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(first_node, "ADMIN", f"{site.state}/kubeconfig")

    def boot(
        self,
        site: Site,
        joining: JoiningNodes | None = None,
        require: str = "all",
        invite: Callable[[Invitation], object] = lambda invitation: None,
    ) -> first_node.Cluster:
        mooring = replace(site.mooring(require), nodes=3, fabric=self.SEGMENT)
        return site.start(mooring, joining or JoiningNodes(("n2", "n3")), invite)

    def nodes(self, site: Site, *names: str) -> None:
        site.api.answers["/api/v1/nodes"] = {"items": [ready(f"host-{name}", name) for name in names]}

    def test_the_others_are_invited_once_and_waited_for(self, site: Site) -> None:
        invited: list[Invitation] = []

        def invite(invitation: Invitation) -> None:
            invited.append(invitation)
            assert site.said[-1] == "installing the pod network"

        self.nodes(site, "n1", "n2", "n3")
        self.boot(site, invite=invite)
        (invitation,) = invited
        assert invitation.server == "https://10.89.0.2:6443"
        assert invitation.authority == site.api.authority.path("authority.crt").read_text()
        assert site.said[-1] == "waiting until all nodes are ready"
        assert invitation.token not in "".join(site.said)

    def test_the_node_is_in_the_jobs_network_by_its_own_addresses(self, site: Site) -> None:
        self.nodes(site, "n1", "n2", "n3")
        self.boot(site)
        assert site.noted("network") == "moorage\n"
        assert " --ip=10.89.0.2 --mac-address=0a:00:00:11:00:01 probe\n" in site.noted("podman")
        configuration = json.loads(site.noted("configuration"))
        assert configuration["nodes"][0]["labels"]["moorage/node"] == "n1"

    def test_alone_it_is_in_kinds_own(self, site: Site) -> None:
        site.boot()
        assert site.noted("network") == "\n"
        assert f"run --pidfile={site.places.user}/kind/process probe\n" in site.noted("podman")

    @pytest.mark.parametrize(
        ("require", "gone", "line"),
        [("all", set(), "n3 has not joined"), ("all", {"n3"}, ""), ("any", set(), ""), ("any", {"n3"}, "")],
    )
    def test_one_that_does_not_come(
        self, site: Site, monkeypatch: pytest.MonkeyPatch, require: str, gone: set[str], line: str
    ) -> None:
        hurry(monkeypatch, "NODES", 0.5)
        self.nodes(site, "n1", "n2")
        joining = JoiningNodes(("n2", "n3"))
        joining.give_up(*gone)
        if line:
            with pytest.raises(Failed, match=line):
                self.boot(site, joining, require)
        else:
            self.boot(site, joining, require)
            assert joining.given_up == {"n3"}

    def test_without_the_first_nothing_goes_on(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        hurry(monkeypatch, "NODES", 0.5)
        site.api.answers["/api/v1/nodes"] = {"items": []}
        with pytest.raises(Failed, match="there is no node yet"):
            self.boot(site, require="any")


class TestImage:
    def test_one_that_is_there_is_not_loaded(self, site: Site) -> None:
        site.boot(archive="/no/such/archive")
        assert "load" not in site.noted("podman")

    @pytest.mark.parametrize("there", [f"localhost/{IMAGE}", FULL, f"localhost/{IMAGE}\n{FULL}"])
    def test_kind_is_told_the_name_by_which_it_is_there(self, site: Site, there: str) -> None:
        """A short one it would take for one of Docker's, and fetch."""
        (site.state / "image").write_text(f"{there}\n")
        site.boot()
        assert json.loads(site.noted("configuration"))["nodes"][0]["image"] == there.split()[0]

    def test_else_the_archive_is(self, site: Site) -> None:
        (site.state / "image").unlink()
        site.boot(archive="/srv/node.tar")
        assert "load --quiet --input=/srv/node.tar" in site.noted("podman")
        assert site.said[:3] == ["looking for the node image", "loading the node image", "starting kind"]

    @pytest.mark.parametrize(
        ("settled", "load", "line"),
        [
            ({"image": None}, "", "settled on no node image: tell the administrator"),
            ({}, "", f"there is no image {IMAGE} on this node: tell the administrator of this node: `moorage image"),
            ({"archive": "/srv/node.tar"}, "true", f"there is no image {IMAGE} in /srv/node.tar"),
            ({"image": "kindest/node:latest"}, "", "names no version"),
            (
                {"least_memory": 8 * GIB},
                "",
                "this job has 2 CPUs and 4G on its node, and a cluster needs 2 CPUs and 8G",
            ),
        ],
    )
    def test_what_somebody_has_to_do_first(self, site: Site, settled: dict[str, object], load: str, line: str) -> None:
        (site.state / "image").unlink()
        site.podman(load=load)
        with pytest.raises(UserError, match=line):
            site.boot(**settled)
        assert not (site.state / "kind").exists()

    def test_no_kind(self, site: Site) -> None:
        with pytest.raises(UserError, match="there is no program /no/kind on this node"):
            site.boot(kind="/no/kind")
        assert not (site.places.user / "kind.json").exists()

    def test_a_load_that_takes_too_long(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        hurry(monkeypatch, "LOAD", 0.5)
        (site.state / "image").unlink()
        site.podman(load="sleep 60")
        with pytest.raises(Failed, match=r"^loading the node image: not done after 0\.5 s$"):
            site.boot(archive="/srv/node.tar")


class TestFailure:
    def fails(self, site: Site) -> Failed:
        with pytest.raises(Failed) as failed:
            site.boot()
        assert "\n" not in str(failed.value)
        return failed.value

    def test_kinds_own_words_name_the_cause(self, site: Site) -> None:
        site.kind(then="echo 'ERROR: failed to create cluster: no luck' >&2; echo more; exit 1")
        failed = self.fails(site)
        assert str(failed) == "creating the node container failed: failed to create cluster: no luck"

    def test_without_words_its_end_does(self, site: Site) -> None:
        site.kind(then="exit 7")
        assert str(self.fails(site)) == "creating the node container failed: kind has ended with 7"

    def test_one_that_was_killed_wants_memory(self, site: Site) -> None:
        site.kind(then="kill -KILL $$")
        assert str(self.fails(site)).endswith(
            "failed: kind was killed, as happens where memory is short: ask for more (--mem)"
        )

    def test_what_may_help_comes_along(self, site: Site) -> None:
        site.kind(then="echo 'ERROR: no luck' >&2; exit 1")
        logs = self.fails(site).logs
        assert "Preparing nodes" in logs["kind"]
        assert logs["node container"] == "the node says\n"
        assert logs["kubelet"] == "kubelet says\n"
        assert logs["pods"] == "the API server says\n"
        # What cannot be had does not hide the rest.
        assert "nothing of that" in logs["containerd"]

    def test_no_secret_is_cut_in_two(self, site: Site) -> None:
        key = f"-----BEGIN PRIVATE KEY-----\n{'hunter2 ' * failure.MOST}\n-----END PRIVATE KEY-----"
        (site.state / "said").write_text(key)
        site.kind(then=f"cat {site.state}/said; exit 1")
        assert "hunter2" not in self.fails(site).logs["kind"]

    def test_a_phase_that_takes_too_long_names_itself(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        container = replace(phases.CONTAINER, timeout=0.6)
        monkeypatch.setitem(kind_progress.ANNOUNCED, "Preparing nodes", container)
        site.kind(then=f"echo $$ >{site.state}/pid; sleep 60")
        assert str(self.fails(site)) == "creating the node container: not done after 0.6 s"
        assert not Path(f"/proc/{site.noted('pid').strip()}").exists()

    def test_a_node_that_does_not_run(self, site: Site) -> None:
        site.podman(pid=-1)
        assert str(self.fails(site)) == "the node container moorage-17-control-plane does not run"

    def test_a_node_that_is_not_in_a_cgroup_of_its_own(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(node_container, "astray", lambda process, tree: True)
        assert "is not in a cgroup of its own" in str(self.fails(site))

    def test_no_room_for_the_configuration(self, site: Site) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        try:
            failed = self.fails(site)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert str(failed) == "starting kind failed: File too large"
        assert failed.logs["node container"] == "the node says\n"
        assert not (site.places.user / "kind.json").exists()

    def test_the_configuration_does_not_stay(self, site: Site) -> None:
        site.kind(then="exit 1")
        self.fails(site)
        assert not (site.places.user / "kind.json").exists()


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("", ""),
        ("Creating cluster\nDeleted nodes\n", ""),
        ("ERROR: failed: x\nStack Trace:\n", "failed: x"),
        (f"ERROR: {'x' * 1000}", "x" * first_node.LONGEST_CAUSE),
        (
            'ERROR: command "podman run -e HTTP_PROXY=http://me:hunter2@p"',
            'command "podman run -e HTTP_PROXY=http://(removed)@p"',
        ),
    ],
)
def test_cause(said: str, cause: str) -> None:
    assert first_node.cause(said) == cause


def test_failed_is_shown_as_any_error() -> None:
    error: Callable[..., MoorageError] = Failed
    assert str(error("one\nline", {})) == "one line"
