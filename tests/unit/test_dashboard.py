"""The dashboard asks for nothing that a node does not tell."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage.common import phases
from moorage.root.records import prometheus
from moorage.root.records.counters import Tally
from support import exposition

ROOT = Path(__file__).parents[2]
BOARD: dict[str, Any] = json.loads((ROOT / "config/grafana/moorage.json").read_text())
DOCUMENTATION = ROOT / "docs/reference/records.md"
ALERTS = ROOT / "config/prometheus/moorage.yaml"
RUNBOOKS = ROOT / "docs/operate/alerts.md"
# Given to each metric by whoever scrapes it.
SCRAPED = {"instance", "job"}
WORDS = {"sum", "increase", "rate", "histogram_quantile", "by", "label_values"}
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_SELECTOR = re.compile(r"(moorage_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)(=~|=|!=|!~)("(?:[^"\\]|\\.)*")(?:,|$)')
_GROUPED = re.compile(r"by \(([\w, ]+)\) \(")


def told() -> dict[str, dict[str, set[str]]]:
    """Each name of a sample, with its labels and their values, as a node writes them."""
    kept = Tally()
    spec = {"cluster": "kind"}
    kept.count({"outcome": "failed", "phase": "podman", "spec": spec, "start_seconds": 1.0})
    kept.count({"outcome": "ready", "phases": dict.fromkeys(phases.SPANS, 1.0), "spec": spec})
    kept.count({"outcome": "refused", "check": "subuid", "leftovers": [{"what": "unit"}]})
    kept.count({"outcome": "refused", "check": "kubernetes"})
    text = prometheus.text(kept, {prometheus.BUILD: {("1",): 1}})
    found: dict[str, dict[str, set[str]]] = {}
    for family in exposition.read(text).values():
        for name, labels in family.samples:
            there = found.setdefault(name, {})
            for label, value in labels:
                there.setdefault(label, set()).add(value)
    return found


TOLD = told()


def queries() -> Iterator[tuple[str, str]]:
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]
    for variable in BOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"], ""


def wrong(query: str, legend: str = "") -> list[str]:
    """What of it no node tells."""
    return [*_wrong_words(query), *_wrong_selectors(query), *_wrong_groups(query, legend)]


def _wrong_words(query: str) -> Iterator[str]:
    plain = re.sub(r"\{[^}]*\}|\[(?:\$__\w+|\d+[smhd])\]|by \([\w, ]+\)", "", _STRING.sub('""', query))
    yield from (word for word in _NAME.findall(plain) if word not in WORDS | TOLD.keys() | SCRAPED)


def _wrong_selectors(query: str) -> Iterator[str]:
    for name, inside in _SELECTOR.findall(query):
        labels = TOLD.get(name, {})
        matchers = _MATCHER.findall(inside)
        if "".join(f"{label}{sign}{value}," for label, sign, value in matchers).rstrip(",") != inside:
            yield inside
        for label, _, value in matchers:
            if label not in labels.keys() | SCRAPED:
                yield label
            elif label in labels:
                yield from (one for one in value.strip('"').split("|") if one not in labels[label])


def _wrong_groups(query: str, legend: str) -> Iterator[str]:
    labels = {label for name, _ in _SELECTOR.findall(query) for label in TOLD.get(name, {})} | SCRAPED
    groups = [set(group.split(", ")) for group in _GROUPED.findall(query)]
    yield from (label for group in groups for label in group if label not in labels)
    kept = set.intersection(*groups) if groups else set()
    yield from (label for label in re.findall(r"\{\{(\w+)\}\}", legend) if label not in kept)


@pytest.mark.parametrize(("query", "legend"), [*queries()])
def test_it_asks_for_what_there_is(query: str, legend: str) -> None:
    assert wrong(query, legend) == []


def alerts() -> list[dict[str, Any]]:
    """Those that a site may install."""
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_alerts_are_about_what_there_is(alert: dict[str, Any]) -> None:
    assert wrong(alert["expr"]) == []
    assert alert["annotations"]["summary"]


def test_each_alert_has_its_runbook() -> None:
    headings = re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), re.MULTILINE)
    assert headings == [alert["alert"] for alert in alerts()]


def test_what_users_ask_in_vain_wakes_nobody() -> None:
    (alert,) = [alert for alert in alerts() if alert["alert"] == "MoorageNodeFaults"]
    prolog = (ROOT / "plugin/moorage/root/prolog.py").read_text()
    blamed_on_users = re.findall(r'blamed\("([a-z]+)", "user"\)', prolog)
    left_out = re.findall(r'cause!~"([^"]+)"', alert["expr"])[0].split("|")
    assert "nodes" in blamed_on_users
    assert {*blamed_on_users} <= {*left_out}


def test_every_metric_is_documented() -> None:
    text = DOCUMENTATION.read_text()
    for name, family in prometheus.FAMILIES.items():
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{name}` |")]
        assert row.split(" | ")[1] == ", ".join(f"`{label}`" for label in family.labels)


@pytest.mark.parametrize(
    ("query", "legend", "found"),
    [
        ("sum(moorage_cluster_running)", "", ["moorage_cluster_running"]),
        ("sum(moorage_start_seconds)", "", ["moorage_start_seconds"]),
        ("summ(moorage_leftover_jobs)", "", ["summ"]),
        ('moorage_starts_total{outcomes="ready"}', "", ["outcomes"]),
        ('moorage_starts_total{outcome="redy"}', "", ["redy"]),
        ('moorage_starts_total{outcome=~"ready|fialed"}', "", ["fialed"]),
        ("sum by (phases) (moorage_start_phase_seconds_sum)", "", ["phases"]),
        ("sum by (phase) (moorage_start_phase_seconds_sum)", "{{cluster}}", ["cluster"]),
        ("sum(moorage_starts_total)", "{{outcome}}", ["outcome"]),
    ],
)
def test_what_there_is_not_would_be_found(query: str, legend: str, found: list[str]) -> None:
    assert wrong(query, legend) == found


def test_it_shows_everything_that_is_told() -> None:
    asked = " ".join(query for query, _ in queries())
    assert [name for name in prometheus.FAMILIES if name not in asked] == []


def test_panels_are_as_grafana_has_them() -> None:
    panels = BOARD["panels"]
    assert (BOARD["uid"], BOARD["id"], BOARD["schemaVersion"]) == ("moorage", None, 39)
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {panel["type"] for panel in panels} == {"stat", "timeseries"}
    for panel in panels:
        assert panel["title"]
        assert panel["description"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        own = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not own & taken, panel["title"]
        taken |= own


def test_its_variables_are_there() -> None:
    names = {variable["name"] for variable in BOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps([BOARD["panels"], BOARD["templating"]["list"]])))
    assert {name for name in used if not name.startswith("__")} == names
