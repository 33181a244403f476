"""TranslateBatch: any number of texts through one call, each with a result or an error of its own.

A permit goes with each item, from before it is looked at until its result has been sent; there are `MAX_ITEMS`. So a caller
that reads slowly is read from slowly, and what a stream holds here is one message and so many items, however long it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import TypeVar, cast

from dragoman.v1 import BatchItem, BatchResult, TranslateBatchRequest, TranslateBatchResponse
from dragoman_model.plan import FinishedSentence
from dragoman_model.translation import PreparedText
from dragoman_server.catalogue import ServedModel
from dragoman_server.errors import CallError, DeadlineError, DrainingError, EngineGoneError, InternalError
from dragoman_server.logs import current_call, describe_exception, log_event
from dragoman_server.request import BulkRequest, new_id
from dragoman_server.rpcs.attention_sample import AttentionSample
from dragoman_server.rpcs.concurrency import ConcurrentCalls
from dragoman_server.rpcs.work import (
    Backend,
    Context,
    assemble_text,
    assembling_cost,
    check_lengths,
    check_size,
    decode_work,
    new_call,
    off_loop,
    prepare_text,
)
from dragoman_server.sentences import Result
from dragoman_server.statuses import status_message
from dragoman_server.validation import (
    shortened_id,
    validate_batch_item,
    validate_later_batch,
    validate_translate_batch,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Of one stream, in the engine or on their way out of it.
MAX_ITEMS = 256
# Results that are ready together travel together, up to about here: clients take 4 MiB unless told otherwise.
_MAX_RESPONSE_BYTES = 1 << 20


async def translate_batch(
    backend: Backend,
    samples: dict[str, AttentionSample],
    streams: dict[str, ConcurrentCalls],
    requests: AsyncIterator[TranslateBatchRequest],
    context: Context,
) -> AsyncIterator[TranslateBatchResponse]:
    """Yields the results of the stream's texts as they finish."""
    first = await _unless_draining(backend, anext(requests, None))
    if first is None:
        return
    backend.record(first.model, 0)
    asked = validate_translate_batch(first, backend.limits)
    served = backend.select(asked.model)
    check_lengths(served, asked.options)
    with streams[served.name]:
        bulk = _BulkStream(backend, served, samples[served.name], asked, context)
        working = asyncio.create_task(bulk.work(first, requests))
        del first  # or its items would stay in memory to the end
        try:
            async for response in bulk.responses():
                yield response
        finally:
            await bulk.abandon(working)


class _BulkStream:
    """One call, from its first message to its last result."""

    def __init__(
        self,
        backend: Backend,
        served: ServedModel,
        sample: AttentionSample,
        asked: BulkRequest,
        context: Context,
    ) -> None:
        self._backend = backend
        self._served = served
        self._sample = sample
        self._asked = asked
        self._options = asked.options.with_seed()
        self._context = context
        self._id = new_id()
        self._permits = asyncio.Semaphore(MAX_ITEMS)
        self._running: set[asyncio.Task[None]] = set()
        # None is the end, an error the end of the call.
        self._ready: asyncio.Queue[BatchResult | Exception | None] = asyncio.Queue()

    async def work(self, first: TranslateBatchRequest, others: AsyncIterator[TranslateBatchRequest]) -> None:
        """Reads until the caller has sent all, the server shuts down or the engine is gone, and waits for what it has read."""
        reading = self._read(first, others)
        del first
        error: Exception | None = None
        try:
            await _unless_draining(self._backend, reading)
        except Exception as raised:
            error = raised
        # With a gone engine, too: a text without an answer is sent again, and one of these may be what broke it.
        if self._running and (error is None or isinstance(error, DrainingError | EngineGoneError)):
            await asyncio.wait(self._running)
        self._ready.put_nowait(error)

    async def responses(self) -> AsyncIterator[TranslateBatchResponse]:
        """Yields what is ready until all is.

        Raises:
            CallError: The call can't go on, or the server shuts down.
        """
        while True:
            entry = await self._ready.get()
            model = self._served.model
            response = TranslateBatchResponse(
                model=model.name, model_digest=model.digest, precision=model.precision
            )
            num_bytes = 0
            while isinstance(entry, BatchResult):
                response.results.append(entry)
                num_bytes += entry.ByteSize()
                if num_bytes >= _MAX_RESPONSE_BYTES or self._ready.empty():
                    break
                entry = self._ready.get_nowait()
            if response.results:
                yield response
            for _ in response.results:
                self._permits.release()
            if isinstance(entry, Exception):
                raise entry
            if entry is None:
                return

    async def abandon(self, working: asyncio.Task[None]) -> None:
        """Ends what still runs, and with it the engine's work; nobody waits for it any more."""
        working.cancel()
        await asyncio.wait((working,))  # which reads no more then
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)

    async def _read(self, first: TranslateBatchRequest, others: AsyncIterator[TranslateBatchRequest]) -> None:
        await self._take_all(first)
        del first
        async for message in others:
            validate_later_batch(message)
            self._served.engine.check_running()  # or a million texts would fail one by one
            await self._take_all(message)

    async def _take_all(self, message: TranslateBatchRequest) -> None:
        for item in message.items:
            await self._permits.acquire()
            current_call.get().num_texts += 1
            try:
                await self._take(item)
            except Exception as error:
                self._ready.put_nowait(self._failed(shortened_id(item.id), error))
            await asyncio.sleep(0)  # a message of many items must not keep other calls waiting

    async def _take(self, item: BatchItem) -> None:
        """Puts an item into the engine, waiting for room there."""
        validate_batch_item(item, self._backend.limits)
        served = self._served
        prepared = await off_loop(
            len(item.text) + len(item.target_prefix),
            lambda: prepare_text(
                served, "text", item.text, split=self._asked.split, target_prefix=item.target_prefix
            ),
        )
        if not prepared.source_ids:
            served.metrics.count_sentences("blank")
            self._ready.put_nowait(self._done(item.id, prepared, []))
            return
        check_size("text", len(prepared.source_ids), served)
        work = decode_work(served, prepared, self._options, "target_prefix", self._asked.output)
        results = await served.engine.submit_bulk(new_call(work, served, self._context, stream=self._id))
        task = asyncio.create_task(self._finish(item.id, prepared, results))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda _: results.cancel())  # where it was cancelled before it began

    async def _finish(
        self, item_id: str, prepared: PreparedText, results: asyncio.Future[tuple[Result, ...]]
    ) -> None:
        try:
            sentences = cast(Sequence[FinishedSentence], await results)
            cost = assembling_cost(len(prepared.text), self._options, self._asked.output)
            result: BatchResult | DeadlineError = await off_loop(
                cost, lambda: self._done(item_id, prepared, sentences)
            )
            if not self._asked.output.include_alignments:  # else it has been looked at
                self._sample.offer(prepared, sentences)
        except Exception as error:
            result = self._failed(item_id, error)
        self._ready.put_nowait(result)

    def _done(
        self, item_id: str, prepared: PreparedText, sentences: Sequence[FinishedSentence]
    ) -> BatchResult:
        translation = assemble_text(self._served, prepared, sentences, self._options, self._asked.output)
        return BatchResult(id=item_id, translation=translation)

    def _failed(self, item_id: str, error: Exception) -> BatchResult | DeadlineError:
        if isinstance(error, DeadlineError):
            return error  # the deadline is the call's
        record = current_call.get()
        if not isinstance(error, CallError):
            log_event(
                logger,
                logging.ERROR,
                "item failed",
                method=record.method,
                request_id=record.request_id,
                **describe_exception(error),
            )
            error = InternalError()
        return BatchResult(id=item_id, error=status_message(error, record.request_id))


async def _unless_draining(backend: Backend, reading: Awaitable[T]) -> T:
    """Returns what ``reading`` does, or breaks it off.

    Raises:
        DrainingError: The server shuts down.
    """
    task = asyncio.ensure_future(reading)
    draining = asyncio.create_task(backend.draining.wait())
    try:
        await asyncio.wait((task, draining), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise DrainingError
        return task.result()
    finally:
        task.cancel()
        draining.cancel()
        await asyncio.wait((task,))  # until it really reads no more
