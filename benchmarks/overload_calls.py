"""Calls that come at any rate, whatever becomes of those before them, and how each of them ended."""

from __future__ import annotations

import asyncio
import base64
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from math import inf

import grpc
from google.rpc import error_details_pb2, status_pb2
from open_loop import poisson_arrivals
from reporting import percentile
from sentences import SENTENCES
from wire_load import Answer, WireConnection

from dragoman.v1 import TranslateTextRequest

METHOD = "/dragoman.v1.TranslationService/TranslateText"

CODES = {str(code.value[0]): code.name for code in grpc.StatusCode}


@dataclass(frozen=True)
class Ended:
    """A call: when it was due and when it ended, on this process's clock, and how.

    Attributes:
        due: When it was to be sent, or was, where that depended on those before it.
        trailers: As they came; of calls that went through a bare connection alone.
    """

    due: float
    ended: float
    code: str
    trailers: tuple[tuple[str, str], ...] | None = None

    @property
    def seconds(self) -> float:
        """From the one to the other, so that what keeps the load from sending counts, too."""
        return self.ended - self.due


@dataclass
class Load:
    """A span of time and the calls that were sent in it.

    Attributes:
        started: On this process's clock.
        stopped: When the last call was to be sent.
        calls: How each of them ended.
        client_cpu: CPUs that this process took meanwhile.
        lateness: Seconds after it was due within which 99 of 100 calls were sent; of `Caller.flood` alone.
    """

    started: float
    stopped: float = 0.0
    calls: list[Ended] = field(default_factory=list)
    client_cpu: float = 0.0
    lateness: float = 0.0

    def codes(self) -> dict[str, int]:
        """Returns how many calls ended with each status, the most first."""
        return dict(Counter(call.code for call in self.calls).most_common())

    def seconds_of(self, code: str) -> list[float]:
        """Returns how long each call took that ended with a status."""
        return [call.seconds for call in self.calls if call.code == code]

    @property
    def goodput(self) -> float:
        """Calls a second that were answered while the load lasted."""
        done = sum(1 for call in self.calls if call.code == "OK" and call.ended <= self.stopped)
        return done / (self.stopped - self.started)

    @property
    def rate(self) -> float:
        """Calls a second that were sent."""
        return len(self.calls) / (self.stopped - self.started)


class Caller:
    """Sends sentences as bytes, so that as little as can be is spent on this side."""

    def __init__(self, channel: grpc.aio.Channel, texts_per_call: int, seed: int = 0) -> None:
        self._call = channel.unary_unary(METHOD)
        self._rng = random.Random(seed)
        texts = [self._rng.choices(SENTENCES, k=texts_per_call) for _ in range(200)]
        self._requests = [TranslateTextRequest(texts=some).SerializeToString() for some in texts]

    async def send(self, due: float | None = None) -> Ended:
        """Sends one request, due now unless it was before, waits for its end and returns it."""
        due = time.monotonic() if due is None else due
        call = self._call(self._rng.choice(self._requests))
        try:
            await call
        except grpc.aio.AioRpcError as error:
            return Ended(due, time.monotonic(), error.code().name)
        return Ended(due, time.monotonic(), "OK")

    async def callers(self, count: int, seconds: float) -> Load:
        """Lets so many callers each send its next sentence when the last is done."""
        load = Load(time.monotonic())

        async def in_turn() -> None:
            while time.monotonic() < load.started + seconds:
                load.calls.append(await self.send())

        await asyncio.gather(*(in_turn() for _ in range(count)))
        load.stopped = load.started + seconds
        return load

    async def arrivals(self, rate: float, seconds: float) -> Load:
        """Sends requests at random moments, so many a second, and waits for all of their ends."""
        load = Load(time.monotonic())
        tasks = []
        for arrival in self._arrivals(rate, seconds):
            due = load.started + arrival
            await asyncio.sleep(due - time.monotonic())
            tasks.append(asyncio.create_task(self.send(due)))
        load.stopped = time.monotonic()
        load.calls = await asyncio.gather(*tasks)
        return load

    async def flood(
        self,
        address: str,
        rate: float,
        seconds: float,
        first: Callable[[], None],
        then: Callable[[Load], Awaitable[None]],
    ) -> Load:
        """Does the same through a bare connection, so that as little as can be of the machine is spent on this side.

        Args:
            address: Of the server.
            rate: Requests a second.
            seconds: How long.
            first: Called when all is made that is to be sent, in another thread.
            then: Begins when the last has been sent, with the load as far as it is known.
        """
        connection = WireConnection(address, METHOD)
        arrivals = self._arrivals(rate, seconds)
        requests = [self._rng.choice(self._requests) for _ in arrivals]
        load = Load(0.0)
        event_loop = asyncio.get_running_loop()
        all_sent: asyncio.Future[None] = event_loop.create_future()
        cpu = 0.0

        def note_start(now: float) -> None:
            nonlocal cpu
            load.started, cpu = now, time.process_time()
            first()

        def note_all_sent(now: float) -> None:
            load.stopped = now
            load.client_cpu = (time.process_time() - cpu) / (now - load.started)
            event_loop.call_soon_threadsafe(all_sent.set_result, None)

        flooding = asyncio.create_task(
            asyncio.to_thread(connection.load, requests, arrivals, first=note_start, then=note_all_sent)
        )
        await all_sent
        await then(load)
        await flooding
        answers = connection.answers()
        load.calls = list(map(ended, answers))
        load.lateness = percentile([answer.sent - answer.due for answer in answers], 0.99)
        return load

    def _arrivals(self, rate: float, seconds: float) -> list[float]:
        return poisson_arrivals(rate, seconds, self._rng.getrandbits(32))


def ended(answer: Answer) -> Ended:
    """Returns how a call ended that went through a bare connection."""
    trailers = dict(answer.trailers or ())
    code = CODES.get(trailers.get("grpc-status", ""), "NO_ANSWER" if answer.ended == inf else "RESET")
    return Ended(answer.due, answer.ended, code, answer.trailers)


def says_when(call: Ended) -> bool:
    """Says whether a refusal tells when to come back, both ways: RetryInfo and pushback."""
    trailers = dict(call.trailers or ())
    if "grpc-retry-pushback-ms" not in trailers or "grpc-status-details-bin" not in trailers:
        return False
    details = base64.b64decode(trailers["grpc-status-details-bin"] + "==")  # gRPC sends it without
    packed = status_pb2.Status.FromString(details).details
    return any(detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in packed)
