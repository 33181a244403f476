"""A bulk stream that never ends by itself, straight on the wire contract."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence

from dragoman.v1 import BatchItem, TranslateBatchRequest, TranslationServiceStub

_ITEMS_PER_MESSAGE = 32


class Stream:
    """Sends as fast as flow control lets it, and reads as fast as results come, unless it is paused.

    Attributes:
        num_done: Results read so far.
    """

    def __init__(self, stub: TranslationServiceStub, sentences: Sequence[str]) -> None:
        self.num_done = 0
        self._changed = asyncio.Event()
        self._reads = asyncio.Event()
        self._reads.set()
        self._sentences = sentences
        self._call = stub.TranslateBatch(self._requests())
        self._task = asyncio.create_task(self._read())

    async def wait_for(self, count: int) -> None:
        """Returns once so many results more have come."""
        target = self.num_done + count
        while self.num_done < target and not self._task.done():
            self._changed.clear()
            await self._changed.wait()
        if self._task.done():
            self._task.result()

    def pause(self) -> None:
        """Reads nothing more; it still sends."""
        self._reads.clear()

    def go_on(self) -> None:
        """Reads again."""
        self._reads.set()

    async def stop(self) -> None:
        self._call.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _requests(self) -> AsyncIterator[TranslateBatchRequest]:
        endless = itertools.cycle(self._sentences)
        for number in itertools.count():
            items = [
                BatchItem(id=f"{number}.{place}", text=text)
                for place, text in enumerate(itertools.islice(endless, _ITEMS_PER_MESSAGE))
            ]
            yield TranslateBatchRequest(items=items)

    async def _read(self) -> None:
        try:
            async for response in self._call:
                self.num_done += len(response.results)
                self._changed.set()
                await self._reads.wait()
        finally:
            asyncio.get_running_loop().call_soon(self._changed.set)  # once the task is done
