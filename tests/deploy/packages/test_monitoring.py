"""Dashboard and alerts: the program exports every metric and label that they name."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from gateway.base.metric_families import CounterFamily, GaugeFamily, HistogramFamily
from gateway.base.metrics import GatewayMetrics
from gateway.bus.bus_metrics import WAKE_UP_AGE, WANTED_ENGINES, BusMetrics
from gateway.bus.redis_bus import RedisBus
from gateway.contracts.fleet_sample import STATES
from kvstore.keys.keyring import Keyring
from tests.deploy.packages.package_tools import DEPLOY, tool

DASHBOARD = json.loads((DEPLOY / "grafana" / "headway.json").read_text())
RULES = yaml.safe_load((DEPLOY / "prometheus" / "headway.rules.yml").read_text())
SCRAPES = {"instance", "job"}
"""Labels that Prometheus adds."""
KNOWN_VALUES = {"state": set(STATES), "outcome": {"completed", "failed", "rejected", "cancelled"}}
_METRIC = re.compile(r"\b(headway_\w+)(?:\{([^}]*)\})?")
_BY = re.compile(r"\bby \(([^)]*)\)")
_LABEL = re.compile(r"(\w+)(=~|=|!=|!~)\"([^\"]*)\"")
_SUFFIXES = {CounterFamily: [""], GaugeFamily: [""], HistogramFamily: ["_bucket", "_count", "_sum"]}


@cache
def exported() -> dict[str, set[str]]:
    """Return every series that a gateway can export, with its labels."""
    metrics = GatewayMetrics()
    series: dict[str, set[str]] = {WAKE_UP_AGE: set(), WANTED_ENGINES: {"pool"}}
    for family in vars(metrics).values():
        for suffix in _SUFFIXES.get(type(family), []):
            series[family._name + suffix] = {*family._labels, *(["le"] if suffix == "_bucket" else [])}
    registry = CollectorRegistry()
    bus = RedisBus("redis://127.0.0.1:1/0", Keyring.of(b"a secret for tests only"))
    BusMetrics(registry, bus)
    for source in (registry, metrics.registry):
        series |= {sample.name: set() for metric in source.collect() for sample in metric.samples if not sample.labels}
    return series


def panels() -> list[dict[str, Any]]:
    return list(DASHBOARD["panels"])


def expressions() -> Iterator[tuple[str, str]]:
    """Yield each query of the dashboard and each alert's, with its name."""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]
    for group in RULES["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


@pytest.mark.parametrize(("name", "expression"), list(expressions()), ids=lambda text: str(text)[:40])
def test_the_named_metrics_and_labels_exist(name: str, expression: str) -> None:
    used = _METRIC.findall(expression)
    assert used or expression.startswith("up{"), name
    allowed = set(SCRAPES)
    for metric, matchers in used:
        assert metric in exported(), metric
        labels = exported()[metric]
        for label, _, value in _LABEL.findall(matchers):
            assert label in labels | SCRAPES, f"{metric} has no label {label}"
            assert value.startswith("$") or set(value.split("|")) <= KNOWN_VALUES[label], value
        allowed |= labels
    for group in _BY.findall(expression):
        assert {part.strip() for part in group.split(",")} <= allowed, expression


def test_the_dashboard_begins_with_an_operators_first_questions() -> None:
    shown = {metric for _, expression in expressions() for metric, _ in _METRIC.findall(expression)}
    for metric in (
        "headway_requests_total",
        "headway_ttft_seconds_bucket",
        "headway_decision_seconds_bucket",
        "headway_cached_tokens_total",
        "headway_queued_requests",
        "headway_load_cv",
        "headway_engine_state",
        "headway_gateway_late",
        "headway_index_trust",
        "headway_kv_event_gaps_total",
    ):
        assert metric in shown
    assert len({panel["id"] for panel in panels()}) == len(panels())
    assert all(panel["description"] for panel in panels())


def test_panels_do_not_overlap() -> None:
    cells = [
        (panel["gridPos"]["x"] + across, panel["gridPos"]["y"] + down)
        for panel in panels()
        for across in range(panel["gridPos"]["w"])
        for down in range(panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))


def test_each_alert_is_explained_in_the_docs() -> None:
    text = (DEPLOY.parent / "docs" / "troubleshooting.md").read_text()
    for group in RULES["groups"]:
        for rule in group["rules"]:
            assert f"`{rule['alert']}`" in text
            assert rule["labels"]["severity"] in {"warning", "critical"}
            assert rule["annotations"]["summary"]


def test_prometheus_accepts_the_configuration_and_the_rules() -> None:
    promtool = tool("promtool")
    for check, file in (("config", "prometheus.yml"), ("rules", "headway.rules.yml")):
        command = [promtool, "check", check, *(["--syntax-only"] if check == "config" else []), file]
        done = subprocess.run(command, cwd=DEPLOY / "prometheus", check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
