"""Keeps what a part of the full tests measured, and writes the report of all parts.

python -m support.proof PART SECONDS FIGURES REPORT

Beside the report lies the same as JSON, from which the other parts are taken when one is run again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from textwrap import fill

from support.figures import Figure, table

HEADER = """# Proof

What the full tests measured when they were last run, part by part. `make test-full` writes this page.
"""

WIDTH = 120


@dataclass(frozen=True)
class Part:
    name: str
    commit: str
    date: str
    seconds: float
    figures: list[dict[str, object]]
    # What it was measured with.
    notes: list[str] = field(default_factory=list)


def main(name: str, seconds: str, figures: str, report: str) -> None:
    page, data = Path(report), Path(report).with_suffix(".json")
    found, notes = told(Path(figures))
    part = Part(name, commit(), datetime.now(UTC).date().isoformat(), float(seconds), found, notes)
    kept = json.loads(data.read_text()) if data.exists() else {}
    kept = dict(sorted((kept | {name: asdict(part)}).items()))
    data.write_text(json.dumps(kept, indent=1) + "\n")
    page.write_text("\n".join([HEADER, *(section(Part(**fields)) for fields in kept.values())]))


def commit() -> str:
    """With a mark if anything but the report is not what was committed."""
    changed = _git("status", "--porcelain", "--", ".", ":!docs/proof.*")
    return _git("describe", "--always") + ("-dirty" if changed else "")


def _git(*words: str) -> str:
    # Also where root looks at somebody else's checkout.
    argv = ["git", "-c", f"safe.directory={Path.cwd()}", *words]
    return subprocess.check_output(argv, text=True).strip()


def told(figures: Path) -> tuple[list[dict[str, object]], list[str]]:
    """The figures, and what they were measured with, each once."""
    lines = [json.loads(line) for line in figures.read_text().splitlines()] if figures.exists() else []
    notes = dict.fromkeys(line["note"] for line in lines if "note" in line)
    return [line for line in lines if "note" not in line], list(notes)


def section(part: Part) -> str:
    title = f"## {part.name}\n\nCommit {part.commit}, {part.date}: passed in {part.seconds:.0f} s.\n"
    rows = table(Figure(**fields) for fields in part.figures)  # type: ignore[arg-type]
    notes = "".join(fill(note, WIDTH, initial_indent="- ", subsequent_indent="  ") + "\n" for note in part.notes)
    return "\n".join(filter(None, (title, notes, f"{rows}\n" if part.figures else "")))


if __name__ == "__main__":
    main(*sys.argv[1:])
