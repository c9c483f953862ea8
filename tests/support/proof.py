"""Keeps what a part of the full tests measured, and writes the report of all parts.

python -m support.proof PART SECONDS FIGURES KEPT REPORT
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from support.figures import Figure, table

HEADER = """# Proof

What the full tests measured when they were last run, part by part. `make test-full` writes this page.
"""


@dataclass(frozen=True)
class Part:
    name: str
    commit: str
    date: str
    seconds: float
    figures: list[dict[str, object]]


def main(name: str, seconds: str, figures: str, kept: str, report: str) -> None:
    place = Path(kept)
    place.mkdir(parents=True, exist_ok=True)
    part = Part(name, commit(), datetime.now(UTC).date().isoformat(), float(seconds), measured(Path(figures)))
    (place / f"{name}.json").write_text(json.dumps(asdict(part)))
    parts = [Part(**json.loads(path.read_text())) for path in sorted(place.glob("*.json"))]
    Path(report).write_text("\n".join([HEADER, *map(section, parts)]))


def commit() -> str:
    return subprocess.check_output(["git", "describe", "--always", "--dirty"], text=True).strip()


def measured(figures: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in figures.read_text().splitlines()] if figures.exists() else []


def section(part: Part) -> str:
    title = f"## {part.name}\n\nCommit {part.commit}, {part.date}: passed in {part.seconds:.0f} s.\n"
    rows = table(Figure(**fields) for fields in part.figures)  # type: ignore[arg-type]
    return title + (f"\n{rows}\n" if part.figures else "")


if __name__ == "__main__":
    main(*sys.argv[1:])
