"""The site's configuration: values, their places, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.common.errors import UserError
from moorage.node.config.load import examine, load
from moorage.node.config.schema import Config, settings
from moorage.node.config.values import GIB, MIB, shown_size
from moorage.node.factcache import Facts

SHIPPED = Path(__file__).parents[4] / "config" / "moorage.yaml"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "moorage.yaml"


def test_without_a_file_all_is_default(file: Path) -> None:
    config = load(file)
    assert config == Config()
    assert {config.source(name) for name, _ in config.values()} == {"default"}


@pytest.mark.parametrize(
    "text", ["", "# nothing but a comment\n", "scratch:\n  # size: 1G\nnode_fault: fail\n", "---\n"]
)
def test_what_says_nothing_changes_nothing(file: Path, text: str) -> None:
    file.write_text(text)
    assert load(file) == Config()


def test_values_know_where_they_come_from(file: Path) -> None:
    file.write_text(
        "node_fault: drain\n\nscratch:\n  size: 3G\n  path: /local/moorage\n"
        "uplink: {allowed: [pasta]}\nwait:\n  kill: 2.5\n"
    )
    config = load(file)
    assert (config.node_fault, config.scratch.size, config.scratch.path) == ("drain", 3 * GIB, Path("/local/moorage"))
    assert (config.uplink.allowed, config.wait.kill) == (("pasta",), 2.5)
    assert config.scratch.kind == Config().scratch.kind
    assert [config.source(name) for name in ("node_fault", "scratch.size", "scratch.kind", "uplink.allowed")] == [
        f"{file}:1",
        f"{file}:4",
        "default",
        f"{file}:6",
    ]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("node_faults: fail\n", 1, "there is no setting node_faults: did you mean node_fault?"),
        ("\n\nscratch:\n  knd: loop\n", 4, "there is no setting scratch.knd: did you mean scratch.kind?"),
        ("scratch: 5\n", 1, "there is no setting scratch"),
        ("nodes:\n", 1, "there is no setting nodes: `moorage config show` lists all settings"),
        ("metrics:\n  way: /x\n", 2, "there is no setting metrics.way: use one of metrics.directory"),
        ("scratch:\n  kind: disk\n", 2, "scratch.kind is 'disk': give one of loop, tmpfs, project, directory"),
        ("scratch:\n  kind: [loop]\n", 2, "give one of loop"),
        ("scratch:\n  kind:\n", 2, "scratch.kind is empty: give one of loop"),
        ("scratch:\n  size: 20 G\n", 2, "scratch.size is '20 G': give a size from 64M to 100T"),
        ("scratch:\n  size: 1M\n", 2, "give a size from 64M"),
        ("scratch:\n  size: -5\n", 2, "give a size"),
        ("scratch:\n  size: true\n", 2, "give a size"),
        ("scratch:\n  size: 1.5G\n", 2, "give a size"),
        ("scratch:\n  size: 999999999999999T\n", 2, "give a size"),
        ("scratch:\n  path: local\n", 2, "give an absolute path"),
        ("scratch:\n  path: /a/../etc\n", 2, "give an absolute path"),
        ("scratch:\n  path: /a b\n", 2, "give an absolute path"),
        ("scratch:\n  path: /\n", 2, "give an absolute path"),
        ("scratch:\n  path: /scratch/.hidden\n", 2, "give an absolute path"),
        ("run:\n  inodes: 16k\n", 2, "run.inodes is '16k': give a whole number from 1024"),
        ("run:\n  inodes: true\n", 2, "give a whole number"),
        ("kubernetes:\n  image: node\n", 2, "give the name of an image with its tag, such as kindest/node:v1.36.3"),
        ("kubernetes:\n  image: Node:1\n", 2, "give the name of an image"),
        ("kubernetes:\n  patience: 0.5\n", 2, "kubernetes.patience is 0.5: give a number from 1 to 20"),
        ("kubernetes:\n  patience: .inf\n", 2, "give a number from 1"),
        ("kubernetes:\n  etcd: ram\n", 2, "give one of memory, disk"),
        ("fabric:\n  source_ports: 600\n", 2, "fabric.source_ports is 600: give a range of ports, such as 600-1023"),
        ("fabric:\n  source_ports: 600-600\n", 2, "fabric.source_ports is '600-600': give a range of ports, such as"),
        ("fabric:\n  source_ports: 1023-600\n", 2, "give a range of ports"),
        ("fabric:\n  source_ports: 0-600\n", 2, "give a range of ports"),
        ("fabric:\n  source_ports: 600-65536\n", 2, "give a range of ports"),
        ("fabric:\n  host: node\n", 2, "fabric.host is 'node': give a name with {host} in it once"),
        ("fabric:\n  host: '{host}{host}'\n", 2, "give a name with {host} in it once"),
        ("fabric:\n  host: {host}\n", 2, "fabric.host"),
        ("fabric:\n  interface: ib0/1\n", 2, "give the name of a network interface, such as eth1"),
        ("fabric:\n  interface: sixteen-letters0\n", 2, "give the name of a network interface"),
        ("fabric:\n  subnet: 10.89.0.0/24\n", 2, "give an IPv4 network of 16 bits, such as 10.89.0.0/16"),
        ("fabric:\n  subnet: 10.89.1.0/16\n", 2, "give an IPv4 network of 16 bits"),
        ("fabric:\n  subnet: 256.89.0.0/16\n", 2, "give an IPv4 network of 16 bits"),
        ("fabric:\n  subnet: 224.0.0.0/16\n", 2, "give an IPv4 network of 16 bits"),
        ("kubernetes:\n  further_images: kindest/node:v1.35.4\n", 2, "give a list of images with their tags"),
        ("kubernetes:\n  further_images: [node]\n", 2, "give a list of images with their tags"),
        ("policy:\n  users: alice\n", 2, "policy.users is 'alice': give a list of names, each once; [] for none"),
        ("policy:\n  users: [alice, alice]\n", 2, "give a list of names"),
        ("policy:\n  accounts: [007]\n", 2, "a name of digits in quotes"),
        ("policy:\n  groups: [-h]\n", 2, "give a list of names"),
        ("policy:\n  partitions: ['a:b']\n", 2, "give a list of names"),
        ('policy:\n  qos: ["a\\nb"]\n', 2, "give a list of names"),
        ("policy:\n  user: [alice]\n", 2, "there is no setting policy.user: did you mean policy.users?"),
        ("policy:\n  most_nodes: 0\n", 2, "policy.most_nodes is 0: give a whole number from 1"),
        ('policy:\n  contact: "a\\nb"\n', 2, "give a few words"),
        ("policy:\n  contact: ''\n", 2, "give a few words"),
        ("pids_max: 10\n", 1, "give a whole number from 256"),
        ("wait:\n  kill: 0\n", 2, "wait.kill is 0: give seconds, from 1 to 3600"),
        ("wait:\n  kill: soon\n", 2, "give seconds"),
        ("wait:\n  kill: .nan\n", 2, "give seconds"),
        ("wait:\n  kill: yes\n", 2, "give seconds"),
        ("uplink:\n  allowed: pasta\n", 2, "give a list of one or more of pasta, slirp4netns"),
        ("uplink:\n  allowed: []\n", 2, "give a list"),
        ("uplink:\n  allowed: [pasta, pasta]\n", 2, "each once"),
        ("uplink:\n  order: [tun]\n", 2, "give a list"),
        ("uplink:\n  order: [[pasta]]\n", 2, "no kind of value"),
        ("uplink:\n  by: size\n", 2, "uplink.by is 'size': give one of measure, order"),
        ("uplink:\n  resolvers: [10.1.0.256]\n", 2, "give a list of IPv4 addresses"),
        ("uplink:\n  resolvers: [10.1.0.0/16]\n", 2, "give a list of IPv4 addresses"),
        ("uplink:\n  resolvers: ['fd00::53']\n", 2, "give a list of IPv4 addresses"),
        ("uplink:\n  refused: [10.1.0.1/16]\n", 2, "give a list of IPv4 networks"),
        ("uplink:\n  refused: [10.1.0.1]\n", 2, "give a list of IPv4 networks"),
        ("uplink:\n  pool: 100.96.0.0/29\n", 2, "give an IPv4 network of 8 to 24 bits, such as 100.96.0.0/16"),
        ("uplink:\n  pool: 100.96.0.1/16\n", 2, "give an IPv4 network of 8 to 24 bits"),
        ("uplink:\n  pool: [100.96.0.0/16]\n", 2, "give an IPv4 network of 8 to 24 bits"),
        ("uplink:\n  connections: 1\n", 2, "give a whole number from 16"),
        ("uplink:\n  connections: 2049\n", 2, "to 2048"),
        ("node_fault: fail\nnode_fault: drain\n", 2, "node_fault cannot stand here: name each setting once"),
        ("- a\n", 1, "the file is no section: write settings as NAME: VALUE"),
        ("just words\n", 1, "the file is no section"),
        ("[a]: b\n", 1, "this key cannot stand here"),
        ("a: {b: {c: {d: 1}}}\n", 1, "is no section"),
        ("node_fault: !!python/object/apply:os.system [reboot]\n", 1, "give one of fail, drain"),
        ("node_fault: !!binary aGVsbG8=\n", 1, "is no kind of value here"),
        ("node_fault: 'fail\n", 2, "this is not YAML"),
        ("\tnode_fault: fail\n", 1, "this is not YAML"),
        ("a: &a [*a]\n", 1, "no kind of value"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(file: Path, text: str, line: int, words: str) -> None:
    file.write_text(text)
    with pytest.raises(UserError) as refused:
        load(file)
    assert str(refused.value).startswith(f"{file}:{line}: ")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fabric:\n  subnet: 10.244.0.0/16\n", "2: fabric.subnet is 10.244.0.0/16, and kubernetes.pods is 10.244.0.0/"),
        ("kubernetes:\n  pods: 10.0.0.0/8\n", "2: podman.pool is 10.88.0.0/16, and kubernetes.pods is 10.0.0.0/8"),
        ("kubernetes:\n  services: 10.244.8.0/24\n", "2: kubernetes.pods is 10.244.0.0/16, and kubernetes.services is"),
        ("uplink:\n  pool: 10.89.4.0/24\n", "2: fabric.subnet is 10.89.0.0/16, and uplink.pool is 10.89.4.0/24"),
        ("uplink:\n  pool: 10.1.0.0/24\npodman:\n  pool: 10.1.0.0/16\n", "4: podman.pool is 10.1.0.0/16, and uplink."),
    ],
)
def test_networks_that_overlap_are_refused(file: Path, text: str, words: str) -> None:
    """A container would reach one of them at most, and nobody would know which."""
    file.write_text(text)
    with pytest.raises(UserError) as refused:
        load(file)
    assert str(refused.value).startswith(f"{file}:{words}")
    assert str(refused.value).endswith(": give each a network of its own")
    assert [str(fault) for fault in examine(file)[1]].count(str(refused.value)) == 1


def test_networks_that_only_touch_do_not_overlap(file: Path) -> None:
    file.write_text("fabric:\n  subnet: 10.87.0.0/16\nkubernetes:\n  services: 10.89.0.0/16\n")
    assert load(file).fabric.subnet == "10.87.0.0/16"


def test_a_file_that_others_can_write_is_refused(file: Path) -> None:
    file.write_text("node_fault: fail\n")
    file.chmod(0o666)
    with pytest.raises(UserError, match="can be written by others"):
        load(file)


def test_a_file_without_end_is_refused(file: Path) -> None:
    file.write_text("#" * (1 << 19))
    with pytest.raises(UserError, match="too long"):
        load(file)


def test_a_file_is_parsed_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("scratch:\n  size: 3G\n")
    facts = Facts()
    first = load(file, facts)
    monkeypatch.setattr("moorage.node.config.load._parsed", lambda path: pytest.fail("it was parsed again"))
    assert load(file, facts) == first
    assert load(file, facts).source("scratch.size") == f"{file}:2"


def test_a_changed_file_is_parsed_again(file: Path) -> None:
    facts = Facts()
    file.write_text("scratch:\n  size: 3G\n")
    load(file, facts)
    file.write_text("scratch:\n  size: 4096M\n")
    assert load(file, facts).scratch.size == 4 * GIB


def test_names_as_directories_have_them(file: Path) -> None:
    file.write_text("policy:\n  users: ['DOMAIN\\alice', bob@realm, node$]\n  groups: [domain users, '007']\n")
    rule = load(file).policy
    assert rule.users == ("DOMAIN\\alice", "bob@realm", "node$")
    assert rule.groups == ("domain users", "007")


def test_images_in_their_order_each_once(file: Path) -> None:
    file.write_text("kubernetes: {image: 'k:v1.36.3', further_images: ['k:v1.35.4', 'k:v1.36.3', 'k:v1.34.1']}\n")
    assert load(file).kubernetes.images == ("k:v1.36.3", "k:v1.35.4", "k:v1.34.1")
    assert Config().kubernetes.images == ()


def test_the_shipped_file_says_what_is_so_anyway() -> None:
    config = load(SHIPPED)
    assert config == Config()
    assert {name for name, _ in config.values() if config.source(name) == "default"} == {
        "fabric.hosts",
        "fabric.interface",
        "kubernetes.archive",
        "kubernetes.image",
        "kubernetes.kind",
        "metrics.directory",
        "policy.most_nodes",
        "slurm.bin",
    }


def test_every_setting_is_documented() -> None:
    reference = (SHIPPED.parents[1] / "docs" / "reference" / "configuration.md").read_text()
    missing = [name for name in settings() if f"`{name}`" not in reference]
    assert not missing


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "0"),
        (1, "1"),
        (1023, "1023"),
        (1024, "1K"),
        (1536, "1536"),
        (64 * MIB, "64M"),
        (20 * GIB, "20G"),
        (100 << 40, "100T"),
    ],
)
def test_sizes_are_shown_in_their_largest_whole_unit(number: int, words: str) -> None:
    assert shown_size(number) == words
