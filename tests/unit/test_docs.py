"""The documents keep to what is there: their links, the lines that they quote, the commands that they have typed."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

from moorage.common import warden_protocol
from moorage.common.command import CommandFailed, run
from support.coded_lines import PLUGIN
from support.pages import ROOT, anchors
from virtual import cli
from virtual.guest import guide

DOCS = ROOT / "docs"
PAGES = sorted({*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("ansible/*.md"), *ROOT.glob("config/**/*.md")})
PICTURES = sorted(DOCS.rglob("*.svg"))
SCRIPTS = sorted((DOCS / "use/scripts").iterdir())
PACKAGE = ROOT / "plugin/moorage"
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)|!\[(?P<seen>[^\]]*)\]\((?P<picture>[^)\s]+)\)")
WIDTH = 120


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$|^    [^\n]*$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)


def broken(page: Path, text: str) -> list[str]:
    found = []
    for match in LINK.finditer(without_code(text)):
        target = unquote(match["target"] or match["picture"])
        if re.match(r"[a-z]+:", target):
            continue
        place, _, anchor = target.partition("#")
        file = (page.parent / place).resolve() if place else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            found.append(target)
    return found


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page, page.read_text()) == []


@pytest.mark.parametrize("target", ["nowhere.md", "../../README.md#no-such-heading", "#nor-this", "nothing.svg"])
def test_a_link_to_nowhere_is_noticed(target: str) -> None:
    text = f"    indented\n\nsee [this]({target}), or [that](../../README.md#licence)"
    assert broken(DOCS / "reference/errors.md", text) == [target]


@pytest.mark.parametrize("picture", PICTURES, ids=named)
def test_pictures_speak_to_who_cannot_see_them(picture: Path) -> None:
    names = [element.tag.rpartition("}")[2] for element in ElementTree.parse(picture).getroot()]  # noqa: S314 - ours
    assert names[:2] == ["title", "desc"]


def shell_blocks() -> list[tuple[Path, guide.Block]]:
    found = ((page, block) for page in PAGES for block in guide.blocks(page.read_text()))
    return [(page, block) for page, block in found if block.is_shell]


@pytest.mark.commands("bash")
def test_all_shell_parses() -> None:
    wrong = []
    for page, block in shell_blocks():
        try:
            run(["bash", "-n", "-c", block.text])
        except CommandFailed as error:
            wrong.append(f"{named(page)}:{block.line}: {error.stderr}")
    assert wrong == []


def test_who_types_a_block_is_known() -> None:
    steps = [step for page in guide.PAGES for step in guide.steps((ROOT / page).read_text())]
    assert {step.typed_by for step in steps} == set(guide.PEOPLE)


def test_only_pages_that_a_test_types_are_marked_so() -> None:
    marked = {named(page) for page in PAGES if guide.steps(page.read_text())}
    assert marked == set(guide.PAGES)


@pytest.mark.parametrize("script", SCRIPTS, ids=named)
def test_a_page_shows_each_script_as_it_is(script: Path) -> None:
    shown = {block.text for page in DOCS.glob("use/*.md") for block in guide.blocks(page.read_text())}
    assert script.read_text() in shown


def test_users_are_shown_nothing_but_scripts() -> None:
    scripts = {script.read_text() for script in SCRIPTS}
    blocks = [block for page in DOCS.glob("use/*.md") for block in guide.blocks(page.read_text())]
    assert [block.text for block in blocks if block.is_shell and block.text not in scripts] == []


def walk() -> list[str]:
    """What the walk of a job names as its modules and packages."""
    section = (DOCS / "understand/architecture.md").read_text().partition("## The walk of a job\n")[2]
    rows = re.findall(r"^\|.*\| (.+) \|$", section.partition("\n## ")[0], re.MULTILINE)
    return [word for row in rows for word in re.findall(r"`([a-z_/]+)`", row)]


def test_the_walk_names_modules_that_exist() -> None:
    there = {name for name in walk() if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()}
    assert len(there) > 25
    assert [name for name in walk() if name not in there] == []


def test_the_verbs_on_the_page_of_the_lab_exist() -> None:
    shown = set(re.findall(r"^    tests/lab/lab ([a-z-]+)", (DOCS / "understand/lab.md").read_text(), re.MULTILINE))
    assert shown
    assert shown <= set(re.findall(r"^    ([a-z-]+) ", cli.parser().format_help(), re.MULTILINE))


def phases() -> set[str]:
    """What the journal may have as PHASE: a refusal of the warden's has what was asked for."""
    found = set(warden_protocol.VERBS)
    for source in (path.read_text() for path in PLUGIN.rglob("*.py")):
        found |= {*re.findall(r'phase="([a-z]+)"', source)}
        if "phase=PHASE" in source:
            found |= {*re.findall(r'^PHASE: Final = "([a-z]+)"$', source, re.MULTILINE)}
    return found


def test_every_phase_that_the_journal_may_have_is_listed() -> None:
    (row,) = re.findall(r"^\| `PHASE` \| always \| (.+) \|$", (DOCS / "reference/records.md").read_text(), re.MULTILINE)
    assert {*re.findall(r"`([a-z]+)`", row)} == phases()


def long(text: str) -> list[int]:
    """The lines that do not fit an editor; tables and code may be as wide as they are."""
    blank = re.sub(r"^```.*?^```$", lambda block: "\n" * block[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    lines = enumerate(blank.splitlines(), 1)
    return [number for number, line in lines if len(line) > WIDTH and not line.startswith(("|", "    "))]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_lines_are_not_too_long(page: Path) -> None:
    assert long(page.read_text()) == []


def test_a_line_that_is_too_long_is_noticed() -> None:
    wide = "word " * 30
    assert long(f"{wide}\n| {wide} |\n\n    {wide}\n\n```\n{wide}\n```\n- {wide}\n") == [1, 9]


def ragged(text: str) -> list[str]:
    """Rows of tables with another number of cells than the row above them."""
    pairs = [(one, other) for one, other in pairwise(text.splitlines()) if one[:1] == other[:1] == "|"]
    return [other for one, other in pairs if _cells(one) != _cells(other)]


def _cells(row: str) -> int:
    return len(re.findall(r"(?<!\\)\|", row))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_tables_are_whole(page: Path) -> None:
    assert ragged(page.read_text()) == []


def test_a_row_that_lacks_a_cell_is_noticed() -> None:
    assert ragged("| a | b |\n|---|---|\n| 1 |\n") == ["| 1 |"]


def headless(text: str) -> list[str]:
    """First rows of tables that are no headings: something stands between them and the rows above."""
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [table.splitlines()[0] for table in tables if not re.match(r".*\n\|[-| :]+\|\n", table)]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_tables_begin_with_headings(page: Path) -> None:
    assert headless(page.read_text()) == []


def test_a_table_that_is_cut_in_two_is_noticed() -> None:
    assert headless("| a | b |\n|---|---|\n| 1 | 2 |\n\n| 3 | 4 |\n") == ["| 3 | 4 |"]
