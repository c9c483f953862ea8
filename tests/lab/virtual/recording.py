"""A terminal session as an SVG that plays: each line appears when it was printed, and long waits are cut short.

Own code, because the kept tools for this either need a terminal of their own or load a script from elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

TITLE = "A job with a Kubernetes cluster, from sbatch until nothing is left"
DESCRIPTION = "A terminal shows a job that was recorded by `make demo`: "
COLUMNS, ROWS = 104, 26
# Of a monospaced font of 13 pixels.
WIDTH, HEIGHT, MARGIN, BAR = 7.83, 18, 14, 26
# A wait of the session is shown no longer than this, and the end stands still for a while before it begins again.
LONGEST_WAIT, REST = 0.8, 6.0

STYLE = """\
    text { font-family: ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; font-size: 13px; fill: #e6edf3; }
    .back { fill: #0d1117; }
    .note { fill: #8b949e; }
    .typed { fill: #7ee787; }
    .ours { fill: #79c0ff; }
"""


@dataclass
class Recording:
    """What a session printed, and when."""

    clock: Callable[[], float] = time.monotonic
    lines: list[tuple[float, str]] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Print it, and remember it."""
        print(text, flush=True)
        self.lines += [(self.clock(), line) for line in text.splitlines()]

    def save(self, place: Path) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(drawn(self.lines))


def drawn(lines: Sequence[tuple[float, str]]) -> str:
    """The whole picture. Where nothing moves, it shows the last rows."""
    text = [line[:COLUMNS] for _, line in lines]
    moments = shown([moment for moment, _ in lines])
    whole = (moments[-1] if moments else 0.0) + REST
    width, height = round(COLUMNS * WIDTH + 2 * MARGIN), BAR + ROWS * HEIGHT + MARGIN
    last = f"{DESCRIPTION}{'; '.join(text[-3:])}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            ' role="img" aria-labelledby="title desc">',
            f'  <title id="title">{escape(TITLE)}</title>',
            f'  <desc id="desc">{escape(last)}</desc>',
            "  <style>",
            STYLE + "\n".join(_movements(moments, whole)),
            "  </style>",
            f'  <rect class="back" width="{width}" height="{height}" rx="8"/>',
            *(f'  <circle cx="{16 + 16 * place}" cy="14" r="5" fill="#30363d"/>' for place in range(3)),
            f'  <svg y="{BAR}" width="{width}" height="{ROWS * HEIGHT}">',
            f'    <g class="roll" transform="translate(0 {-_hidden(len(text)) * HEIGHT})">',
            *_rows(text),
            "    </g>",
            "  </svg>",
            "</svg>\n",
        ]
    )


def shown(moments: Sequence[float]) -> list[float]:
    """When each line appears in the picture, in seconds from its start."""
    found: list[float] = []
    for before, moment in zip([moments[0] if moments else 0.0, *moments], moments, strict=False):
        found.append((found[-1] if found else 0.0) + min(max(moment - before, 0.05), LONGEST_WAIT))
    return found


def _rows(text: Sequence[str]) -> Iterator[str]:
    for number, line in enumerate(text):
        kind = "typed" if line.startswith("$ ") else "ours" if line.startswith("moorage:") else ""
        y = (number + 1) * HEIGHT - 5
        yield (
            f'      <text class="{kind}" id="l{number}" x="{MARGIN}" y="{y}" xml:space="preserve">{escape(line)}</text>'
        )


def _movements(moments: Sequence[float], whole: float) -> Iterator[str]:
    """Each line is hidden until its moment; the rows roll up once they are full."""
    for number, moment in enumerate(moments):
        hidden, seen = f"{100 * moment / whole:.2f}%", f"{100 * moment / whole + 0.01:.2f}%"
        yield f"    @keyframes k{number} {{ 0%, {hidden} {{ opacity: 0; }} {seen}, 100% {{ opacity: 1; }} }}"
        yield f"    #l{number} {{ animation: k{number} {whole:.1f}s infinite; }}"
    steps = ["0% { transform: translateY(0); }"]
    for number, moment in enumerate(moments):
        place = -_hidden(number + 1) * HEIGHT
        steps.append(f"{100 * moment / whole:.2f}% {{ transform: translateY({place}px); }}")
    steps.append(f"100% {{ transform: translateY({-_hidden(len(moments)) * HEIGHT}px); }}")
    yield f"    @keyframes roll {{ {' '.join(steps)} }}"
    yield f"    .roll {{ animation: roll {whole:.1f}s step-end infinite; }}"


def _hidden(lines: int) -> int:
    """How many rows have rolled out of sight when so many lines are there."""
    return max(0, lines - ROWS)
