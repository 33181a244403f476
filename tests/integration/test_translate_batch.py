"""Any number of texts through one call, on the real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from dragoman.v1 import (
    BatchResult,
    FinishReason,
    TranslateBatchRequest,
    TranslateBatchResponse,
    TranslateTextRequest,
)
from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import LoadedModel
from dragoman_model.options import DecodingOptions
from dragoman_model.plan import BatchOutput, Plan
from dragoman_model.translator import Translator
from dragoman_server.logs import CallRecord, current_call
from tests.integration.holdings import held
from tests.integration.servers import SENTENCES, RunningServer, refusal, serving, until, violations

MODEL = {"model": "en-de"}
MAX_ITEMS = 256  # of a stream in the engine, as the documentation promises


def message(texts: Iterable[str] = (), start: int = 0, **fields: Any) -> TranslateBatchRequest:
    items = [{"id": str(index), "text": text} for index, text in enumerate(texts, start)]
    return TranslateBatchRequest(items=items, **fields)


async def send(
    server: RunningServer, *messages: TranslateBatchRequest, **more: Any
) -> dict[str, BatchResult]:
    """Returns the results of a whole stream by id, each of which came once."""
    (served,) = server.app._catalogue.models
    results: dict[str, BatchResult] = {}
    async for response in server.stub.TranslateBatch(iter(messages), **more):
        assert response.model == "en-de"
        assert (response.model_digest, response.precision) == (served.model.digest, served.model.precision)
        for result in response.results:
            assert result.id not in results
            results[result.id] = result
    return results


async def read_all(call: Any, responses: list[Any] | None = None) -> None:
    async for response in call:
        if responses is not None:
            responses.append(response)


def details_of(status: status_pb2.Status) -> tuple[error_details_pb2.ErrorInfo, dict[str, str]]:
    """Returns an item's ErrorInfo and what is wrong with its fields."""
    info, bad_request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for packed in status.details:
        packed.Unpack(info)
        packed.Unpack(bad_request)
    return info, {violation.field: violation.description for violation in bad_request.field_violations}


async def test_every_text_gets_the_translation_that_it_gets_alone(server: RunningServer, model: LoadedModel):
    texts = [*SENTENCES, "", " \n", "He sings! She reads.", "😀"]
    messages = [message(texts[:4], output={"include_tokens": True}), message(texts[4:], start=4)]
    results = await send(server, *messages)
    assert len(results) == len(texts)
    for index, alone in enumerate(Translator(model).translate(texts)):
        translation = results[str(index)].translation
        assert translation.text == alone.text
        assert translation.sentence_count == alone.sentence_count
        assert len(translation.tokens) == len(alone.tokens)
    assert results["5"].translation.finish_reason == FinishReason.FINISH_REASON_BLANK
    assert server.value("dragoman_sentences_total", finish_reason="blank", **MODEL) == 2
    labels = {"method": "TranslateBatch", "model": "en-de", "code": "OK"}
    assert server.value("dragoman_requests_total", **labels) == 1


async def test_options_of_the_first_message_hold_for_all(server: RunningServer, model: LoadedModel):
    options = {"beam_size": 2, "num_hypotheses": 2, "max_decoding_length": 6}
    results = await send(server, message(SENTENCES[:2], options=options), message(SENTENCES[2:], start=2))
    alone = Translator(model).translate(
        SENTENCES, options=DecodingOptions(beam_size=2, num_hypotheses=2, max_length=6)
    )
    for index, expected in enumerate(alone):
        alternatives = results[str(index)].translation.alternatives
        assert [one.text for one in alternatives] == [one.text for one in expected.alternatives]


async def test_a_seed_that_nobody_gave_is_one_for_the_call(server: RunningServer):
    results = await send(server, message(["He sings!"] * 3, options={"sampling_topk": 0}))
    assert len({result.translation.seed for result in results.values()}) == 1
    assert len({result.translation.text for result in results.values()}) == 1


async def test_an_item_has_a_prefix_of_its_own(server: RunningServer):
    request = TranslateBatchRequest(items=[{"id": "a", "text": "He sings!", "target_prefix": "das Haus"}])
    assert (await send(server, request))["a"].translation.text.startswith("das Haus")


async def test_results_come_while_the_caller_still_sends(server: RunningServer):
    call = server.stub.TranslateBatch()
    for start in range(0, 6, 2):
        await call.write(message(SENTENCES[:2], start=start))
        ids = set()
        while len(ids) < 2:
            ids |= {result.id for result in (await call.read()).results}
        assert ids == {str(start), str(start + 1)}
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF


@pytest.mark.parametrize(
    ("item", "field", "words"),
    [
        ({"id": "", "text": "a"}, "id", ["empty"]),
        ({"id": "x" * 129, "text": "a"}, "id", ["129", "128"]),
        ({"id": "ä" * 65, "text": "a"}, "id", ["130", "128"]),
        ({"id": "1", "text": "a" * 2001}, "text", ["2001", "2000"]),
        ({"id": "1", "text": "a", "target_prefix": "a" * 2001}, "target_prefix", ["2001", "2000"]),
        ({"id": "1", "text": "b c " * 300}, "text", ["sentence 0", "256"]),
        ({"id": "1", "text": "a", "target_prefix": "Das " * 99}, "target_prefix", ["leave room"]),
        ({"id": "1", "text": "a.\n" * 10}, "text", ["too many sentences", "8"]),
    ],
)
async def test_a_bad_item_is_told_so_and_the_call_goes_on(
    model: LoadedModel, item: dict[str, str], field: str, words: list[str]
):
    async with serving(model, max_text_characters=2000, max_queue_size=8) as server:
        good = {"id": "good", "text": "He sings!"}
        request = TranslateBatchRequest(items=[good, item], options={"max_decoding_length": 20})
        results = await send(server, request, metadata=(("x-request-id", "id-1"),))
    assert results["good"].HasField("translation")
    ((item_id, result),) = [(key, result) for key, result in results.items() if key != "good"]
    error = result.error
    assert item["id"].startswith(item_id)
    assert len(item_id.encode()) == min(len(item["id"].encode()), 128)
    assert error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    info, ((found, description),) = details_of(error)[0], details_of(error)[1].items()
    assert (info.reason, info.domain) == ("INVALID_ARGUMENT", "dragoman")
    assert info.metadata["request_id"] == "id-1"
    assert found == field
    for word in words:
        assert word in description
    assert field in error.message


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"model": "de-en"}, "NOT_FOUND", "model"),
        ({"source_language_code": "fr"}, "NOT_FOUND", "source_language_code"),
        ({"target_language_code": "d!"}, "INVALID_ARGUMENT", "target_language_code"),
        ({"options": {"beam_size": 9}}, "INVALID_ARGUMENT", "options.beam_size"),
        ({"options": {"max_decoding_length": 256}}, "INVALID_ARGUMENT", "options.max_decoding_length"),
        ({"output": {"alignment_method": 2}}, "INVALID_ARGUMENT", "output.alignment_method"),
    ],
)
async def test_a_bad_first_message_fails_the_call(
    server: RunningServer, fields: dict[str, Any], code: str, field: str
):
    error = await refusal(send(server, message(["a"], **fields)))
    assert error.code().name == code
    assert list(violations(error)) == [field]
    assert server.value("dragoman_step_rows_count", **MODEL) == 0


async def test_what_counts_in_the_first_message_is_refused_in_a_later_one(server: RunningServer):
    error = await refusal(send(server, message(["a"]), message(["b"], start=1, model="en-de")))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "first message" in violations(error)["model"]


async def test_bytes_that_are_no_message_fail_the_call(server: RunningServer):
    method = server.channel.stream_stream("/dragoman.v1.TranslationService/TranslateBatch")
    for messages in ([b"\xff\xff"], [message(["a"]).SerializeToString(), b"\x0a\x02\xc3\x28"]):
        error = await refusal(read_all(method(iter(messages))))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_stream_of_nothing_is_answered_with_nothing(server: RunningServer):
    assert await send(server) == {}
    assert await send(server, message()) == {}


class Unhurried:
    """The context of a call without a deadline."""

    def time_remaining(self) -> None:
        return None


async def test_who_reads_slowly_is_read_from_slowly(server: RunningServer):
    """Without gRPC between the two, which would take some megabytes off the server's hands."""
    num_taken = 0

    async def endless() -> AsyncIterator[TranslateBatchRequest]:
        nonlocal num_taken
        while True:
            num_taken += 1
            options = {"max_decoding_length": 1} if num_taken == 1 else None
            yield message(["He sings!"], start=num_taken, options=options)

    def num_ended() -> float:
        return sum(
            server.value("dragoman_sentences_total", finish_reason=reason, **MODEL)
            for reason in ("eos", "length")
        )

    current_call.set(CallRecord("TranslateBatch", "id-1", 0.0))
    responses = server.app.service.TranslateBatch(endless(), Unhurried())
    await anext(responses)
    await until(lambda: num_ended() == MAX_ITEMS)
    # By when another call has come and gone, anything more would have been read.
    await server.stub.TranslateText(TranslateTextRequest(texts=["a"], options={"max_decoding_length": 1}))
    assert num_ended() == MAX_ITEMS + 1
    assert num_taken <= MAX_ITEMS + 1
    await anext(responses)
    await until(lambda: num_ended() > MAX_ITEMS + 1)
    await responses.aclose()


async def test_no_more_than_so_many_items_of_a_stream_are_in_the_engine(model: LoadedModel):
    async with serving(model, max_batch_size=1) as server:
        options = {"min_decoding_length": 250, "max_decoding_length": 255}
        call = server.stub.TranslateBatch(iter([message(["He sings!"] * 3 * MAX_ITEMS, options=options)]))
        await until(lambda: server.value("dragoman_waiting_requests", **MODEL) >= MAX_ITEMS - 1)
        await call.read()
        # One number, since two gauges are never read at one moment.
        assert 0 < held(server)["calls"] <= MAX_ITEMS
        call.cancel()


async def test_where_the_queue_is_full_a_stream_waits(model: LoadedModel):
    async with serving(model, max_batch_size=2, max_queue_size=4) as server:
        texts = ["He sings! She reads.", *SENTENCES] * 5
        streams = [send(server, message(texts, options={"max_decoding_length": 8})) for _ in range(2)]
        for results in await asyncio.gather(*streams):
            assert len(results) == len(texts)
            assert all(result.HasField("translation") for result in results.values())
        assert server.value("dragoman_refused_total", reason="QUEUE_FULL") == 0


async def test_a_caller_is_served_in_the_midst_of_a_stream(model: LoadedModel):
    async with serving(model, max_batch_size=8, max_queue_size=64) as server:
        options = {"min_decoding_length": 100, "max_decoding_length": 110}
        call = server.stub.TranslateBatch(iter([message(["He sings!"] * 400, options=options)]))
        await call.read()
        before = server.value("dragoman_sentences_total", finish_reason="length", **MODEL)
        request = TranslateTextRequest(texts=["He sings!"], options=options)
        assert len((await server.stub.TranslateText(request)).translations) == 1
        during = server.value("dragoman_sentences_total", finish_reason="length", **MODEL) - before
        assert during < 100
        call.cancel()


async def test_a_stream_whose_caller_leaves_is_forgotten(server: RunningServer):
    options = {"min_decoding_length": 250}
    call = server.stub.TranslateBatch(iter([message(["He sings!"] * 500, options=options)]))
    await until(lambda: server.value("dragoman_running_rows", **MODEL) > 0)
    call.cancel()
    await asyncio.wait_for(server.app.interceptor.wait_until_idle(), 10)
    await server.stub.TranslateText(TranslateTextRequest(texts=["a"], options={"max_decoding_length": 1}))
    assert server.value("dragoman_running_rows", **MODEL) == 0
    assert server.value("dragoman_waiting_requests", **MODEL) == 0
    assert 0 < server.value("dragoman_sentences_total", finish_reason="cancelled", **MODEL) <= MAX_ITEMS
    labels = {"method": "TranslateBatch", "model": "en-de", "code": "CANCELLED"}
    assert server.value("dragoman_requests_total", **labels) == 1


async def test_a_failed_step_fails_its_items_and_the_call_goes_on(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
):
    run = RunningBatch.run

    def fail_once(batch: RunningBatch, plan: Plan) -> BatchOutput:
        monkeypatch.setattr(RunningBatch, "run", run)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(RunningBatch, "run", fail_once)
    call = server.stub.TranslateBatch()
    await call.write(message(["He sings!"]))
    (failed,) = (await call.read()).results
    assert failed.error.code == grpc.StatusCode.INTERNAL.value[0]
    assert details_of(failed.error)[0].reason == "INTERNAL"
    assert "memory" not in failed.error.message
    await call.write(message(["He sings!"], start=1))
    (served,) = (await call.read()).results
    assert served.HasField("translation")
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF


async def test_a_deadline_ends_the_stream(server: RunningServer):
    options = {"min_decoding_length": 250}
    error = await refusal(send(server, message(["He sings!"] * 300, options=options), timeout=0.3))
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(server.app.interceptor.wait_until_idle(), 10)
    labels = {"method": "TranslateBatch", "model": "en-de", "code": "DEADLINE_EXCEEDED"}
    assert server.value("dragoman_requests_total", **labels) == 1


async def test_draining_ends_what_is_in_the_engine_and_leaves_the_rest(model: LoadedModel):
    async with serving(model, grace_seconds=60) as server:
        call = server.stub.TranslateBatch()
        options = {"min_decoding_length": 20, "max_decoding_length": 24}
        await call.write(message(["He sings!"] * 3 * MAX_ITEMS, options=options))
        await until(lambda: server.value("dragoman_running_rows", **MODEL) > 0)
        stopping = asyncio.create_task(server.app.stop())
        responses: list[TranslateBatchResponse] = []
        assert (await refusal(read_all(call, responses))).code() is grpc.StatusCode.UNAVAILABLE
        results = [result for response in responses for result in response.results]
        assert 0 < len(results) < 3 * MAX_ITEMS
        assert all(result.HasField("translation") for result in results)
        await stopping


async def test_a_stream_that_has_said_nothing_yet_does_not_hold_up_a_drain(model: LoadedModel):
    async with serving(model, grace_seconds=60) as server:
        call = server.stub.TranslateBatch()
        reading = asyncio.create_task(call.read())
        await until(lambda: server.app.interceptor._running == 1)
        await asyncio.wait_for(server.app.stop(), 30)
        assert (await refusal(reading)).code() is grpc.StatusCode.UNAVAILABLE


async def test_responses_stay_below_what_clients_take(server: RunningServer):
    items = [{"id": f"{index:0>120}", "text": " " * 2000} for index in range(MAX_ITEMS)]
    requests = [TranslateBatchRequest(items=items)] * 16
    sizes = [response.ByteSize() async for response in server.stub.TranslateBatch(iter(requests))]
    assert sum(sizes) > 8 * 2**20
    assert max(sizes) < 2 * 2**20
