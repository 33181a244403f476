"""Lists that go out in several calls."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import grpc

from dragoman.v1 import ScoreTextRequest, TranslateTextRequest
from dragoman_client.errors import InvalidRequestError

R = TypeVar("R", TranslateTextRequest, ScoreTextRequest)
T = TypeVar("T")

_LISTS = {TranslateTextRequest: ("texts", "target_prefixes"), ScoreTextRequest: ("items",)}
"""What there is one of for each text."""


@dataclass(frozen=True)
class Chunk(Generic[R]):
    """One call of a list.

    Attributes:
        request: The call.
        offset: Where its first text stands in the list.
        count: How many texts it holds.
    """

    request: R
    offset: int
    count: int

    def halves(self) -> tuple["Chunk[R]", "Chunk[R]"]:
        """Returns two calls for this one."""
        middle = self.count // 2
        first, second = type(self.request)(), type(self.request)()
        first.CopyFrom(self.request)
        second.CopyFrom(self.request)
        for name in _LISTS[type(self.request)]:
            del getattr(first, name)[middle:]
            del getattr(second, name)[:middle]
        return Chunk(first, self.offset, middle), Chunk(second, self.offset + middle, self.count - middle)


class CallSize:
    """How many texts of one list the server takes in a call, as far as it has refused more."""

    def __init__(self) -> None:
        self._max_count: int | None = None

    def takes(self, count: int) -> bool:
        """Says whether so many texts have not been found too many."""
        return self._max_count is None or count <= self._max_count

    def learn(self, count: int, error: InvalidRequestError) -> bool:
        """Says whether the call was refused for all its texts together, so that it may work in halves."""
        together = error.code is grpc.StatusCode.RESOURCE_EXHAUSTED or any(
            violation.field in ("texts", "items") for violation in error.field_violations
        )
        if count < 2 or not together:
            return False
        self._max_count = min(self._max_count or count, (count + 1) // 2)
        return True


def send_chunks(chunks: Iterable[Chunk[R]], send: Callable[[Chunk[R]], list[T]]) -> list[T]:
    """Makes the calls of a list, one after the other; those that the server finds too large, in halves."""
    results: list[T] = []
    left = deque(chunks)
    size = CallSize()
    while left:
        chunk = left.popleft()
        if not size.takes(chunk.count):
            left.extendleft(reversed(chunk.halves()))
            continue
        try:
            results += send(chunk)
        except InvalidRequestError as error:
            if not size.learn(chunk.count, error):
                raise
            left.appendleft(chunk)
    return results


async def send_chunks_together(
    chunks: Iterable[Chunk[R]], send: Callable[[Chunk[R]], Awaitable[list[T]]], *, max_concurrent_calls: int
) -> list[T]:
    """Makes the calls of a list, a few at a time; when one fails, the others are cancelled."""
    slots = asyncio.Semaphore(max_concurrent_calls)
    size = CallSize()

    async def send_or_halve(chunk: Chunk[R]) -> list[T]:
        if size.takes(chunk.count):
            try:
                async with slots:
                    return await send(chunk)
            except InvalidRequestError as error:
                if not size.learn(chunk.count, error):
                    raise
        first, second = chunk.halves()
        return await send_or_halve(first) + await send_or_halve(second)

    tasks = [asyncio.ensure_future(send_or_halve(chunk)) for chunk in chunks]
    try:
        parts = await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    return [result for part in parts for result in part]
