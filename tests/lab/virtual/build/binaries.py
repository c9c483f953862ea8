"""The programs of the lab's Kubernetes, each compiled from what the Go module proxy carries."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from moorage.common.errors import MoorageError

from .cache import Input, cached
from .progress import phase
from .tools import GO_TOOLCHAIN, tools

SOURCES = Path(__file__).resolve().parents[1] / "kubernetes"
REQUIREMENTS = (SOURCES / "go.mod", SOURCES / "go.sum")
# Nobody reads the debug data, and making it takes a fifteenth of the compiler's time.
BUILD = ("go", "build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-gcflags=all=-dwarf=false")
# With so rare a collection of garbage the compiler needs a quarter less time.
ENVIRONMENT = {"CGO_ENABLED": "0", "GOGC": "800"}


@dataclass(frozen=True)
class Own:
    """Built in our module: all programs there share the compiled versions that its go.mod settles on."""

    module: str

    @property
    def version(self) -> str:
        return required(self.module, REQUIREMENTS[0].read_text())

    @property
    def inputs(self) -> tuple[Input, ...]:
        return REQUIREMENTS

    def directory(self) -> Path:
        return SOURCES


@dataclass(frozen=True)
class Released:
    """Built in the module's own directory, with the dependencies it was released with; `sum` is as in a go.sum."""

    module: str
    version: str
    sum: str

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (self.module, self.version, self.sum)

    def directory(self) -> Path:
        wanted = f"{self.module}@{self.version}"
        go("mod", "download", wanted, unchecked=self.module)
        found = json.loads(go("mod", "download", "-json", wanted, unchecked=self.module))
        if found["Sum"] != self.sum:
            raise MoorageError(f"{wanted}: the module proxy's copy has sum {found['Sum']}, not {self.sum}")
        return Path(found["Dir"])


@dataclass(frozen=True)
class Program:
    """One executable: a package, and how it is compiled; `variables` are set by the linker."""

    name: str
    package: str
    source: Own | Released
    tags: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def command(self, target: Path) -> list[str]:
        stamps = " ".join(f"-X {name}={value}" for name, value in self.variables.items())
        return [*BUILD, f"-tags={','.join(self.tags)}", f"-ldflags=-s -w {stamps}", "-o", str(target), self.package]

    @property
    def inputs(self) -> tuple[Input, ...]:
        ours = (SOURCES / self.package,) if self.package.startswith("./") else ()
        return (GO_TOOLCHAIN, str(ENVIRONMENT), *self.command(Path(self.name)), *self.source.inputs, *ours)


@dataclass(frozen=True)
class Binaries:
    """A directory with all programs, and with the files that kind puts into a node."""

    place: Path

    def path(self, name: str) -> Path:
        return self.place / name

    @property
    def kind_files(self) -> Path:
        return self.place / "kind-files"


def required(module: str, requirements: str) -> str:
    """The version of `module` in the text of a go.mod."""
    found = re.search(rf"^\s*{re.escape(module)} (v\S+)", requirements, re.MULTILINE)
    if not found:
        raise MoorageError(f"{REQUIREMENTS[0]} does not require {module}")
    return found[1]


KUBERNETES = Own("k8s.io/kubernetes")
VERSION = KUBERNETES.version
PROVISIONER = Own("github.com/rancher/local-path-provisioner")
KIND = Released("sigs.k8s.io/kind", "v0.33.0", "h1:AjvDv3vOygb/VKLVQW87lfktIBzkxR8Ump9DjxC8+Lk=")
PLUGINS = Released(
    "github.com/containernetworking/plugins", "v1.9.1", "h1:8oU6WsIsU3bpnNZuvHp74a6cE1MJwbj2P7s4/yTUNlA="
)
CONTAINERD = Released(
    "github.com/containerd/containerd/v2", "v2.4.2", "h1:p6Qg+xbEz8lvwdhHDx0U469xENvp4LgGBx+E7djXkGw="
)

# Tags change shared packages, too: with different ones nothing would be shared.
OWN_TAGS = ("grpcnotrace", "kustomize_disable_go_plugin_support", "notest")
CONTAINERD_TAGS = ("grpcnotrace", "no_btrfs", "no_devmapper", "no_tracing", "no_zfs", "urfave_cli_no_docs")
SHIM_TAGS = ("no_grpc",)
MAJOR, MINOR, _ = VERSION.removeprefix("v").split(".", 2)
# kubeadm takes its own version for the cluster's, and asks for a release on the internet where it has none.
KUBERNETES_STAMPS = {
    f"{package}.{name}": value
    for package in ("k8s.io/client-go/pkg/version", "k8s.io/component-base/version")
    for name, value in (("gitVersion", VERSION), ("gitMajor", MAJOR), ("gitMinor", MINOR), ("gitTreeState", "clean"))
}
PLUGIN_STAMPS = {f"{PLUGINS.module}/pkg/utils/buildversion.BuildVersion": PLUGINS.version}
CONTAINERD_STAMPS = {
    f"{CONTAINERD.module}/version.Package": CONTAINERD.module,
    f"{CONTAINERD.module}/version.Version": CONTAINERD.version,
}

PROGRAMS = (
    Program("kubernetes", "./multicall", KUBERNETES, OWN_TAGS, KUBERNETES_STAMPS),
    Program("coredns", "./coredns", Own("github.com/coredns/coredns"), OWN_TAGS),
    Program("etcd", "./etcd", Own("go.etcd.io/etcd/server/v3"), OWN_TAGS),
    Program(
        "local-path-provisioner", PROVISIONER.module, PROVISIONER, OWN_TAGS, {"main.VERSION": PROVISIONER.version}
    ),
    Program("containerd", f"{CONTAINERD.module}/cmd/containerd", CONTAINERD, CONTAINERD_TAGS, CONTAINERD_STAMPS),
    Program("ctr", f"{CONTAINERD.module}/cmd/ctr", CONTAINERD, CONTAINERD_TAGS, CONTAINERD_STAMPS),
    Program(
        "containerd-shim-runc-v2", f"{CONTAINERD.module}/cmd/containerd-shim-runc-v2", CONTAINERD, SHIM_TAGS,
        CONTAINERD_STAMPS,
    ),
    Program("kind", KIND.module, KIND),
    *(
        Program(PurePosixPath(plugin).name, f"{PLUGINS.module}/plugins/{plugin}", PLUGINS, (), PLUGIN_STAMPS)
        for plugin in ("ipam/host-local", "main/bridge", "main/loopback", "main/ptp", "meta/portmap")
    ),
)  # fmt: skip


def binaries() -> Binaries:
    """All programs; what is not in the cache is built, one by one."""
    built = {program.name: built_program(program) for program in PROGRAMS} | {"pause": built_pause()}
    files = built_kind_files()
    inputs = sorted(directory.name for directory in (*built.values(), files))
    return Binaries(cached("binaries", inputs, lambda place: _gather(place, built, files)))


def built_program(program: Program) -> Path:
    """A directory with this program in it."""

    def build(place: Path) -> None:
        with phase(f"compiling {program.name} ({program.source.module} {program.source.version})"):
            command = program.command(place / program.name)
            go(*command[1:], directory=program.source.directory(), place=place)

    return cached(f"program-{program.name}", program.inputs, build)


def built_pause() -> Path:
    """What holds a pod's namespaces: C, in the Kubernetes module."""
    command = ["gcc", "-Os", "-Wall", "-Werror", "-static", "-s", f"-DVERSION={VERSION}"]

    def build(place: Path) -> None:
        with phase(f"compiling pause ({KUBERNETES.module} {VERSION})"):
            source = _required_directory(KUBERNETES.module) / "build/pause/linux/pause.c"
            tools().run([*command, "-o", str(place / "pause"), str(source)])

    return cached("program-pause", (*command, *REQUIREMENTS), build)


def built_kind_files() -> Path:
    """kind's files for a node: entrypoint, units, containerd's configuration."""

    def build(place: Path) -> None:
        shutil.copytree(KIND.directory() / "images/base/files", place, dirs_exist_ok=True)

    return cached("kind-files", KIND.inputs, build)


def go(*words: str, directory: Path = Path("/"), unchecked: str = "", place: Path | None = None) -> str:
    """Run the tools' Go; the sum of the module `unchecked` is not asked for on the network.

    In `place` it keeps its log, and temporary files where an interrupted build's are found and thrown away.
    """
    environment = tools().go_environment() | ENVIRONMENT | ({"GOTMPDIR": str(place)} if place else {})
    environment["GONOSUMDB"] = ",".join(filter(None, (environment.get("GONOSUMDB"), unchecked)))
    binds = [SOURCES] if directory == SOURCES else []
    log = place / "log" if place else None
    return tools().run(["go", *words], cwd=directory, env=environment, binds=binds, log=log).stdout


def _required_directory(module: str) -> Path:
    go("mod", "download", module, directory=SOURCES)
    return Path(go("list", "-m", "-f", "{{.Dir}}", module, directory=SOURCES).strip())


def _gather(place: Path, programs: Mapping[str, Path], kind_files: Path) -> None:
    for name, directory in programs.items():
        os.link(directory / name, place / name)
    shutil.copytree(kind_files, place / "kind-files")
