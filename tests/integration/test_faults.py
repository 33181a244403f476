"""What callers that leave and requests that fail leave behind: nothing, and no trace in anybody else's call."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import grpc
import pytest

from dragoman.v1 import (
    DumpAttentionRequest,
    ScoreTextRequest,
    StreamTranslateTextRequest,
    TranslateBatchRequest,
    TranslateTextRequest,
)
from dragoman_model import beams
from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import LoadedModel
from dragoman_server.engine import Engine
from tests.integration.servers import SENTENCES, RunningServer, refusal, serving, until


def engine_of(server: RunningServer) -> Engine:
    (served,) = server.app._catalogue.models
    return served.engine


def held(server: RunningServer) -> dict[str, int]:
    """Returns what calls hold on to; all zero where none is running."""
    engine = engine_of(server)
    batch, scheduler = engine._batch, engine._scheduler
    assert isinstance(batch, RunningBatch)
    return {
        "cached rows": sum(group.cache.num_rows for group in batch._groups.values()),
        "rows": int(server.value("dragoman_running_rows", model="en-de")),
        "waiting": int(server.value("dragoman_waiting_requests", model="en-de")),
        "calls": len(scheduler._calls),
        "sentences": len(scheduler._running) + len(scheduler._forced) + len(scheduler._abandoned),
        "futures": len(engine._futures) + len(engine._listeners),
        "places": engine._num_held,
        "handlers": server.app.interceptor._running,
    }


async def until_nothing_is_held(server: RunningServer) -> None:
    await until(lambda: not any(held(server).values()))


def random_call(server: RunningServer, rng: random.Random) -> Any:
    """Starts one of all kinds of calls."""
    texts = rng.sample(SENTENCES, rng.randint(1, 3)) * rng.choice((1, 1, 8))
    kind = rng.random()
    if kind < 0.1:
        request = DumpAttentionRequest(text=" ".join(texts), options={"beam_size": rng.randint(1, 3)})
        return server.stub.DumpAttention(request)
    if kind < 0.2:
        items = [{"text": text, "translation": text[::-1]} for text in texts]
        return server.stub.ScoreText(ScoreTextRequest(items=items))
    options: dict[str, Any] = {"min_decoding_length": rng.choice((0, 20, 100))}
    if kind < 0.3:
        request = StreamTranslateTextRequest(text=" ".join(texts), options={"beam_size": rng.randint(1, 3)})
        return server.stub.StreamTranslateText(request, timeout=rng.choice((None, rng.random())))
    if kind < 0.4:
        items = [{"id": str(index), "text": text} for index, text in enumerate(texts * 10)]
        messages = [TranslateBatchRequest(items=items, options=options), TranslateBatchRequest(items=items)]
        return server.stub.TranslateBatch(iter(messages), timeout=rng.choice((None, rng.random())))
    if kind < 0.5:
        options |= {"sampling_topk": 5, "num_hypotheses": rng.randint(1, 3)}
    elif kind < 0.7:
        options |= {"beam_size": rng.randint(2, 8), "max_decoding_length": 100}
    timeout = rng.choice((None, None, rng.random()))
    return server.stub.TranslateText(TranslateTextRequest(texts=texts, options=options), timeout=timeout)


async def drained(call: Any) -> None:
    """Reads a call to its end."""
    if hasattr(call, "read"):
        async for _ in call:
            pass
    else:
        await call


@pytest.mark.slow
async def test_after_500_random_cancellations_nothing_is_held(model: LoadedModel):
    async with serving(model, max_batch_size=32, max_queue_size=256) as server:
        await server.stub.TranslateText(TranslateTextRequest(texts=SENTENCES))
        await until_nothing_is_held(server)
        tasks = len(asyncio.all_tasks())
        rng = random.Random(11)
        num_cancelled = 0
        for _ in range(30):
            calls = [random_call(server, rng) for _ in range(20)]
            readers = [asyncio.create_task(drained(call)) for call in calls]
            for call in rng.sample(calls, len(calls)):
                for _ in range(rng.choice((0, 1, 5, 30))):
                    await asyncio.sleep(0)
                num_cancelled += call.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
        assert num_cancelled >= 500
        await until_nothing_is_held(server)
        await until(lambda: len(asyncio.all_tasks()) == tasks)
        ends = {
            reason: server.value("dragoman_sentences_total", model="en-de", finish_reason=reason)
            for reason in ("cancelled", "error")
        }
        assert ends["cancelled"] > 50  # not all of them came before their work began
        assert ends["error"] == 0
        await server.stub.TranslateText(TranslateTextRequest(texts=SENTENCES))


async def test_an_injected_fault_fails_its_request_alone(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
):
    request = TranslateTextRequest(texts=SENTENCES, options={"min_decoding_length": 40})
    expected = await server.stub.TranslateText(request)
    advance = beams.RowSearch.advance

    def fail_at_the_tenth_token(search: Any, *args: Any) -> None:
        if search.sequence.options.min_length == 41 and search.num_steps == 10:
            raise ZeroDivisionError
        advance(search, *args)

    monkeypatch.setattr(beams.RowSearch, "advance", fail_at_the_tenth_token)
    poisoned = TranslateTextRequest(texts=SENTENCES, options={"min_decoding_length": 41})
    good, bad = server.stub.TranslateText(request), server.stub.TranslateText(poisoned)
    error = await refusal(bad)
    assert error.code() is grpc.StatusCode.INTERNAL
    assert [text.text for text in (await good).translations] == [text.text for text in expected.translations]
    await until_nothing_is_held(server)


async def test_a_failed_step_fails_its_batch_and_the_server_goes_on(server: RunningServer):
    step = engine_of(server)._batch._step
    failed = False

    def fail_once(*args: Any) -> Any:
        nonlocal failed
        if not failed:
            failed = True
            raise RuntimeError
        return step(*args)

    engine_of(server)._batch._step = fail_once
    error = await refusal(server.stub.TranslateText(TranslateTextRequest(texts=SENTENCES)))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert len((await server.stub.TranslateText(TranslateTextRequest(texts=SENTENCES))).translations) == 5
    await until_nothing_is_held(server)
    assert server.app.health.is_alive


async def test_a_deadline_that_the_queue_leaves_no_time_for_is_refused(model: LoadedModel):
    async with serving(model, max_batch_size=1) as server:
        long = TranslateTextRequest(texts=["He sings!"], options={"min_decoding_length": 200})
        await server.stub.TranslateText(long)  # more than 50 steps
        waiting = [server.stub.TranslateText(long) for _ in range(120)]
        await until(lambda: server.value("dragoman_waiting_requests", model="en-de") > 110)
        error = await refusal(server.stub.TranslateText(long, timeout=2))
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "at the measured speed" in error.details()
        assert server.value("dragoman_refused_total", reason="DEADLINE_UNREACHABLE") == 1
        for call in waiting:
            call.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await until_nothing_is_held(server)
