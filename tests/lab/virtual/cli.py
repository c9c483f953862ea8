"""The command `lab`."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from moorage.common.errors import FAILED, reported

from . import demo, rollout
from .bench import baseline, lab_speed, start
from .build.cache import CACHE
from .build.progress import phase, say
from .guest import builds, cluster, files
from .guest.cluster import Cluster
from .guest.record import Request

DEFAULT_DIRECTORY = CACHE / "lab"
DEFAULT_PORT = 22200
SUITES = ("trixie", "unstable")
USERS = ("alice", "bob", "carol")


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    # Asked to end, it ends its guests first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with reported("lab"):
        sys.exit(arguments.action(arguments))


def build(arguments: argparse.Namespace) -> None:
    for suite in arguments.suite or SUITES[:1]:
        builds.build(suite, refresh=arguments.refresh)


def up(arguments: argparse.Namespace) -> None:
    with builds.alone(arguments.directory):
        builds.not_up(arguments.directory)
        request = Request(
            arguments.nodes, arguments.suite, arguments.port, apparmor=arguments.apparmor, ipv6=arguments.ipv6
        )
        lab = cluster.prepare(arguments.directory, request)
        try:
            lab.start()
        except BaseException:
            lab.stop()
            raise
    names = ", ".join(machine.name for machine in lab.machines)
    say(f"up, {lab.hardware.acceleration}: {names}; look in with `lab ssh berth1`")


def status(arguments: argparse.Namespace) -> None:
    lab = cluster.running(arguments.directory)
    processes = lab.processes()
    print(f"suite {lab.request.suite}, {lab.hardware.acceleration}, in {lab.directory}")
    for machine in lab.machines:
        state = "running" if processes[machine.name].alive() else "ended"
        print(f"{machine.name}: {state}, pid {processes[machine.name].pid}, ssh port {machine.port}")
    print(f"slurm nodes: {' '.join(lab.node_states()) or 'no answer'}")


def ssh(arguments: argparse.Namespace) -> int:
    return cluster.running(arguments.directory).machine(arguments.node).shell.attach(" ".join(arguments.command))


def submit(arguments: argparse.Namespace) -> int:
    lab = cluster.running(arguments.directory)
    return files.submit(lab.first.shell, arguments.file, arguments.user, arguments.option)


def sync(arguments: argparse.Namespace) -> None:
    lab = cluster.running(arguments.directory)
    with phase("installing our Python package in all guests"):
        for machine in lab.machines:
            files.install_package(machine.shell)


def snapshot(arguments: argparse.Namespace) -> None:
    cluster.running(arguments.directory).snapshot()


def restore(arguments: argparse.Namespace) -> None:
    cluster.find(arguments.directory).restore()


def reset(arguments: argparse.Namespace) -> None:
    cluster.running(arguments.directory).reset(arguments.node)


def logs(arguments: argparse.Namespace) -> None:
    lab = cluster.running(arguments.directory)
    for machine in lab.machines:
        print(f"==> {machine.name}")
        print(machine.shell.output("journalctl", "--boot", "--no-pager", f"--lines={arguments.lines}"))


def down(arguments: argparse.Namespace) -> None:
    lab = cluster.find(arguments.directory)
    with phase("ending all guests"):
        lab.stop()


def clean(arguments: argparse.Namespace) -> None:
    if cluster.is_up(arguments.directory):
        down(arguments)
    with phase(f"deleting {arguments.directory}" + (f" and {CACHE}" if arguments.cache else "")):
        shutil.rmtree(arguments.directory, ignore_errors=True)
        if arguments.cache:
            shutil.rmtree(CACHE)


def measure_baseline(arguments: argparse.Namespace) -> None:
    with one_guest(arguments) as lab:
        baseline.report(lab.first.shell, arguments.form)


def measure_start(arguments: argparse.Namespace) -> None:
    with one_guest(arguments) as lab:
        start.report(lab.first.shell, arguments.repeat, arguments.form or baseline.FORMS)


def measure_lab(arguments: argparse.Namespace) -> None:
    with builds.alone(arguments.directory):
        builds.not_up(arguments.directory)
        print(lab_speed.measure(arguments.directory, Request(1, arguments.suite, arguments.port)))


def show_demo(arguments: argparse.Namespace) -> None:
    with one_guest(arguments) as lab:
        demo.show(lab.first, arguments.recording)


def check_rollout(arguments: argparse.Namespace) -> int:
    say(rollout.timed())
    with one_guest(arguments, bare=True) as lab:
        found = rollout.check(lab)
    print(found)
    return 0 if found.good else FAILED


@contextmanager
def one_guest(arguments: argparse.Namespace, *, bare: bool = False) -> Iterator[Cluster]:
    request = Request(1, arguments.suite, arguments.port, bare=bare)
    with builds.alone(arguments.directory), builds.own(arguments.directory, request) as lab:
        yield lab


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="lab", description=sys.modules["__main__"].__doc__)
    directory_help = "where the guests' disks live (default: %(default)s)"
    top.add_argument("--directory", type=_directory, default=DEFAULT_DIRECTORY, help=directory_help)
    verbs = top.add_subparsers(required=True, metavar="VERB")

    def verb(action: Callable[[argparse.Namespace], int | None], name: str, text: str) -> argparse.ArgumentParser:
        command = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        command.set_defaults(action=action)
        return command

    _build_options(verb(build, "build", "build all that guests need, as far as it is not in the cache"))
    _up_options(verb(up, "up", "boot the guests and wait until every Slurm node is idle"))
    verb(status, "status", "show the guests and Slurm's nodes")
    _ssh_options(verb(ssh, "ssh", "run a command as root in a guest, or open a shell there"))
    _submit_options(verb(submit, "submit", "submit a batch script as a user, follow it, end with its exit code"))
    verb(sync, "sync", "install just our Python package in running guests")
    verb(snapshot, "snapshot", "keep this moment of all guests")
    verb(restore, "restore", "go back to the kept moment, clocks set, Slurm idle")
    _node(verb(reset, "reset", "cut a guest's power and boot it again"))
    lines = verb(logs, "logs", "print the journals of all guests")
    lines.add_argument("--lines", type=int, default=200, help="how many lines of each (default: 200)")
    verb(down, "down", "end all guests")
    everything = verb(clean, "clean", "end all guests and delete their disks")
    everything.add_argument("--cache", action="store_true", help="delete everything that was ever built, too")
    _baseline_options(
        verb(measure_baseline, "baseline", "measure a plain kind cluster in a Slurm job, without Moorage")
    )
    _bench_options(verb(measure_start, "bench-start", "measure starts of a cluster, with Moorage and without, in turn"))
    _guest_options(verb(measure_lab, "bench", "measure the lab itself: a boot, a cluster's start, Python's speed"))
    _demo_options(verb(show_demo, "demo", "show a job with a cluster, from its submission until nothing is left"))
    what = "install Moorage on a bare guest by its role, try it, and take it off again, to the last file"
    _guest_options(verb(check_rollout, "rollout-check", what))
    return top


def _build_options(command: argparse.ArgumentParser) -> None:
    suites = "Debian release of the guests; may be given twice (default: trixie)"
    command.add_argument("--suite", action="append", choices=SUITES, help=suites)
    command.add_argument("--refresh", action="store_true", help="take the packages that the archive has today")


def _up_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--nodes", type=int, default=1, help="1 to 4; four carry no Kubernetes (default: 1)")
    command.add_argument("--apparmor", action="store_true", help="boot the guests with AppArmor on")
    command.add_argument("--no-ipv6", dest="ipv6", action="store_false", help="boot the guests without IPv6")
    _guest_options(command)


def _ssh_options(command: argparse.ArgumentParser) -> None:
    _node(command)
    words = "command and arguments (default: a shell)"
    command.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER, help=words)


def _submit_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE", type=Path, help="the batch script")
    command.add_argument("--user", default="alice", choices=USERS, help="who submits (default: %(default)s)")
    more = "an option for sbatch, as --option=--mem=1G; may be repeated"
    command.add_argument("--option", action="append", default=[], help=more)


def _baseline_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--form", action="append", choices=baseline.FORMS, help="warm, cold, or (default) both")
    _guest_options(command)


def _demo_options(command: argparse.ArgumentParser) -> None:
    text = "where the recording goes, an SVG (default: %(default)s)"
    command.add_argument("--recording", type=Path, default=CACHE / "demo.svg", help=text)
    _guest_options(command)


def _bench_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--form", action="append", choices=baseline.FORMS, help="warm, cold, or (default) both")
    command.add_argument("--repeat", type=int, default=2, help="how many rounds (default: %(default)s)")
    _guest_options(command)


def _guest_options(command: argparse.ArgumentParser) -> None:
    suite = "Debian release of the guests (default: %(default)s)"
    command.add_argument("--suite", choices=SUITES, default=SUITES[0], help=suite)
    port = "guest N's ssh listens on this plus N (default: %(default)s)"
    command.add_argument("--port", type=_port, default=DEFAULT_PORT, help=port)


def _node(command: argparse.ArgumentParser) -> None:
    command.add_argument("node", metavar="NODE", help="host name (berth1), Slurm's name (n1) or number")


def _port(text: str) -> int:
    number = int(text)
    if not 1024 <= number <= 65000:
        raise argparse.ArgumentTypeError(f"{number} is not between 1024 and 65000")
    return number


def _directory(text: str) -> Path:
    return Path(text).absolute()
