"""Sends a server ten times what it can do, and measures what becomes of the calls that it takes and of those that it doesn't.

    python benchmarks/overload.py                            # the bundled model; about three minutes
    python benchmarks/overload.py --seconds 10 --json overload.json
    python benchmarks/overload.py --texts-per-call 32        # the same load in sentences, in a quarter of the calls

One server finds out the best rate: so many callers that its batch is full, each sending its next sentence when the last is done. In
a second one no call may wait for longer than half a second (--max-queue-seconds), as an operator would have it. It gets calls at ten times the best rate, at random moments (Poisson) whatever becomes of the ones before, and without retries;
before and after that, half the best rate. A call holds eight sentences, the most that a server takes for somebody who waits: what
counts as load is sentences, and to refuse a call costs the same however many it holds. Server and load share the cores, so the overload
comes over a bare connection (wire_load.py) and leaves them to the server: to refuse takes time beside the core that translates.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

import click
import grpc
from google.rpc import error_details_pb2, status_pb2
from reporting import machine, percentile
from sentences import SENTENCES
from servers import OURS, RunningServer, cores, running
from wire_load import Answer, WireConnection

from dragoman.v1 import TranslateTextRequest

METHOD = "/dragoman.v1.TranslationService/TranslateText"

CODES = {str(code.value[0]): code.name for code in grpc.StatusCode}

# Of the best rate.
OVERLOAD, HALF = 10.0, 0.5
MAX_REFUSAL_SECONDS, MAX_RECOVERY_SECONDS, MIN_GOODPUT = 0.05, 1.0, 0.8
# Of the load that was to be offered; less is another benchmark than the one that was asked for.
MIN_OFFERED = 0.9
# Memory still settles a little while allocators find their sizes.
MAX_MEMORY_GROWTH = 1.05


@dataclass(frozen=True)
class Ended:
    """A call: when it was sent and when it ended, on this process's clock, and how.

    Attributes:
        trailers: As they came; of calls that went through a bare connection alone.
    """

    sent: float
    ended: float
    code: str
    trailers: tuple[tuple[str, str], ...] | None = None

    @property
    def seconds(self) -> float:
        return self.ended - self.sent


@dataclass
class Load:
    """A span of time and the calls that were sent in it."""

    started: float
    stopped: float = 0.0
    calls: list[Ended] = field(default_factory=list)
    client_cpu: float = 0.0  # CPUs that this process took

    def codes(self) -> dict[str, int]:
        """Returns how many calls ended with each status, the most first."""
        return dict(Counter(call.code for call in self.calls).most_common())

    def seconds_of(self, code: str) -> list[float]:
        return [call.seconds for call in self.calls if call.code == code]

    @property
    def goodput(self) -> float:
        """Calls a second that were answered while the load lasted."""
        done = sum(1 for call in self.calls if call.code == "OK" and call.ended <= self.stopped)
        return done / (self.stopped - self.started)

    @property
    def rate(self) -> float:
        return len(self.calls) / (self.stopped - self.started)


@dataclass(frozen=True)
class Verdict:
    """A measured value and the bound that it is held against."""

    what: str
    value: float
    bound: float
    unit: str
    at_least: bool = False

    @property
    def holds(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound


class Caller:
    """Sends sentences as bytes, so that as little as can be is spent on this side."""

    def __init__(self, channel: grpc.aio.Channel, texts_per_call: int, seed: int = 0) -> None:
        self._call = channel.unary_unary(METHOD)
        self._rng = random.Random(seed)
        texts = [self._rng.choices(SENTENCES, k=texts_per_call) for _ in range(200)]
        self._requests = [TranslateTextRequest(texts=some).SerializeToString() for some in texts]

    async def send(self) -> Ended:
        sent = time.monotonic()
        call = self._call(self._rng.choice(self._requests))
        try:
            await call
        except grpc.aio.AioRpcError as error:
            return Ended(sent, time.monotonic(), error.code().name)
        return Ended(sent, time.monotonic(), "OK")

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
        for due in self._dues(load.started, rate, seconds):
            await asyncio.sleep(due - time.monotonic())
            tasks.append(asyncio.create_task(self.send()))
        load.stopped = time.monotonic()
        load.calls = await asyncio.gather(*tasks)
        return load

    async def flood(
        self, address: str, rate: float, seconds: float, then: Callable[[Load], Awaitable[None]]
    ) -> Load:
        """Does the same through a bare connection, so that as little as can be of the machine is spent on this side.

        Args:
            address: Of the server.
            rate: Requests a second.
            seconds: How long.
            then: Begins when the last has been sent, with the load as far as it is known.
        """
        connection = WireConnection(address, METHOD)
        load = Load(time.monotonic() + 0.2 + seconds / 100)  # until all is made that is to be sent
        dues = self._dues(load.started, rate, seconds)
        requests = [self._rng.choice(self._requests) for _ in dues]
        event_loop = asyncio.get_running_loop()
        all_sent: asyncio.Future[None] = event_loop.create_future()
        cpu = time.process_time()

        def note_all_sent(now: float) -> None:
            load.stopped = now
            load.client_cpu = (time.process_time() - cpu) / (now - load.started)
            event_loop.call_soon_threadsafe(all_sent.set_result, None)

        flooding = asyncio.create_task(asyncio.to_thread(connection.load, requests, dues, then=note_all_sent))
        await all_sent
        await then(load)
        await flooding
        load.calls = list(map(ended, connection.answers()))
        return load

    def _dues(self, start: float, rate: float, seconds: float) -> list[float]:
        dues = itertools.accumulate(self._rng.expovariate(rate) for _ in itertools.count())
        return [start + due for due in itertools.takewhile(lambda due: due < seconds, dues)]


def ended(answer: Answer) -> Ended:
    """Returns how a call ended that went through a bare connection."""
    trailers = dict(answer.trailers or ())
    code = CODES.get(trailers.get("grpc-status", ""), "NO_ANSWER" if answer.ended == inf else "RESET")
    return Ended(answer.sent, answer.ended, code, answer.trailers)


def says_when(call: Ended) -> bool:
    """Says whether a refusal tells when to come back, both ways: RetryInfo and pushback."""
    trailers = dict(call.trailers or ())
    if "grpc-retry-pushback-ms" not in trailers or "grpc-status-details-bin" not in trailers:
        return False
    details = base64.b64decode(trailers["grpc-status-details-bin"] + "==")  # gRPC sends it without
    packed = status_pb2.Status.FromString(details).details
    return any(detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in packed)


def p99(seconds: list[float]) -> float:
    return percentile(seconds, 0.99) if seconds else 0.0


def peak_memory(samples: list[tuple[float, int]], start: float, end: float) -> int:
    """Returns the largest of the samples that were taken in a span of time."""
    return max((memory for time_, memory in samples if start <= time_ <= end), default=0)


async def find_best(address: str, seconds: float, callers: int, texts_per_call: int) -> Load:
    async with grpc.aio.insecure_channel(address) as channel:
        caller = Caller(channel, texts_per_call)
        await caller.callers(callers, max(1.0, seconds / 5))  # warms up
        return await caller.callers(callers, seconds)


async def overload(
    server: RunningServer, best: float, seconds: float, calm_seconds: float, texts_per_call: int
) -> tuple[Load, Load, Load, list[tuple[float, int]], float]:
    """Returns the loads before, during and after, samples of the memory, and the server's CPU share meanwhile."""
    memory: list[tuple[float, int]] = []

    async def watch() -> None:
        while True:
            memory.append((time.monotonic(), server.memory_bytes()))
            await asyncio.sleep(0.1)

    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, texts_per_call)
        await caller.callers(max(1, 64 // texts_per_call), 2.0)  # warms up
        watching = asyncio.create_task(watch())
        before = await caller.arrivals(HALF * best, calm_seconds)
        after = Load(0.0)
        cpu = server.cpu_seconds()

        async def calm_down(load: Load) -> None:
            nonlocal after, cpu
            cpu = (server.cpu_seconds() - cpu) / (load.stopped - load.started)
            after = await caller.arrivals(HALF * best, calm_seconds)

        during = await caller.flood(server.address, OVERLOAD * best, seconds, calm_down)
        watching.cancel()
    return before, during, after, memory, cpu


def recovery_seconds(before: Load, after: Load) -> float:
    """Returns how long after the overload a call was still refused, or took twice as long as nearly all did before it."""
    normal = 2 * p99(before.seconds_of("OK"))
    troubled = [
        call.sent - after.started for call in after.calls if call.code != "OK" or call.seconds > normal
    ]
    # One call in a hundred is slow at any time; what comes in a row is trouble.
    troubled = troubled[: -max(1, len(after.calls) // 100)]
    return max(troubled, default=0.0)


def judge(
    best: Load, before: Load, during: Load, after: Load, memory: list[tuple[float, int]], queue_seconds: float
) -> list[Verdict]:
    refused = during.seconds_of("RESOURCE_EXHAUSTED")
    told = [call for call in during.calls if says_when(call)]
    others = len(during.calls) - len(refused) - len(during.seconds_of("OK"))
    middle = (during.started + during.stopped) / 2
    growth = peak_memory(memory, middle, during.stopped) / max(1, peak_memory(memory, before.started, middle))
    # As long as a call may wait, and then the slowest that a full batch was seen to take by itself.
    bound = queue_seconds + p99(best.seconds_of("OK"))
    return [
        Verdict("goodput, share of the best", during.goodput / best.goodput, MIN_GOODPUT, "", at_least=True),
        Verdict("refusals, p99", p99(refused), MAX_REFUSAL_SECONDS, "s"),
        Verdict(
            "refusals that say when to come back", len(told) / max(1, len(refused)), 1.0, "", at_least=True
        ),
        Verdict("calls that ended otherwise", others, 0, ""),
        Verdict("admitted calls, p99", p99(during.seconds_of("OK")), bound, "s"),
        Verdict("memory, second half / before", growth, MAX_MEMORY_GROWTH, ""),
        Verdict("recovery", recovery_seconds(before, after), MAX_RECOVERY_SECONDS, "s"),
    ]


@click.command()
@click.option("--model", type=click.Path(path_type=Path), help="Model directory; the bundled one by default.")
@click.option("--seconds", default=60.0, show_default=True, help="Of overload.")
@click.option("--best-seconds", default=15.0, show_default=True, help="To find the best rate.")
@click.option(
    "--calm-seconds", default=5.0, show_default=True, help="At half the best rate, before and after."
)
@click.option(
    "--callers", type=int, help="Who find the best rate; by default so many that they have 128 sentences."
)
@click.option("--texts-per-call", default=8, show_default=True, help="Sentences in each call.")
@click.option("--queue-seconds", default=0.5, show_default=True, help="The server's --max-queue-seconds.")
@click.option("--threads", default=1, show_default=True, help="Threads of the server's tensor operations.")
@click.option("--precision", default="auto", show_default=True, help="The server's --precision.")
@click.option("--device", default="auto", show_default=True, help="The server's --device.")
@click.option("--engine", default="auto", show_default=True, help="The server's --engine.")
@click.option(
    "--pin/--no-pin", default=False, show_default=True, help="The server on one core, the load on another."
)
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Also writes the figures to this file."
)
def main(
    model: Path | None,
    seconds: float,
    best_seconds: float,
    calm_seconds: float,
    callers: int | None,
    texts_per_call: int,
    queue_seconds: float,
    threads: int,
    precision: str,
    device: str,
    engine: str,
    pin: bool,
    json_file: Path | None,
) -> None:
    """Overloads a server of its own and prints a table with verdicts; exit code 1 where one is missed."""
    arguments = ["--threads", str(threads), "--precision", precision, "--device", device, "--engine", engine]
    arguments += ["--model", str(model)] if model else []
    # Enough for a full batch, and for another to wait; far too few to fill the queue and be refused.
    callers = callers or max(1, 128 // texts_per_call)
    name = machine()  # before this process keeps to one core
    server_core, client_core = cores(pin)
    if client_core is not None:
        os.sched_setaffinity(0, {client_core})
    with running("dragoman", OURS, arguments, core=server_core) as server:
        best = asyncio.run(find_best(server.address, best_seconds, callers, texts_per_call))
    arguments += ["--max-queue-seconds", str(queue_seconds)]
    with running("dragoman", OURS, arguments, core=server_core) as server:
        before, during, after, memory, cpu = asyncio.run(
            overload(server, best.goodput, seconds, calm_seconds, texts_per_call)
        )
    verdicts = judge(best, before, during, after, memory, queue_seconds)
    print(
        f"{name}; {threads} thread(s), {server.precision}, queue of {queue_seconds:g} s; best rate {best.goodput:.1f} calls/s with {callers} "
        f"callers, {texts_per_call} sentences each, offered {during.rate:.0f}/s ({during.rate / best.goodput:.1f} x) for "
        f"{seconds:g} s; the server took {cpu:.2f} CPUs, the load {during.client_cpu:.2f}; "
        f"{', '.join(f'{count} {code}' for code, count in during.codes().items())}"
    )
    if during.rate < MIN_OFFERED * OVERLOAD * best.goodput:
        click.echo(
            f"warning: {during.rate / best.goodput:.1f} times the best rate was offered, not {OVERLOAD:g}: the load has no more "
            "time than that, and what it says of latencies is its own; give more --texts-per-call, or more cores",
            err=True,
        )
    print("| what | measured | bound | |\n| --- | --: | --: | --- |")
    for verdict in verdicts:
        sign = "at least" if verdict.at_least else "at most"
        print(
            f"| {verdict.what} | {verdict.value:.3g} {verdict.unit} | {sign} {verdict.bound:.3g} {verdict.unit} "
            f"| {'holds' if verdict.holds else 'MISSED'} |"
        )
    if json_file is not None:
        rows = [
            {"what": v.what, "value": v.value, "bound": v.bound, "unit": v.unit, "holds": v.holds}
            for v in verdicts
        ]
        facts = {
            "texts_per_call": texts_per_call,
            "best_calls_per_second": best.goodput,
            "offered_calls_per_second": during.rate,
            "goodput_calls_per_second": during.goodput,
            "refused": len(during.seconds_of("RESOURCE_EXHAUSTED")),
            "admitted": len(during.seconds_of("OK")),
            "max_queue_seconds": queue_seconds,
            "server_cpus": cpu,
            "load_cpus": during.client_cpu,
            "codes": during.codes(),
            "peak_memory_bytes": max((bytes_ for _, bytes_ in memory), default=0),
        }
        json_file.write_text(json.dumps({**facts, "verdicts": rows}, indent=2) + "\n")
    raise SystemExit(0 if all(verdict.holds for verdict in verdicts) else 1)


if __name__ == "__main__":
    main()
