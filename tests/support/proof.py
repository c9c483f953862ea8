"""Keep what a part of the full tests measured, and write the report of all parts of one tree.

python -m support.proof keep CACHE PART SECONDS CODE RESULTS
python -m support.proof report CACHE PAGE PART...

Results are kept in the cache by the tree that they belong to: all files but prose. So the page shows one tree, and a
commit that changes only prose keeps the page valid.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from textwrap import fill
from xml.etree import ElementTree

from support.figures import Figure, table

HEADER = """# Proof

What the full tests measured on one tree, part by part. `make test-full` runs the parts and writes this page.
"""
# These change nothing that a test runs.
PROSE = (":!docs", ":!*.md")
WIDTH = 120


@dataclass(frozen=True)
class Part:
    name: str
    date: str
    seconds: float
    figures: list[dict[str, object]]
    # What it was measured with.
    notes: list[str] = field(default_factory=list)
    # How many tests passed, failed or were skipped, and which failed; nothing if the part is not one of pytest's.
    counts: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    whole: bool = True


def main(words: Sequence[str]) -> None:
    match words:
        case ["keep", cache, name, seconds, code, results]:
            keep(Path(cache), name, float(seconds), code == "0", Path(results))
        case ["report", cache, page, *names]:
            Path(page).write_text(report(tree(), kept(Path(cache), tree()), names))
        case _:
            sys.exit(__doc__)


def keep(cache: Path, name: str, seconds: float, whole: bool, results: Path) -> None:
    """Write down one part of this tree, in place of an earlier run of it."""
    found, notes = told(results / f"{name}.figures")
    counts, failed = judged(results / f"{name}.xml")
    day = datetime.now(UTC).date().isoformat()
    place = cache / "proof" / tree() / f"{name}.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(asdict(Part(name, day, seconds, found, notes, counts, failed, whole)), indent=1))


def kept(cache: Path, of: str) -> dict[str, Part]:
    """All parts of this tree that were run on this machine."""
    found = (Part(**json.loads(file.read_text())) for file in sorted((cache / "proof" / of).glob("*.json")))
    return {part.name: part for part in found}


def tree() -> str:
    """The tree without prose; it says so if files differ from what was committed."""
    listed = _git("ls-files", "--stage", "--", ".", *PROSE)
    changed = _git("status", "--porcelain", "--", ".", *PROSE)
    return hashlib.sha256(listed.encode()).hexdigest()[:16] + ("-changed" if changed else "")


def report(of: str, parts: dict[str, Part], names: Sequence[str]) -> str:
    """The page: the tree, the parts that are missing, and each part that there is."""
    missing = [f"`{name}`" for name in names if name not in parts]
    failed = [f"`{name}`" for name, part in parts.items() if not part.whole]
    lines = [f"Tree {of} (all files but prose; `tools/tree` prints it).", "", _named("Not run on this tree", missing)]
    return "\n".join([HEADER, *lines, _named("Failed", failed), "", *(section(part) for part in parts.values())])


def _named(title: str, names: Sequence[str]) -> str:
    return fill(f"- {title}: {', '.join(names) or 'none'}.", WIDTH, subsequent_indent="  ")


def _git(*words: str) -> str:
    # Also where root looks at another user's checkout.
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
    title = f"## {part.name}\n\n{part.date}: {said}.\n"
    rows = table(Figure(**fields) for fields in part.figures)  # type: ignore[arg-type]
    notes = "".join(fill(note, WIDTH, initial_indent="- ", subsequent_indent="  ") + "\n" for note in part.notes)
    failed = "".join(f"- failed: `{name}`\n" for name in part.failed)
    return "\n".join(filter(None, (title, failed, notes, f"{rows}\n" if part.figures else "")))


if __name__ == "__main__":
    main(sys.argv[1:])
