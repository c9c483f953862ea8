"""Each line with a code has an entry in the catalogue, which says what the product says; and nothing else has one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from moorage.common.codes import Area, Catalogue, Entry
from support.coded_lines import CODE, ELLIPSIS, Site, explained, fits, in_texts, matches, of_c, product_sites, sites

CATALOGUE = Catalogue.load()
ENTRIES = {entry.code: entry for entry in CATALOGUE}
CODED = [site for site in product_sites() if site.code]


def missing(found: list[Site]) -> list[str]:
    return [site.place for site in found if not (site.code or site.hands_on)]


def test_every_line_with_a_remedy_has_a_code() -> None:
    assert len(product_sites()) > 150
    assert missing(product_sites()) == []


def test_the_product_and_the_catalogue_have_the_same_codes() -> None:
    printed = {site.code for site in CODED} | {code for code, _ in in_texts()}
    assert printed - ENTRIES.keys() == set()
    assert ENTRIES.keys() - printed == set()


@pytest.mark.parametrize("site", CODED, ids=lambda site: f"{site.code}-{site.place}")
def test_an_entry_has_the_line_of_its_code(site: Site) -> None:
    assert fits(ENTRIES[site.code].line, site), (site.whats, site.remedies)


@pytest.mark.parametrize(("code", "text"), sorted(in_texts()))
def test_an_entry_has_the_line_of_a_code_in_a_text(code: str, text: str) -> None:
    assert matches(ENTRIES[code].line, text)


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=lambda entry: entry.code)
def test_an_entry_is_complete(entry: Entry) -> None:
    assert CODE.fullmatch(entry.code)
    assert entry.line == " ".join(entry.line.split()) != ""
    for text in (entry.why, entry.do):
        assert text == " ".join(text.split())
        assert text.endswith(".")
        assert "TODO" not in text


@pytest.mark.parametrize("area", CATALOGUE.areas.values(), ids=lambda area: area.name)
def test_a_line_has_one_code(area: Area) -> None:
    lines = Counter(entry.line for entry in area.entries.values())
    assert [line for line, count in lines.items() if count > 1] == []


SOURCE = """
from typing import Final

PLACE: Final = "/etc/moorage"


def first(path):
    what = f"{path} is missing"
    raise UserError(what, "make it"{first})


def second(path, many):
    for one in many:
        cause = f"{path} is no {'file' if one else 'directory'} of {PLACE}"
        yield Finding("check", cause, f"remove {one}"{second})
    yield Finding("check", one.cause, one.remedy, "user", code=one.code)


def wrong(what, *, code):
    return UsageError(f"--k8s: {what}", "write another", code=code)


def third():
    raise wrong("it is empty"{third})
"""
GOOD = {"first": ', code="M-A-1"', "second": ', code="M-A-2"', "third": ', code="M-B-1"'}


def written(place: Path, **codes: str) -> list[Site]:
    source = SOURCE
    for name, code in (GOOD | codes).items():
        source = source.replace(f"{{{name}}}", code)
    (place / "module.py").write_text(source)
    return sites(place)


def test_texts_are_put_together_with_all_that_is_known(tmp_path: Path) -> None:
    found = {site.code: site.whats for site in written(tmp_path) if site.code}
    assert found == {
        "M-A-1": {"… is missing"},
        "M-A-2": {"… is no file of /etc/moorage", "… is no directory of /etc/moorage"},
        "M-B-1": {"--k8s: it is empty"},
    }


@pytest.mark.parametrize("name", GOOD)
def test_a_line_without_a_code_is_noticed(tmp_path: Path, name: str) -> None:
    assert missing(written(tmp_path)) == []
    assert len(missing(written(tmp_path, **{name: ""}))) == 1


@pytest.mark.parametrize(
    ("line", "does"),
    [
        ("… is no …", True),
        ("… is no … of /etc/moorage", True),
        ("… is no … of …: remove …", True),
        ("… is no file of /etc/moorage", False),
        ("… is not a …", False),
    ],
)
def test_a_line_fits_if_it_covers_all_that_may_be_said(tmp_path: Path, line: str, does: bool) -> None:
    (site,) = [site for site in written(tmp_path) if site.code == "M-A-2"]
    assert fits(line, site) == does


def test_codes_in_texts_are_found_with_what_is_before_them(tmp_path: Path) -> None:
    (tmp_path / "shim.c").write_text('refuse("no \\"%s\\" (%d) [M-A-1]"); refuse("%s");')
    (tmp_path / "module.py").write_text('say(f"{node} has failed [M-A-2]", "[M-A-3]")')
    assert sorted(in_texts(tmp_path)) == [("M-A-1", 'no \\"…\\" (…)'), ("M-A-2", "… has failed")]
    assert list(of_c('refuse("no \\"%s\\" (%d)");')) == [f'no \\"{ELLIPSIS}\\" ({ELLIPSIS})']


def test_a_line_is_found_behind_what_it_stands_in() -> None:
    assert explained("M-FABRIC-4", "refused here: there is no interface ib0 on this node to carry the fabric")
    assert not explained("M-FABRIC-4", "refused here: there is no interface")
    assert not explained("M-FABRIC-999", "there is no interface ib0 on this node to carry the fabric")
