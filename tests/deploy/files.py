"""What stands in the files under deploy/: the dashboard's panels and expressions, the names that the rules read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROMETHEUS = DEPLOY / "prometheus/prometheus.yml"
RULES = DEPLOY / "prometheus/rules.yml"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/dashboards/dragoman.json").read_text())


class Expression(NamedTuple):
    """An expression of the dashboard, and the panel that it stands in."""

    panel: str
    query: str

    def __str__(self) -> str:
        return f"{self.panel}: {self.query}"


def panels() -> list[dict[str, Any]]:
    """The dashboard's panels, without the rows between them."""
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def variables() -> dict[str, dict[str, Any]]:
    """The dashboard's variables whose values come from the data."""
    return {v["name"]: v for v in DASHBOARD["templating"]["list"] if v["type"] == "query"}


def expressions() -> list[Expression]:
    """The dashboard's expressions as written, with its variables."""
    return [Expression(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]


def names_in(text: str) -> set[str]:
    """The names in expressions that only a server or a recording rule can provide."""
    return set(re.findall(r"(?:\w+:)?\b(?:dragoman|process|python)_\w+(?::\w+)?", text))


def recorded_names() -> set[str]:
    """The names that the recording rules provide."""
    return set(re.findall(r"record: (\S+)", RULES.read_text()))


def alert_names() -> list[str]:
    """The alerts in the order of their file."""
    return re.findall(r"alert: (\S+)", RULES.read_text())
