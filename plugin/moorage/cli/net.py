"""`moorage net`: how the containers of jobs reach the outside from this node."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from moorage.cli.manual import AS_ROOT, DONE, ON_A_NODE, WRONG_WORDS, Manual, Parser
from moorage.cli.output import as_json
from moorage.common.errors import FAILED, UserError
from moorage.common.progress import Progress, duration
from moorage.common.spec import UPLINKS
from moorage.node import checks, programs, uplink
from moorage.node.config.load import load
from moorage.node.config.schema import Uplink
from moorage.node.factcache import remembered
from moorage.node.hostfiles import Node
from moorage.node.programs import Program
from moorage.node.uplink import Choice, Offer
from moorage.node.uplink_speed import PLACE, Record, Speed

ONLY_ROOTS: Final = (
    ("whether AppArmor keeps pasta out of jobs", uplink.PROFILES),
    ("how fast each uplink is, as it was measured", str(PLACE)),
)
# The load of the last minute for each processor, above which figures are not taken. Two processors carry the traffic
# that is measured; where half of all are busy, the rest shares caches and memory with them, or there is no rest.
BUSY: Final = 0.5
EXPLAIN: Final = Manual(
    "Say which uplink jobs get on this node, and why.",
    examples=(
        ("moorage net explain", "the decision, and what each uplink lacks"),
        ("moorage net explain --uplink pasta", "the same for a job that asks for uplink=pasta"),
    ),
    codes=(DONE, (FAILED, "no uplink can be used, so that jobs are refused"), WRONG_WORDS),
)
MEASURE: Final = Manual(
    """\
Measure every uplink that works on this node, and keep the figures: new jobs then get the fastest.

It takes about a minute and a half, says so first, and puts load on two processors. The figures are not kept if its
rounds disagree, and nothing is measured while the machine is busy.""",
    AS_ROOT,
    (
        ("moorage net measure", "measure, on a node that runs no job"),
        ("moorage net measure --repeat 9 --seconds 2", "measure longer"),
    ),
    (DONE, (FAILED, "the machine is busy, or the figures were not kept"), WRONG_WORDS),
)


def main(words: Sequence[str]) -> int:
    arguments = parser().read(words)
    code: int = arguments.act(arguments)
    return code


def parser() -> Parser:
    about = "Explain and measure the uplinks of this node: how containers of jobs reach the outside."
    made = Parser(prog="moorage net", manual=Manual(about, ON_A_NODE, (*EXPLAIN.examples, *MEASURE.examples[:1])))
    first = made.verb("explain", "say which uplink jobs get on this node, and why", EXPLAIN)
    first.add_argument("--uplink", choices=UPLINKS, help="decide as for a job that asks for this uplink")
    first.add_argument("--json", action="store_true", help="print {schema, podman, uplinks, chosen, reason, ...}")
    first.set_defaults(act=explain)
    second = made.verb("measure", "measure the uplinks, and keep the figures for new jobs", MEASURE)
    second.add_argument("--repeat", metavar="N", type=_at_least_one, default=5, help="measure N rounds (default: 5)")
    second.add_argument(
        "--seconds", metavar="S", type=float, default=1.0, help="measure S seconds for each figure (default: 1)"
    )
    second.add_argument("--force", action="store_true", help="measure a busy machine, and keep figures that disagree")
    second.add_argument("--json", action="store_true", help="print {schema, kept, bare, uplinks, left_out, ...}")
    second.set_defaults(act=measure)
    return made


def explain(arguments: argparse.Namespace) -> int:
    configuration = load()
    with remembered() as facts:
        offer = checks.look_around(configuration, facts, os.environ).offer
    choice, refusal = _chosen(offer, configuration.uplink, arguments.uplink)
    unseen = [f"{what} ({place})" for what, place in ONLY_ROOTS if Node().conceals(place)]
    if arguments.json:
        reason = choice.reason if choice else refusal
        uplinks = dict(_uplinks(offer, configuration.uplink))
        chosen = choice.driver if choice else None
        print(as_json(podman=offer.podman, uplinks=uplinks, chosen=chosen, reason=reason, not_looked_at=unseen))
    else:
        print(uplink.explain(offer, configuration.uplink, arguments.uplink))
        for what in unseen:
            print(f"not looked at, which only root can: {what}")
    return 0 if choice else FAILED


def _chosen(offer: Offer, rule: Uplink, wanted: str | None) -> tuple[Choice | None, str]:
    """The choice, or why there is none."""
    try:
        return uplink.choose(offer, rule, wanted), ""
    except UserError as error:
        return None, str(error)


def _uplinks(offer: Offer, rule: Uplink) -> Iterator[tuple[str, dict[str, object]]]:
    for driver in UPLINKS:
        cause = uplink.obstacle(driver, offer, rule)
        speed = offer.speeds.get(driver)
        about: dict[str, object] = {"usable": not cause, "cause": cause, "version": offer.helpers.get(driver)}
        yield driver, about | {"speed": speed.as_dict() if speed else None}


def measure(arguments: argparse.Namespace) -> int:
    if os.geteuid():
        raise UserError(
            "only root can make the networks to measure in", "run it as root, on a node", code="M-COMMAND-3"
        )
    if not arguments.force:
        refuse_if_busy(os.getloadavg()[0], len(os.sched_getaffinity(0)))
    with remembered() as facts:
        there = programs.installed(facts)
    record = _measured(there, arguments)
    # Only here: no other verb needs it.
    from moorage.root.net.bench.measure import unsteady

    doubt = "" if arguments.force else unsteady(record)
    if not doubt:
        record.save()
    if arguments.json:
        print(as_json(kept=not doubt, doubt=doubt, **record.as_dict()))
    else:
        print(table(record))
        print(f"not kept: {doubt}: measure again when no job runs" if doubt else f"kept in {PLACE}")
    return FAILED if doubt else 0


def refuse_if_busy(load: float, processors: int) -> None:
    if load > BUSY * processors:
        what = f"this machine is busy (load {load:.1f}, {processors} processors)"
        raise UserError(what, "measure when no job runs, or add --force", code="M-COMMAND-7")


def _measured(there: Mapping[str, Program], arguments: argparse.Namespace) -> Record:
    from moorage.root.net.bench.measure import estimated, measure

    paths = {name: program.path for name, program in there.items()}
    versions = {name: program.version for name, program in there.items()}
    progress = Progress(sys.stderr)
    takes = duration(estimated(paths, arguments.repeat, arguments.seconds))
    progress.say(f"this takes about {takes}, and puts load on two processors")
    return measure(paths, versions, arguments.repeat, arguments.seconds, progress.phase)


def table(record: Record) -> str:
    rows = [("", "out, Gbit/s", "in, Gbit/s", "answer, us", "of bare"), _row("bare", record.bare, record.bare)]
    rows += [_row(name, speed, record.bare) for name, speed in record.uplinks.items()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join([*_lines(rows, widths), *_remarks(record)])


def _row(name: str, speed: Speed, bare: Speed) -> tuple[str, ...]:
    """Medians, with the least and the most."""
    return (name, str(speed.outward), str(speed.inward), str(speed.round_trip), f"{speed.worth / bare.worth:.2f}")


def _lines(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> Iterator[str]:
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _remarks(record: Record) -> Iterator[str]:
    for name, cause in record.left_out.items():
        yield f"{name}: not measured, {cause}"


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number of rounds")
    return int(text)
