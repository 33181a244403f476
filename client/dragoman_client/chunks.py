"""Lists that go out in several calls."""

from dataclasses import dataclass
from typing import Generic, TypeVar

import grpc

from dragoman.v1 import ScoreTextRequest, TranslateTextRequest
from dragoman_client.errors import InvalidRequestError

R = TypeVar("R", TranslateTextRequest, ScoreTextRequest)

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
