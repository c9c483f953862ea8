"""What Podman is told: nothing shared with another job, nothing that a user can bend, in files that it can read."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moorage.common import podman as podmanenv
from moorage.common.hardware import Bind, Hardware
from moorage.common.job import Job
from moorage.common.podman import Places
from moorage.root import podman_conf
from moorage.root.podman_conf import Tools

RUN = Path("/run/moorage/17")
PLACES = Places(RUN)
TOOLS = Tools(Path("/usr/bin/podman"), Path("/usr/bin/crun"), "pasta", python=Path("/opt/moorage/bin/python3"))
JOB = Job(17, 0, 1000, 1000, "alice", "n1", frozenset({"job_17"}))


def containers(tools: Tools = TOOLS, places: Places = PLACES) -> dict[str, Any]:
    return tomllib.loads(podman_conf.containers_conf(places, tools))


def values(content: object) -> list[str]:
    """Every text in the file, however deep."""
    if isinstance(content, dict):
        return [value for one in content.values() for value in values(one)]
    if isinstance(content, list):
        return [value for one in content for value in values(one)]
    return [content] if isinstance(content, str) else []


class TestContainersConf:
    @pytest.mark.parametrize(
        ("section", "key", "value"),
        [
            ("containers", "log_driver", "k8s-file"),
            ("containers", "pids_limit", 0),
            ("engine", "cgroup_manager", "cgroupfs"),
            ("engine", "lock_type", "file"),
            ("engine", "events_logger", "file"),
            ("engine", "remote", False),
            ("engine", "tmp_dir", "/run/moorage/17/user/libpod/tmp"),
            ("engine", "static_dir", "/run/moorage/17/scratch/storage/libpod"),
            ("engine", "image_copy_tmp_dir", "/run/moorage/17/scratch/tmp"),
            ("network", "default_rootless_network_cmd", "pasta"),
        ],
    )
    def test_says(self, section: str, key: str, value: object) -> None:
        assert containers()[section][key] == value

    @pytest.mark.parametrize("driver", ["pasta", "slirp4netns"])
    def test_large_packets_whatever_the_driver(self, driver: str) -> None:
        content = containers(Tools(Path("/p"), Path("/c"), driver))
        assert content["network"]["default_rootless_network_cmd"] == driver
        assert content["engine"]["network_cmd_options"] == ["mtu=65520"]
        assert content["network"]["pasta_options"] == ["--mtu", "65520"]

    @pytest.mark.parametrize("driver", ["kernel", "none"])
    def test_podman_starts_our_own_where_it_knows_not_the_driver(self, driver: str) -> None:
        content = containers(replace(TOOLS, driver=driver))
        assert content["network"]["default_rootless_network_cmd"] == "pasta"
        assert content["engine"]["helper_binaries_dir"][0] == "/run/moorage/17/helpers"
        assert "/usr/lib/podman" in content["engine"]["helper_binaries_dir"]
        assert content["containers"]["netns"] == "bridge"
        text, mode = podman_conf.files(JOB, replace(TOOLS, driver=driver))["helpers/pasta"]
        assert (text, mode) == (podman_conf.stand_in(replace(TOOLS, driver=driver)), 0o755)

    @pytest.mark.parametrize("driver", ["pasta", "slirp4netns"])
    def test_podman_has_its_own_programs_else(self, driver: str) -> None:
        tools = replace(TOOLS, driver=driver)
        assert "helper_binaries_dir" not in containers(tools)["engine"]
        assert "netns" not in containers(tools)["containers"]
        assert "helpers/pasta" not in podman_conf.files(JOB, tools)

    def test_slirp4netns_has_a_network_that_hides_nothing(self) -> None:
        options = containers(replace(TOOLS, driver="slirp4netns", between="100.96.1.0/24"))["engine"]
        assert options["network_cmd_options"] == ["mtu=65520", "cidr=100.96.1.0/24"]

    def test_its_own_networks_are_the_sites(self) -> None:
        content = containers(replace(TOOLS, networks=("10.88.64.0/18", "10.88.128.0/18", "10.88.192.0/18")))
        assert content["network"]["default_subnet"] == "10.88.64.0/18"
        pools = [{"base": base, "size": 24} for base in ("10.88.128.0/18", "10.88.192.0/18")]
        assert content["network"]["default_subnet_pools"] == pools

    def test_resolvers_are_named_where_podman_must_not_look_for_them(self) -> None:
        assert "dns_servers" not in containers()["containers"]
        assert containers(replace(TOOLS, resolvers=("192.0.2.53",)))["containers"]["dns_servers"] == ["192.0.2.53"]

    def test_the_runtime_that_was_checked_and_no_other_of_its_name(self) -> None:
        content = containers(Tools(Path("/p"), Path("/opt/site/bin/runc"), "pasta"))
        assert content["engine"]["runtime"] == "runc"
        assert content["engine"]["runtimes"] == {"runc": ["/opt/site/bin/runc"]}

    def test_hardware_is_for_every_container(self) -> None:
        hardware = Hardware(
            ("/dev/tape0",), (Bind("/opt/lib", "/opt/tape"), Bind("/a", "/a", writable=True)), ("A=b c",)
        )
        content = tomllib.loads(podmanenv.hardware_conf(hardware))["containers"]
        assert content["devices"] == ["/dev/tape0:/dev/tape0:rw"]
        assert content["mounts"] == [
            "type=bind,source=/opt/lib,destination=/opt/tape,ro=true",
            "type=bind,source=/a,destination=/a,ro=false",
        ]
        # The one list takes the place of Podman's own, without which a container of a bare image has no PATH.
        assert content["env"] == ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "A=b c"]

    def test_without_any_podmans_own_is_kept(self) -> None:
        assert tomllib.loads(podmanenv.hardware_conf(Hardware())) == {"containers": {}}
        assert not {"devices", "mounts", "env"} & containers()["containers"].keys()

    def test_two_jobs_share_no_place(self) -> None:
        places = [
            {
                value
                for content in (containers(places=job), tomllib.loads(podman_conf.storage_conf(job)))
                for value in values(content)
                if value.startswith("/") and not value.startswith("/usr/")
            }
            for job in (Places(Path("/run/moorage/17")), Places(Path("/run/moorage/18")))
        ]
        assert not places[0] & places[1]
        assert all(len(each) > 5 for each in places)

    def test_every_key_has_its_reason(self) -> None:
        for text in (podman_conf.containers_conf(PLACES, TOOLS), podman_conf.storage_conf(PLACES)):
            lines = text.splitlines()
            keys = [number for number, line in enumerate(lines) if " = " in line]
            assert keys
            assert all(lines[number - 1].startswith("# ") for number in keys)


def test_images_are_on_scratch_and_what_runs_is_in_memory() -> None:
    storage = tomllib.loads(podman_conf.storage_conf(PLACES))["storage"]
    assert storage == {
        "driver": "overlay",
        "rootless_storage_path": "/run/moorage/17/scratch/storage",
        "runroot": "/run/moorage/17/user/containers",
    }


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("etc/containers.conf", 0o644),
        ("etc/storage.conf", 0o644),
        ("etc/registries.conf", 0o644),
        ("bin/podman", 0o755),
    ],
)
def test_files(name: str, mode: int) -> None:
    assert podman_conf.files(JOB, TOOLS)[name][1] == mode


@pytest.mark.parametrize(("site", "ours"), [(None, ""), ("[[registry]]\n", "[[registry]]\n")])
def test_the_sites_registries_are_used(site: str | None, ours: str) -> None:
    tools = Tools(Path("/p"), Path("/c"), "pasta", registries=site)
    assert podman_conf.files(JOB, tools)["etc/registries.conf"][0] == ours


def test_wrapper_is_a_program_that_knows_its_job() -> None:
    text = podman_conf.wrapper(PLACES, TOOLS)
    first = text.partition("\n")[0]
    assert first == "#!/opt/moorage/bin/python3 -IS"
    # The kernel cuts what is longer.
    assert len(first) < 127
    assert "'/run/moorage/17/user/keeper.sock', '/usr/bin/podman'" in text
    compile(text, "podman", "exec")


class TestEnvironment:
    @pytest.mark.parametrize(
        "name",
        [
            "CONTAINER_HOST",
            "CONTAINER_CONNECTION",
            "CONTAINERS_CONF_OVERRIDE",
            "CONTAINERS_HELPER_BINARY_DIR",
            "_CONTAINERS_USERNS_CONFIGURED",
            "PODMAN_USERNS",
            "STORAGE_DRIVER",
            "STORAGE_OPTS",
        ],
    )
    def test_what_would_bend_podman_is_gone(self, name: str) -> None:
        for make in (podmanenv.inside, podmanenv.script):
            assert make({name: "x", "PATH": "/bin"}, PLACES).get(name) != "x"

    @pytest.mark.parametrize("name", ["NOTIFY_SOCKET", "LISTEN_FDS", "INVOCATION_ID"])
    def test_what_tells_of_a_service_manager_stays_outside(self, name: str) -> None:
        assert name not in podmanenv.inside({name: "x"}, PLACES)
        assert podmanenv.script({name: "x"}, PLACES)[name] == "x"

    @pytest.mark.parametrize("name", ["HTTPS_PROXY", "REGISTRY_AUTH_FILE", "STORAGE_OF_MY_OWN", "SLURM_JOB_ID", "HOME"])
    def test_the_rest_is_the_callers(self, name: str) -> None:
        for make in (podmanenv.inside, podmanenv.script):
            assert make({name: "x"}, PLACES)[name] == "x"

    @pytest.mark.parametrize(
        "name",
        ["XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "TMPDIR", "DBUS_SESSION_BUS_ADDRESS"],
    )
    def test_places_in_the_tree_are_the_jobs(self, name: str) -> None:
        assert "/run/moorage/17/" in podmanenv.inside({name: "/home/alice"}, PLACES)[name] + "/"

    @pytest.mark.parametrize("name", ["XDG_CONFIG_HOME", "XDG_CACHE_HOME", "TMPDIR", "DBUS_SESSION_BUS_ADDRESS"])
    def test_the_scripts_own_places_stay_its_own(self, name: str) -> None:
        assert podmanenv.script({name: "/home/alice"}, PLACES)[name] == "/home/alice"

    @pytest.mark.parametrize(
        ("path", "inside", "script"),
        [
            ("/bin:/usr/bin", "/bin:/usr/bin", "/run/moorage/17/bin:/bin:/usr/bin"),
            ("/run/moorage/17/bin:/bin", "/bin", "/run/moorage/17/bin:/run/moorage/17/bin:/bin"),
            (None, "", "/run/moorage/17/bin"),
        ],
    )
    def test_path(self, path: str | None, inside: str, script: str) -> None:
        environ = {} if path is None else {"PATH": path}
        assert podmanenv.inside(environ, PLACES)["PATH"] == inside
        assert podmanenv.script(environ, PLACES)["PATH"] == script

    def test_somebody_without_a_home_gets_one(self) -> None:
        assert podmanenv.inside({}, PLACES)["HOME"] == "/run/moorage/17/user"

    def test_what_must_be_made_is_in_the_users_parts(self) -> None:
        assert all(place.parent in (PLACES.user, PLACES.scratch) for place in PLACES.to_make)
        made = {str(place) for place in PLACES.to_make}
        named = {
            name: value for name, value in podmanenv.environment(PLACES).items() if name.startswith(("XDG_", "TMP"))
        }
        assert set(named.values()) - made == {str(PLACES.user)}
