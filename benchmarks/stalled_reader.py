"""A bulk stream whose caller stops reading and goes on sending: what it costs the server meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import grpc
from bulk_stream import Stream
from servers import RunningServer

from dragoman.v1 import TranslationServiceStub

# Read before the stall, for the server to find its size.
WARM_RESULTS = 4096
# The caller's own gRPC takes some megabytes off the connection, unread; a minute of short sentences on one core.
MAX_FILLING_SECONDS = 300
# After so long without a translation the connection is taken for full.
QUIET_SECONDS = 5


@dataclass(frozen=True)
class Look:
    """What a server works on, and the memory that it takes."""

    memory_bytes: int
    in_engine: int
    translated: int

    @classmethod
    def at(cls, server: RunningServer) -> Look:
        return cls(
            server.memory_bytes(),
            server.total("dragoman_running_rows", "dragoman_waiting_requests"),
            server.total("dragoman_sentences_total"),
        )


@dataclass(frozen=True)
class Stall:
    """What was seen while nobody read.

    Attributes:
        before: When reading stopped.
        filling: One a second, until the connection was full.
        full: One a second from then on.
        read_afterwards: Results that came when reading went on, of those that were translated meanwhile.
    """

    before: Look
    filling: list[Look]
    full: list[Look]
    read_afterwards: int

    @property
    def peak_ratio(self) -> float:
        """The most memory while nobody read / memory before."""
        return max(look.memory_bytes for look in self.filling + self.full) / self.before.memory_bytes

    @property
    def max_in_engine(self) -> int:
        """The most sentences that were in the engine."""
        return max(look.in_engine for look in self.filling + self.full)

    @property
    def num_filling(self) -> int:
        """Sentences that were translated until the connection was full."""
        return self.full[0].translated - self.before.translated

    @property
    def num_too_many(self) -> int:
        """Sentences that were translated when it was full."""
        return self.full[-1].translated - self.full[0].translated


async def stall(server: RunningServer, sentences: Sequence[str], seconds: int) -> Stall:
    """Stops reading until the connection is full, and for so many seconds more."""
    async with grpc.aio.insecure_channel(server.address) as channel:
        stream = Stream(TranslationServiceStub(channel), sentences)
        await stream.wait_for(WARM_RESULTS)
        stream.pause()
        before, num_done = Look.at(server), stream.num_done
        filling, full = [before], []
        while len(filling) < MAX_FILLING_SECONDS and not is_quiet(filling):
            await asyncio.sleep(1)
            filling.append(Look.at(server))
        for _ in range(seconds + 1):
            full.append(Look.at(server))
            await asyncio.sleep(1)
        stream.go_on()
        await stream.wait_for(full[-1].translated - before.translated)
        read_afterwards = stream.num_done - num_done
        await stream.stop()
    return Stall(before, filling, full, read_afterwards)


def is_quiet(looks: Sequence[Look]) -> bool:
    """Says whether nothing was translated for a while."""
    return len(looks) > QUIET_SECONDS and looks[-1].translated == looks[-1 - QUIET_SECONDS].translated
