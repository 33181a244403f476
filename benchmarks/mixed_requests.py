"""Requests of every kind, as a seed says: for soaking a server in them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from dragoman.v1 import (
    DumpAttentionRequest,
    ListModelsRequest,
    ScoreTextRequest,
    StreamTranslateTextRequest,
    TranslateBatchRequest,
    TranslateTextRequest,
    TranslationServiceStub,
)


@dataclass(frozen=True)
class Mixed:
    """A request.

    Attributes:
        method: Its RPC.
        message: What is sent: one message, or several to TranslateBatch.
        codes: Status codes that a healthy server may end it with.
        timeout: Deadline in seconds; None is none.
    """

    method: str
    message: Any
    codes: tuple[str, ...] = ("OK",)
    timeout: float | None = None


def mixed_requests(sentences: Sequence[str], seed: int) -> Callable[[], Mixed]:
    """Returns what makes one request after the other.

    Args:
        sentences: Texts are made of them.
        seed: Repeats the requests.
    """
    rng = random.Random(seed)

    def text() -> str:
        return " ".join(rng.choices(sentences, k=rng.choice((1, 1, 1, 2, 3))))

    def options() -> dict[str, Any]:
        kind = rng.random()
        if kind < 0.5:
            return {}
        if kind < 0.6:
            return {"min_decoding_length": rng.choice((10, 40, 100)), "max_decoding_length": 120}
        if kind < 0.8:
            beams = rng.randint(2, 5)
            penalty = rng.choice((0.0, 1.0, -0.5))
            return {"beam_size": beams, "num_hypotheses": rng.randint(1, beams), "length_penalty": penalty}
        if kind < 0.9:
            return {
                "sampling_topk": rng.choice((0, 5)),
                "num_hypotheses": rng.randint(1, 3),
                "seed": rng.randint(0, 9),
            }
        return {
            "no_repeat_ngram_size": 3,
            "repetition_penalty": 1.2,
            "max_decoding_length": rng.randint(9, 30),
        }

    def translate_text() -> Mixed:
        texts = [text() for _ in range(rng.choice((1, 1, 1, 1, 4, 12)))]
        texts += rng.choice(([], [], ["", " \n"]))
        output = {"include_tokens": rng.random() < 0.2}
        request = TranslateTextRequest(texts=texts, options=options(), output=output)
        if rng.random() < 0.1:
            request.target_prefixes.extend(rng.choice(("", "Ich")) for _ in texts)
        return Mixed("TranslateText", request)

    def in_a_hurry() -> Mixed:
        request = TranslateTextRequest(texts=[text() for _ in range(8)])
        return Mixed("TranslateText", request, ("OK", "DEADLINE_EXCEEDED"), rng.uniform(0.001, 0.2))

    def refused() -> Mixed:
        request = rng.choice(
            (
                TranslateTextRequest(texts=[]),
                TranslateTextRequest(texts=["a"], options={"beam_size": 10_000}),
                TranslateTextRequest(texts=["x" * 30_000]),
                TranslateTextRequest(texts=["a"], model="unheard-of"),
            )
        )
        return Mixed("TranslateText", request, ("INVALID_ARGUMENT", "NOT_FOUND"))

    def score_text() -> Mixed:
        items = [{"text": rng.choice(sentences), "translation": text()} for _ in range(rng.randint(1, 5))]
        return Mixed("ScoreText", ScoreTextRequest(items=items))

    def dump_attention() -> Mixed:
        # More of them at a time than the server takes are refused.
        return Mixed("DumpAttention", DumpAttentionRequest(text=text()), ("OK", "RESOURCE_EXHAUSTED"))

    def stream_translate_text() -> Mixed:
        return Mixed("StreamTranslateText", StreamTranslateTextRequest(text=text(), options=options()))

    def translate_batch() -> Mixed:
        items = [{"id": str(index), "text": text()} for index in range(rng.randint(1, 12))]
        messages = [
            TranslateBatchRequest(items=items[:5], options=options()),
            TranslateBatchRequest(items=items[5:]),
        ]
        return Mixed("TranslateBatch", messages)

    def list_models() -> Mixed:
        return Mixed("ListModels", ListModelsRequest())

    weights = {
        translate_text: 60,
        in_a_hurry: 8,
        refused: 8,
        score_text: 6,
        dump_attention: 4,
        stream_translate_text: 6,
        translate_batch: 4,
        list_models: 4,
    }
    makers, shares = list(weights), list(weights.values())

    def make_one() -> Mixed:
        (make,) = rng.choices(makers, shares)
        return make()

    return make_one


def start(stub: TranslationServiceStub, mixed: Mixed) -> Any:
    """Starts the call."""
    method = getattr(stub, mixed.method)
    message = iter(mixed.message) if isinstance(mixed.message, list) else mixed.message
    return method(message, timeout=mixed.timeout)


async def finish(call: Any) -> str:
    """Reads a call to its end and returns the name of its status code."""
    try:
        if hasattr(call, "read"):
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return error.code().name
    except asyncio.CancelledError:
        if not call.cancelled():
            raise
        return "CANCELLED"
    return "OK"


async def run_calls(
    stub: TranslationServiceStub,
    make: Callable[[], Mixed],
    count: int,
    *,
    num_callers: int,
    after_each: Callable[[int], None] = lambda done: None,
) -> tuple[Counter[str], list[str]]:
    """Sends so many requests through so many callers.

    Returns:
        How many ended with each status code, by "method code", and what ended as it should not have, with what was said of it.
    """
    ends: Counter[str] = Counter()
    wrong: list[str] = []
    left = iter(range(count))

    async def call_in_turn() -> None:
        for _ in left:
            mixed = make()
            call = start(stub, mixed)
            code = await finish(call)
            ends[f"{mixed.method} {code}"] += 1
            if code not in mixed.codes:
                wrong.append(f"{mixed.method} {code}: {await call.details()}")
            after_each(sum(ends.values()))

    await asyncio.gather(*(call_in_turn() for _ in range(num_callers)))
    return ends, wrong


async def run_cancelled_calls(
    stub: TranslationServiceStub,
    make: Callable[[], Mixed],
    count: int,
    *,
    num_callers: int,
    pause: Callable[[], Awaitable[object]],
    after_each: Callable[[int], None] = lambda done: None,
) -> int:
    """Sends so many requests and cancels each after a pause; returns how many had not ended by themselves before."""
    cancelled = done = 0
    left = iter(range(count))

    async def cancel_in_turn() -> None:
        nonlocal cancelled, done
        for _ in left:
            call = start(stub, make())
            reading = asyncio.ensure_future(finish(call))
            await pause()
            cancelled += bool(call.cancel())
            await reading
            done += 1
            after_each(done)

    await asyncio.gather(*(cancel_in_turn() for _ in range(num_callers)))
    return cancelled
