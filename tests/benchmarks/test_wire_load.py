"""A load that goes over a bare HTTP/2 connection is to the server what gRPC's own is."""

import asyncio
import time

import pytest
from overload_calls import METHOD, ended, says_when
from wire_load import WireConnection

from dragoman.v1 import TranslateTextRequest
from dragoman_model.checkpoint import load_model
from tests.integration.servers import SENTENCES, serving, until
from tests.models import make_tiny_model

LONG = {"min_decoding_length": 255}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load_model(make_tiny_model(tmp_path_factory.mktemp("models") / "en-de"), device="cpu")


async def load(server, requests, seconds=0.0):
    """Sends the requests evenly over some seconds and returns how they ended."""
    connection = WireConnection(server.app.grpc_address, METHOD)
    arrivals = [seconds * index / len(requests) for index in range(len(requests))]
    sent = [request.SerializeToString() for request in requests]
    await asyncio.to_thread(connection.load, sent, arrivals, patience=20)
    answers = connection.answers()
    assert all(answer.due <= answer.sent <= answer.ended for answer in answers)
    return list(map(ended, answers))


async def test_every_call_is_answered_though_more_is_sent_than_a_window_holds(model):
    text = " " * 1500  # blank, which costs the model nothing
    async with serving(model) as server:
        ends = await load(server, [TranslateTextRequest(texts=[text])] * 100, seconds=0.5)
        assert [end.code for end in ends] == ["OK"] * 100
        assert (
            server.value("dragoman_requests_total", method="TranslateText", model="en-de", code="OK") == 100
        )


async def test_the_load_begins_when_all_is_made_that_is_to_be_sent(model, monkeypatch):
    made, begun = [], []
    make = WireConnection._call

    def make_and_tell(*args):
        call = make(*args)
        made.append(time.monotonic())
        return call

    monkeypatch.setattr(WireConnection, "_call", make_and_tell)
    arrivals = [0.01 * index for index in range(10)]
    async with serving(model) as server:
        connection = WireConnection(server.app.grpc_address, METHOD)
        request = TranslateTextRequest(texts=[" "]).SerializeToString()
        await asyncio.to_thread(connection.load, [request] * 10, arrivals, first=begun.append)
    answers = connection.answers()
    assert len(made) == 10
    assert begun[0] >= made[-1]
    assert [answer.due for answer in answers] == [begun[0] + arrival for arrival in arrivals]


async def test_what_is_refused_says_so_and_when_to_come_back(model):
    async with serving(model, max_batch_size=1, max_queue_size=2) as server:
        request = TranslateTextRequest(texts=SENTENCES[:1], options=LONG)
        ends = await load(server, [request] * 30)
        codes = {end.code for end in ends}
        refused = [end for end in ends if end.code == "RESOURCE_EXHAUSTED"]
        assert codes == {"OK", "RESOURCE_EXHAUSTED"}
        assert all(map(says_when, refused))
        assert not any(says_when(end) for end in ends if end.code == "OK")


async def test_each_end_is_its_own_calls(model):
    requests = [
        TranslateTextRequest(texts=["a"], model="" if index % 3 else f"model-{index}") for index in range(20)
    ]
    async with serving(model) as server:
        ends = await load(server, requests)
    for index, end in enumerate(ends):
        assert end.code == ("OK" if index % 3 else "NOT_FOUND")
        message = dict(end.trailers).get("grpc-message", "")
        assert (f"model-{index}" in message) == (index % 3 == 0)


async def test_a_server_that_goes_away_leaves_calls_without_an_answer(model):
    async with serving(model, grace_seconds=0) as server:
        request = TranslateTextRequest(texts=SENTENCES, options=LONG)
        loading = asyncio.create_task(load(server, [request] * 50))
        await until(lambda: server.value("dragoman_running_rows", model="en-de") > 0)
    ends = await loading
    assert {end.code for end in ends} - {"OK"}
    assert all(end.code in {"OK", "UNAVAILABLE", "RESET", "NO_ANSWER", "CANCELLED"} for end in ends)
