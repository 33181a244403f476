"""The dashboard and the rules on a real Prometheus that scraped a real server with real traffic."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from dragoman.v1 import (
    DumpAttentionRequest,
    ListModelsRequest,
    TranslateTextRequest,
    TranslationServiceStub,
)
from dragoman_client.exposition import fetch_metrics
from tests.deploy.files import RULES, Expression, alert_names, expressions, recorded_names, variables
from tests.deploy.prometheus import Prometheus, scraping, until
from tests.integration.processes import COMMAND, ENVIRONMENT
from tests.models import make_tiny_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("prometheus") is None,
        reason="no Prometheus on this machine; Debian's package is `prometheus`",
    ),
]

# Panels that may be empty on a healthy server, and why.
EMPTY_PANELS = {"Device memory": "only a GPU has any"}
# Alerts whose expression can't be seen with data, and why.
EMPTY_ALERTS = {"DragomanAbsent": "its data is that there is none"}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that saw a server before, between and after two rounds of traffic."""
    model = make_tiny_model(tmp_path_factory.mktemp("models") / "en-de")
    folder = tmp_path_factory.mktemp("prometheus")
    with (
        serving(model, folder) as said,
        grpc.insecure_channel(said["grpc"]) as channel,
        scraping(said["http"], folder, RULES) as prometheus,
    ):
        # A rate is seen between two scrapes, of a label's first value too.
        for _ in range(2):
            send_traffic(TranslationServiceStub(channel))
            total = fetch_metrics(said["http"], timeout=10).total("dragoman_requests_total")
            until(lambda: prometheus.values("sum(dragoman_requests_total)") == [total])  # noqa: B023
        # The last recording rule of its group; all before it have been evaluated on the same data.
        until(lambda: prometheus.values("job_instance_model:dragoman_sentences_cut:ratio_rate5m >= 0"))
        yield prometheus


@contextmanager
def serving(model: Path, folder: Path) -> Iterator[dict[str, str]]:
    """Runs a server whose queue is soon full, and yields its addresses."""
    addresses = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    limits = ["--max-batch-size", "2", "--max-queue-size", "4", "--attention-sample-share", "1"]
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            [*COMMAND, "--model", str(model), *addresses, *limits],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("serving "), (folder / "server.log").read_text()
        yield dict(pair.split("=", 1) for pair in line.split()[1:])
    finally:
        process.kill()
        process.communicate()


def send_traffic(stub: TranslationServiceStub) -> None:
    """Makes calls of every method that go well, calls that the caller got wrong, and one that the queue can't take."""
    stub.TranslateText(TranslateTextRequest(texts=["A cat sings!", "", "Tom is here."]), timeout=10)
    stub.ListModels(ListModelsRequest(), timeout=10)
    list(stub.DumpAttention(DumpAttentionRequest(text="A cat sings!"), timeout=10))
    with pytest.raises(grpc.RpcError) as error:
        stub.TranslateText(TranslateTextRequest(texts=["A cat sings!"], model="nobody's"), timeout=10)
    assert error.value.code() is grpc.StatusCode.NOT_FOUND
    long = TranslateTextRequest(texts=["A cat sings!"] * 4, options={"min_decoding_length": 200})
    calls = [stub.TranslateText.future(long, timeout=30) for _ in range(4)]
    codes = {call.code() for call in calls}  # waits for their ends
    assert codes == {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}


def filled_in(query: str) -> str:
    """The query with All chosen in every variable, and a minute as the interval that Grafana would choose."""
    for name, variable in variables().items():
        query = query.replace(f"${name}", variable["allValue"])
    return query.replace("$__rate_interval", "1m")


@pytest.mark.parametrize("expression", expressions(), ids=str)
def test_expression_of_the_dashboard_shows_data(prometheus: Prometheus, expression: Expression):
    values = prometheus.values(filled_in(expression.query))
    if expression.panel in EMPTY_PANELS:
        assert values == []
    else:
        assert any(math.isfinite(value) for value in values)


def test_one_model_and_one_instance_can_be_chosen(prometheus: Prometheus):
    chosen = {}
    for name, variable in variables().items():
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()
        assert variable["query"]["query"] == variable["definition"]
        chosen[name] = prometheus.get(f"label/{label}/values", **{"match[]": metric})
    assert chosen["model"] == ["en-de"]
    (instance,) = chosen["instance"]

    for expression in expressions():
        query = expression.query.replace("$model", "en-de").replace("$instance", instance)
        seen = prometheus.values(filled_in(query))
        assert seen or expression.panel in EMPTY_PANELS, expression
        other = expression.query.replace("$instance", "another")
        if "$instance" in expression.query:
            assert prometheus.values(filled_in(other)) == [], expression


def test_every_rule_is_evaluated_without_error(prometheus: Prometheus):
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]

    assert {rule["name"] for rule in rules} == recorded_names() | set(alert_names())
    assert {rule["name"]: rule.get("lastError", "") for rule in rules if rule["health"] != "ok"} == {}


@pytest.mark.parametrize("name", sorted(recorded_names()))
def test_recording_rule_records(prometheus: Prometheus, name: str):
    assert any(math.isfinite(value) for value in prometheus.values(f'{name}{{model="en-de"}}'))


@pytest.mark.parametrize("name", alert_names())
def test_alert_looks_at_data_that_there_is(prometheus: Prometheus, name: str):
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    (query,) = (rule["query"] for rule in rules if rule["name"] == name)
    measured, thresholds = re.subn(r" (>|==) [\d.]+", "", query)

    if name in EMPTY_ALERTS:
        assert prometheus.values(query) == []
    else:
        assert thresholds
        assert prometheus.values(measured)


def test_no_alert_is_raised_about_a_healthy_server(prometheus: Prometheus):
    assert prometheus.values('ALERTS{alertstate="firing"}') == []
