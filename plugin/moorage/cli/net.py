"""moorage net: how the containers of jobs reach the outside from this node."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from typing import Final

from moorage.common.errors import UserError
from moorage.common.spec import UPLINKS
from moorage.node import checks, programs, uplink
from moorage.node.config.load import load
from moorage.node.factcache import remembered
from moorage.node.hostfiles import Node
from moorage.node.uplink_speed import PLACE, Record, Speed

ONLY_ROOTS: Final = (
    ("whether AppArmor keeps pasta out of jobs", uplink.PROFILES),
    ("how fast each uplink is, as it was measured", str(PLACE)),
)


def main(words: Sequence[str]) -> None:
    arguments = parser().parse_args(words)
    arguments.verb(arguments)


def explain(arguments: argparse.Namespace) -> None:
    settings = load()
    with remembered() as facts:
        around = checks.look_around(settings, facts, os.environ)
    print(uplink.explain(around.offer, settings.uplink, arguments.uplink))
    for what, place in ONLY_ROOTS:
        if Node().conceals(place):
            print(f"not looked at, which only root can: {what} ({place})")


def measure(arguments: argparse.Namespace) -> None:
    if os.geteuid():
        raise UserError("only root can make the networks to measure in", "run it as root, on a node")
    # Only here: no other verb needs it.
    from moorage.root.net.bench.measure import measure

    with remembered() as facts:
        there = programs.installed(facts)
    paths = {name: program.path for name, program in there.items()}
    versions = {name: program.version for name, program in there.items()}
    record = measure(paths, versions, arguments.repeat, arguments.seconds)
    record.save()
    print(json.dumps(record.as_dict()) if arguments.json else table(record))


def table(record: Record) -> str:
    rows = [("", "out, Gbit/s", "in, Gbit/s", "answer, us", "of bare"), _row("bare", record.bare, record.bare)]
    rows += [_row(name, speed, record.bare) for name, speed in record.uplinks.items()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join([*_lines(rows, widths), *_remarks(record), f"kept in {PLACE}"])


def _row(name: str, speed: Speed, bare: Speed) -> tuple[str, ...]:
    """Medians, with the least and the most."""
    return (name, str(speed.outward), str(speed.inward), str(speed.round_trip), f"{speed.worth / bare.worth:.2f}")


def _lines(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> Iterator[str]:
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _remarks(record: Record) -> Iterator[str]:
    for name, cause in record.left_out.items():
        yield f"{name}: not measured, {cause}"


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="moorage net", description="How containers reach the outside from this node.")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    first = verbs.add_parser("explain", help="say which driver jobs get on this node, and why")
    first.add_argument("--uplink", choices=UPLINKS, help="as if a job asked for this one")
    first.set_defaults(verb=explain)
    second = verbs.add_parser("measure", help="measure all that work here, and keep the figures for the next jobs")
    second.add_argument("--repeat", type=int, default=5, help="so often (5)")
    second.add_argument("--seconds", type=float, default=1.0, help="so long in each direction (1)")
    second.add_argument("--json", action="store_true", help="for programs")
    second.set_defaults(verb=measure)
    return parser
