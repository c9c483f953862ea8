"""Keeps what a part of the full tests measured and which of its tests failed, and writes the report of all parts.

python -m support.proof PART SECONDS CODE RESULTS REPORT

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
from xml.etree import ElementTree

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
    # How many tests passed, failed or were skipped, and which failed; nothing of a part that is none of pytest's.
    counts: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    whole: bool = True


def main(name: str, seconds: str, code: str, results: str, report: str) -> None:
    page, data = Path(report), Path(report).with_suffix(".json")
    found, notes = told(Path(results, f"{name}.figures"))
    counts, failed = judged(Path(results, f"{name}.xml"))
    day = datetime.now(UTC).date().isoformat()
    part = Part(name, commit(), day, float(seconds), found, notes, counts, failed, code == "0")
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


def judged(report: Path) -> tuple[dict[str, int], list[str]]:
    """What pytest says of its tests."""
    if not report.exists():
        return {}, []
    counts, failed = dict.fromkeys(("passed", "failed", "skipped"), 0), []
    for case in ElementTree.parse(report).getroot().iter("testcase"):  # noqa: S314 - written by our own pytest
        kinds = {child.tag for child in case}
        verdict = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        counts[verdict] += 1
        if verdict == "failed":
            failed.append(f"{case.get('classname', '').rpartition('.')[2]}: {case.get('name')}")
    return counts, failed


def section(part: Part) -> str:
    verdict = "passed" if part.whole else "failed"
    tests = ", ".join(f"{count} {kind}" for kind, count in part.counts.items() if count or kind == "failed")
    said = f"{verdict} in {part.seconds:.0f} s" + f" ({tests})" * bool(tests)
    title = f"## {part.name}\n\nCommit {part.commit}, {part.date}: {said}.\n"
    rows = table(Figure(**fields) for fields in part.figures)  # type: ignore[arg-type]
    notes = "".join(fill(note, WIDTH, initial_indent="- ", subsequent_indent="  ") + "\n" for note in part.notes)
    failed = "".join(f"- failed: `{name}`\n" for name in part.failed)
    return "\n".join(filter(None, (title, failed, notes, f"{rows}\n" if part.figures else "")))


if __name__ == "__main__":
    main(*sys.argv[1:])
