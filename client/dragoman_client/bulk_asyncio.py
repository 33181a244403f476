"""A bulk translation for asyncio: one task reads the texts, one talks to the server."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from contextlib import suppress

from dragoman_client.bulk import END_SECONDS, HELD_UP_SECONDS, Bulk, Outage, prefixes_end_early_error
from dragoman_client.bulk_connection import Arrival, BulkCalls, Connection
from dragoman_client.errors import DragomanError, too_late_error
from dragoman_client.results import BatchResult


async def translate_in_bulk(
    texts: AsyncIterator[tuple[str, str]],
    bulk: Bulk,
    outage: Outage,
    calls: BulkCalls,
) -> AsyncGenerator[BatchResult, None]:
    """Yields a result for each text; the arguments are the blocking one's.

    A task reads the texts as there is room, so that one that is waited for holds up no answer.
    """
    job = _Job(texts, bulk, outage, calls)
    reading = asyncio.create_task(job.read())
    talking = asyncio.create_task(job.talk())
    talking.add_done_callback(lambda _: job.changed.set())
    try:
        while True:
            job.changed.clear()
            if (result := bulk.pop()) is not None:
                job.room.set()
                yield result
            elif talking.done():
                break
            else:
                await job.changed.wait()
        await talking
        await reading
    finally:
        reading.cancel()
        talking.cancel()
        await asyncio.gather(reading, talking, return_exceptions=True)


class _Job:
    """The two tasks of a bulk translation and what they share.

    Attributes:
        changed: Set when there may be something to hand over.
        room: Set when another text may be read.
    """

    def __init__(
        self,
        texts: AsyncIterator[tuple[str, str]],
        bulk: Bulk,
        outage: Outage,
        calls: BulkCalls,
    ) -> None:
        self._texts = texts
        self._bulk = bulk
        self._outage = outage
        self._calls = calls
        self._work = asyncio.Event()
        self._input_ended = False
        self._connection: Connection | None = None
        self._limit = asyncio.timeout(None)
        self.changed = asyncio.Event()
        self.room = asyncio.Event()

    async def read(self) -> None:
        """Reads texts as there is room; what they raise, the caller hears after the results of those before."""
        try:
            while True:
                while not self._bulk.has_room:
                    self.room.clear()
                    await self.room.wait()
                try:
                    text, target_prefix = await anext(self._texts)
                except StopAsyncIteration:
                    return
                was_idle = not self._bulk.num_unanswered
                item = self._bulk.add(text, target_prefix)
                if item is None:
                    self.changed.set()
                    continue
                self._work.set()
                if self._connection is not None:
                    self._connection.send(item)
                    if was_idle:
                        self._restart_clock(self._connection)
        finally:
            self._input_ended = True
            self._work.set()
            if self._connection is not None:
                self._connection.end()
                self._restart_clock(self._connection)

    async def talk(self) -> None:
        """Sends texts and takes answers until none is left, over as many calls as it takes."""
        while True:
            while not self._bulk.num_unanswered:
                if self._input_ended:
                    return
                self._work.clear()
                await self._work.wait()
            try:
                await self._talk_once()
            except DragomanError as error:
                if self._bulk.num_unanswered:  # or it is nobody's loss: another text makes another call
                    await asyncio.sleep(self._outage.delay(error, time.monotonic()))

    async def _talk_once(self) -> None:
        """Makes one call.

        Raises:
            DragomanError: It failed, or the server was silent for too long.
        """
        arrivals: asyncio.Queue[Arrival] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def deliver(arrival: Arrival) -> None:
            with suppress(RuntimeError):  # the loop ended before the call did
                loop.call_soon_threadsafe(arrivals.put_nowait, arrival)

        connection = self._calls.connect(self._bulk.unanswered, deliver)
        if self._input_ended:
            connection.end()
        try:
            self._connection = connection
            while not await self._listen(connection, arrivals):
                pass
        except TimeoutError:
            if self._bulk.num_unanswered:
                raise too_late_error(connection.call) from None
        finally:
            self._connection = None
            connection.close()

    async def _listen(self, connection: Connection, arrivals: asyncio.Queue[Arrival]) -> bool:
        """Takes answers until the call ends; says whether it has, or the clock was held up and must be started anew.

        Raises:
            TimeoutError: The server was silent for too long.
            DragomanError: The call has failed.
        """
        try:
            async with asyncio.timeout(None) as self._limit:
                self._restart_clock(connection)
                while True:
                    try:
                        if not connection.feed(await arrivals.get(), self._bulk):
                            return True
                    finally:
                        self.changed.set()
                    self._outage.answer()
                    self._restart_clock(connection)
        except TimeoutError:
            due = self._limit.when()
            if due is None or asyncio.get_running_loop().time() - due < HELD_UP_SECONDS:
                raise
            return False

    def _restart_clock(self, connection: Connection) -> None:
        """Gives the server its time once more: to answer what it owes, or to end the call when all is answered."""
        if self._limit.expired():
            return
        now = asyncio.get_running_loop().time()
        timeout = connection.call.timeout
        if self._bulk.num_unanswered:
            self._limit.reschedule(None if timeout is None else now + timeout)
        else:
            self._limit.reschedule(now + END_SECONDS if self._input_ended else None)


async def pair_prefixes(
    texts: Iterable[str] | AsyncIterable[str], prefix: Iterable[str] | AsyncIterable[str] | str | None
) -> AsyncIterator[tuple[str, str]]:
    """Yields each text with what its translation starts with, whichever kind of iterable they come from."""
    if prefix is None or isinstance(prefix, str):
        async for text in _each(texts):
            yield text, prefix or ""
        return
    prefixes = _each(prefix)
    async for text in _each(texts):
        following = await anext(prefixes, None)
        if following is None:
            raise prefixes_end_early_error()
        yield text, following


async def _each(items: Iterable[str] | AsyncIterable[str]) -> AsyncIterator[str]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
