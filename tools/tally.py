"""Adds up the test reports of a run: every reason for a skip, and a last line with the counts."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def tally(directory: Path, failed_part: str | None) -> str:
    total: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for report in sorted(directory.glob("*.xml")):
        root = ElementTree.parse(report).getroot()  # noqa: S314 - written a moment ago by our own pytest
        for suite in root.iter("testsuite"):
            total.update({key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")})
        reasons.update(f"{report.stem}: {skip.get('message')}" for skip in root.iter("skipped"))
    failed = total["failures"] + total["errors"]
    passed = total["tests"] - failed - total["skipped"]
    # A part can fail without a test that does: a linter, or its time running out.
    lines = [f"skipped {count} of {reason}" for reason, count in reasons.items()]
    return "\n".join(
        [*lines, f"{passed} passed, {failed or int(bool(failed_part))} failed, {total['skipped']} skipped"]
    )


if __name__ == "__main__":
    print(tally(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None))
