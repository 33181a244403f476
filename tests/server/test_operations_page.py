"""What an operator reads about is what there is."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from dragoman_server.config import ServerConfig
from dragoman_server.metrics import Metrics
from dragoman_server.statuses import ANSWERS

PAGE = (Path(__file__).parents[2] / "docs/operations.md").read_text()


def test_the_page_lists_every_setting_with_its_default():
    for field in dataclasses.fields(ServerConfig):
        (row,) = re.findall(rf"^\| `--{field.name.replace('_', '-')}` \|.*$", PAGE, re.MULTILINE)
        assert f"`DRAGOMAN_{field.name.upper()}`" in row
        default = "the bundled one" if field.name == "model" else f"`{field.default}`".replace(".0`", "`")
        assert default in row


def test_the_page_lists_every_metric_and_no_other():
    registry = CollectorRegistry()
    Metrics(registry)
    exposed = {f"{f.name}_total" if f.type == "counter" else f.name for f in registry.collect()}
    assert set(re.findall(r"`(dragoman_[a-z_]+)`", PAGE)) - {"dragoman_model"} >= exposed
    table = PAGE[PAGE.index("## Metrics") : PAGE.index("## Alerts")]
    assert set(re.findall(r"`(dragoman_[a-z_]+)`", table)) == exposed


def test_the_page_lists_every_reason_of_a_refusal():
    for answer in ANSWERS.values():
        if answer.is_refusal:
            assert f"`{answer.reason}`" in PAGE
