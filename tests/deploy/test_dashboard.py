"""The dashboard as a file: what Grafana would show wrongly, or not at all, without a word."""

from __future__ import annotations

import itertools
import re

import pytest
from prometheus_client import CollectorRegistry

from dragoman_server.metrics import Metrics
from dragoman_server.statuses import ANSWERS
from tests.deploy.files import (
    DASHBOARD,
    DEPLOY,
    PROMETHEUS,
    ROOT,
    RULES,
    expressions,
    names_in,
    panels,
    recorded_names,
)

PROVISIONING = DEPLOY / "grafana/provisioning"


def exported_names() -> set[str]:
    """The names under which a server's metrics are scraped."""
    registry = CollectorRegistry()
    Metrics(registry).observe_process()
    suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
    return {
        family.name + suffix for family in registry.collect() for suffix in suffixes.get(family.type, [""])
    }


def test_every_metric_that_the_dashboard_and_the_rules_read_is_there():
    # A rule's own name is no metric that it reads.
    rules = re.sub(r"- record: .*", "", RULES.read_text())
    read = names_in(rules) | set().union(*(names_in(expression.query) for expression in expressions()))

    assert read <= exported_names() | recorded_names()
    assert recorded_names() <= read, "a rule that nobody reads"


def test_failures_are_the_codes_that_are_no_callers_doing():
    (codes,) = re.findall(r'dragoman_requests_total\{code=~"([A-Z_|]+)"\}', RULES.read_text())
    callers = {"INVALID_ARGUMENT", "UNIMPLEMENTED", "NOT_FOUND", "CANCELLED"}
    own_alert = {"RESOURCE_EXHAUSTED"}
    known = {answer.code.name for answer in ANSWERS.values()}

    assert set(codes.split("|")) - {"UNKNOWN"} == known - callers - own_alert


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_panel_says_what_it_shows_and_in_which_unit(panel: dict):
    assert panel["description"].endswith(".")
    if panel["type"] == "heatmap":
        assert panel["options"]["yAxis"]["unit"]
    elif panel["type"] != "table":
        assert panel["fieldConfig"]["defaults"]["unit"]
    assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
    assert [target["refId"] for target in panel["targets"]] == list("ABCDEF"[: len(panel["targets"])])


def test_panels_have_ids_and_places_of_their_own():
    everything = DASHBOARD["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)

    for one, other in itertools.combinations((panel["gridPos"] for panel in everything), 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)


def test_data_source_knows_how_often_prometheus_scrapes():
    # Grafana makes an interval of it that always holds two scrapes; a rate over less is empty.
    (scraped,) = re.findall(r"scrape_interval: (\w+)", PROMETHEUS.read_text())
    source = (PROVISIONING / "datasources/prometheus.yml").read_text()

    assert re.findall(r"timeInterval: (\w+)", source) == [scraped]


def test_dashboard_is_mounted_where_grafana_looks_for_it():
    compose = (ROOT / "docker-compose.yml").read_text()
    (folder,) = re.findall(r"path: (\S+)", (PROVISIONING / "dashboards/dragoman.yml").read_text())

    assert f"./deploy/grafana/dashboards:{folder}:ro" in compose
    assert f"HOME_DASHBOARD_PATH: {folder}/dragoman.json" in compose
