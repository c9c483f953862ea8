"""How fast the networks of a job are against what they are built on: in one run, in turn, on hosts of our own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from moorage.node import programs
from moorage.node.factcache import Facts
from moorage.node.uplink_speed import Spread
from moorage.root.net.bench import measure, testbed, traffic
from moorage.root.net.bench.measure import BARE, Sample, Samples, Way
from moorage.user.network import holder
from support.figures import Figure, keep
from support.hosts import CABLE, Host, bare_host, connected
from support.namespaces import inside
from support.segments import PLUG, Node, joined

HOSTS, VXLAN, FABRIC, SHORTEST = "hosts", "bare VXLAN", "fabric", "shortest"
# Which sends as fast as the processors carry it. Others have their reasons to be slower, on hosts of one machine also
# where nothing is in the way: one paces by a timer, one takes the least delay for a full line. Every kernel has it.
CONGESTION = "reno"
BRIDGE = "moor0"
# 50 bytes less than the cable's.
VXLAN_MTU = 1450


@dataclass(frozen=True)
class Ratio:
    """Of one way to another.

    What was measured in the same round is divided, then the median is taken. And the best of all rounds of the one is
    divided by the best of the other: whatever else a machine does takes away from speed and never adds to it.
    """

    name: str
    spread: Spread
    best: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def figure(self) -> Figure:
        return Figure(self.name, self.spread.median, "", self.at_most, self.at_least)

    @property
    def holds(self) -> bool:
        return self._keeps(self.spread.median)

    @property
    def holds_at_best(self) -> bool:
        return self._keeps(self.best)

    def _keeps(self, value: float) -> bool:
        return value >= (self.at_least or value) and value <= (self.at_most or value)

    def __str__(self) -> str:
        bounds = (("at least", self.at_least), ("at most", self.at_most))
        promise = ", ".join(f"{words} {bound:.2f}" for words, bound in bounds if bound is not None)
        judged = "" if self.holds else ": BROKEN"
        return f"{self.name:20} {self.spread}, of the best {self.best:.2f}  {promise or 'no promise'}{judged}"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench-net")
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--shared", action="store_true", help="of the fabric: the sender's processor does all the work")
    words_of_congestion = f"of the fabric: the congestion control of TCP (default: {CONGESTION})"
    parser.add_argument("--congestion", metavar="NAME", default=CONGESTION, help=words_of_congestion)
    arguments = parser.parse_args(words)
    samples = fabrics(arguments.repeat, arguments.seconds, shared=arguments.shared, congestion=arguments.congestion)
    uplinks, left_out = uplink_samples(arguments.repeat, arguments.seconds)
    for line in [*table(samples), "", *table(uplinks)]:
        print(line)
    for name, cause in left_out.items():
        print(f"{name}: none, {cause}")
    ratios = [*fabric_ratios(samples), *shares(samples), *uplink_ratios(uplinks)]
    print("", "ratios, each of the same round: median (least-most)", *ratios, "", sep="\n")
    for ratio in ratios:
        keep(ratio.figure)
    print(last_line({ratio.name: ratio.spread.median for ratio in ratios}))
    sys.exit(not all(ratio.holds for ratio in ratios))


def last_line(medians: Mapping[str, float]) -> str:
    names = ("fabric_vs_vxlan", "fabric_vs_host", "rtt", "uplink_kernel", "uplink_pasta", "uplink_slirp4netns")
    said = (f"{name}={medians[name]:.2f}" if name in medians else f"{name}=none" for name in names)
    return f"bench-net: {' '.join(said)}"


def fabrics(repeat: int, seconds: float, *, shared: bool = False, congestion: str = CONGESTION) -> Samples:
    """Between two hosts, by a VXLAN of theirs, from container to container over the fabric, and the shortest way.

    That is of containers behind a bridge. By what the fabric is slower, root's part in it is paid for.
    """
    with connected(2) as hosts, ExitStack() as stack:
        if not shared:
            _work_each(hosts)
        by_vxlan = [_vxlan(host, number, hosts[1 - number]) for number, host in enumerate(hosts)]
        nodes = stack.enter_context(joined(hosts))
        containers = [stack.enter_context(_container(node)) for node in nodes]
        unguarded = [_unguarded(stack, host, number, hosts[1 - number]) for number, host in enumerate(hosts)]
        for end in (*hosts, *containers, *unguarded):
            _send_by(congestion, end)
        ways = {
            HOSTS: _way(stack, hosts[0], hosts[1], str(hosts[1].address)),
            VXLAN: _way(stack, hosts[0], hosts[1], by_vxlan[1]),
            FABRIC: _way(stack, containers[0], containers[1], nodes[1].segment_address),
            SHORTEST: _way(stack, unguarded[0], unguarded[1], str(unguarded[1].address)),
        }
        return measure.compare(ways, repeat, seconds)


def _work_each(hosts: Sequence[Host]) -> None:
    for worker, host in zip(testbed.pair(), hosts, strict=True):
        with inside(host.namespace):
            testbed.receives(worker, CABLE)


def _send_by(congestion: str, host: Host) -> None:
    with inside(host.namespace):
        Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text(congestion)


def uplink_samples(repeat: int, seconds: float) -> tuple[Samples, dict[str, str]]:
    found = {name: program.path for name, program in programs.installed(Facts()).items()}
    return measure.try_out(found, repeat, seconds)


def fabric_ratios(samples: Samples) -> list[Ratio]:
    ours, vxlan, hosts = (samples[name] for name in (FABRIC, VXLAN, HOSTS))
    return [
        throughput("fabric_vs_vxlan", ours, vxlan, at_least=0.85),
        throughput("fabric_vs_host", ours, hosts, at_least=0.55),
        round_trip("rtt", ours, hosts, at_most=1.40),
    ]


def shares(samples: Samples) -> list[Ratio]:
    """What is root's part in the loss, and what is lost by any way."""
    ours, shortest, vxlan = (samples[name] for name in (FABRIC, SHORTEST, VXLAN))
    return [
        throughput("fabric_vs_shortest", ours, shortest),
        throughput("shortest_vs_vxlan", shortest, vxlan),
    ]


def uplink_ratios(samples: Samples) -> list[Ratio]:
    floors = {"kernel": 0.75}
    return [
        throughput(f"uplink_{name}", each, samples[BARE], at_least=floors.get(name))
        for name, each in samples.items()
        if name != BARE
    ]


def throughput(name: str, ours: Sequence[Sample], theirs: Sequence[Sample], *, at_least: float | None = None) -> Ratio:
    """In the slower direction."""
    pairs = [(one.worth, other.worth) for one, other in zip(ours, theirs, strict=True)]
    best = max(one for one, _ in pairs) / max(other for _, other in pairs)
    return Ratio(name, _paired(pairs), best, at_least=at_least)


def round_trip(name: str, ours: Sequence[Sample], theirs: Sequence[Sample], *, at_most: float) -> Ratio:
    pairs = [(one.round_trip, other.round_trip) for one, other in zip(ours, theirs, strict=True)]
    best = min(one for one, _ in pairs) / min(other for _, other in pairs)
    return Ratio(name, _paired(pairs), best, at_most=at_most)


def _paired(pairs: Sequence[tuple[float, float]]) -> Spread:
    """Without the rounds in which nothing at all came through what is compared with."""
    return Spread.of([one / other for one, other in pairs if other])


def table(samples: Samples) -> Iterator[str]:
    yield f"{'':12} {'there, Gbit/s':24} {'back, Gbit/s':24} answer, us"
    for name, each in samples.items():
        speed = measure.summed_up(each)
        yield f"{name:12} {speed.outward!s:24} {speed.inward!s:24} {speed.round_trip}"


def _way(stack: ExitStack, client: Host, server: Host, address: str) -> Way:
    with inside(server.namespace):
        port = stack.enter_context(traffic.serving(testbed.pair()[1]))
    return Way(client.namespace, address, port)


def _vxlan(host: Host, number: int, other: Host) -> str:
    address = f"10.201.0.{number + 1}"
    _make_vxlan(host, other, "vxlan0", 99)
    host.up("vxlan0", address)
    return address


def _make_vxlan(host: Host, other: Host, name: str, vni: int) -> None:
    """As plain as can be: to one other host."""
    ends = {"vxlan_local": str(host.address), "vxlan_group": str(other.address), "vxlan_link": host.index(CABLE)}
    host.ip.link("add", ifname=name, kind="vxlan", vxlan_id=vni, vxlan_port=4789, mtu=VXLAN_MTU, **ends)


def _unguarded(stack: ExitStack, host: Host, number: int, other: Host) -> Host:
    """The VXLAN itself is in the job's bridge, whose owner could send by it to anybody, in anybody's name."""
    network = stack.enter_context(bare_host())
    _make_vxlan(host, other, "vxlan1", 98)
    host.ip.link("set", index=host.index("vxlan1"), net_ns_fd=network.namespace)
    _bridge(network, "vxlan1")
    return stack.enter_context(_behind(network, f"10.202.0.{number + 1}", VXLAN_MTU))


@contextmanager
def _container(node: Node) -> Iterator[Host]:
    """Behind a bridge, as Podman and the holder have it, with the address that the others send to."""
    network = node.inner
    network.ip.flush_addr(index=network.index(PLUG))
    network.ip.link("set", index=network.index(PLUG), address=f"0e:00:00:00:00:0{node.fabric.place + 1}")
    _bridge(network, PLUG)
    with _behind(network, node.segment_address, node.fabric.mtu, address=node.own_hardware_address) as container:
        yield container


def _bridge(network: Host, port: str) -> None:
    with inside(network.namespace):
        holder.pass_bridged_frames()
    network.ip.link("add", ifname=BRIDGE, kind="bridge")
    network.up(BRIDGE)
    network.ip.link("set", index=network.index(port), master=network.index(BRIDGE), state="up")


@contextmanager
def _behind(network: Host, own: str, mtu: int, **more: str) -> Iterator[Host]:
    """A container at the network's bridge."""
    with bare_host(own) as container:
        peer = {"ifname": CABLE, "net_ns_fd": container.namespace, "mtu": mtu, **more}
        network.ip.link("add", ifname="veth0", kind="veth", mtu=mtu, peer=peer)
        network.ip.link("set", index=network.index("veth0"), master=network.index(BRIDGE), state="up")
        container.up(CABLE, own)
        yield container
