"""Far more callers than there is room for: some are served, the others are told so at once, and then all is as before."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

from dragoman.v1 import TranslateTextRequest
from dragoman_model.checkpoint import LoadedModel
from tests.integration.holdings import held, until_nothing_is_held
from tests.integration.servers import SENTENCES, RunningServer, serving

MAX_ROWS, MAX_WAITING = 4, 8


async def outcome(server: RunningServer, request: TranslateTextRequest) -> Any:
    try:
        return await server.stub.TranslateText(request)
    except grpc.aio.AioRpcError as error:
        return error


async def test_under_ten_times_the_load_calls_are_served_or_told_when_to_come_back(model: LoadedModel):
    async with serving(model, max_batch_size=MAX_ROWS, max_queue_size=MAX_WAITING) as server:
        request = TranslateTextRequest(texts=SENTENCES[:1], options={"min_decoding_length": 30})
        expected = await server.stub.TranslateText(request)
        most: dict[str, int] = {}
        calls = [asyncio.create_task(outcome(server, request)) for _ in range(200)]
        while not all(call.done() for call in calls):
            for name, count in held(server).items():
                most[name] = max(count, most.get(name, 0))
            await asyncio.sleep(0)
        outcomes = [call.result() for call in calls]
        served = [answer for answer in outcomes if not isinstance(answer, grpc.aio.AioRpcError)]
        refused = [error for error in outcomes if isinstance(error, grpc.aio.AioRpcError)]
        assert len(served) >= MAX_WAITING
        assert len(refused) > 50
        assert most["rows"] <= MAX_ROWS
        assert most["waiting"] + most["places"] <= 2 * MAX_WAITING
        assert most["waiting"] <= MAX_WAITING
        assert {answer.translations[0].text for answer in served} == {expected.translations[0].text}
        for error in refused:
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            trailers = dict(list(error.trailing_metadata()))
            status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
            retry = error_details_pb2.RetryInfo()
            assert any(detail.Unpack(retry) for detail in status.details)
            assert retry.retry_delay.ToMilliseconds() == int(trailers["grpc-retry-pushback-ms"]) > 0
        await until_nothing_is_held(server)
        again = await server.stub.TranslateText(request)
        assert again.translations[0].text == expected.translations[0].text
