"""A closed loop: callers who each send one sentence, wait for its translation and send the next."""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import time
from dataclasses import dataclass

import grpc
from reporting import cpu_name, percentile

from dragoman.v1 import ListModelsRequest, TranslateTextRequest, TranslationServiceStub


@dataclass(frozen=True)
class Load:
    """What one number of callers got; medians over rounds."""

    callers: int
    sentences_per_second: float
    latency_p50_seconds: float
    latency_p95_seconds: float


@dataclass(frozen=True)
class Measurement:
    """The whole run and where it was made."""

    model: str
    device: str
    precision: str
    threads: int
    machine: str
    cpus: int
    rounds: int
    calls_per_round: int
    loads: list[Load]


async def run_callers(
    stub: TranslationServiceStub, sentences: list[str], callers: int, calls: int
) -> list[float]:
    """Sends ``calls`` sentences through so many callers and returns each call's seconds."""
    waiting = iter(itertools.islice(itertools.cycle(sentences), calls))
    latencies: list[float] = []

    async def call_in_turn() -> None:
        for sentence in waiting:
            started = time.perf_counter()
            await stub.TranslateText(TranslateTextRequest(texts=[sentence]))
            latencies.append(time.perf_counter() - started)

    await asyncio.gather(*(call_in_turn() for _ in range(callers)))
    return latencies


async def measure(
    address: str, sentences: list[str], callers: list[int], rounds: int, calls: int, threads: int
) -> Measurement:
    """Returns the medians of all rounds."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = TranslationServiceStub(channel)
        (model, *_) = (await stub.ListModels(ListModelsRequest())).models
        await run_callers(stub, sentences, 8, 2 * len(sentences))  # warms up
        samples: dict[int, list[Load]] = {count: [] for count in callers}
        for _ in range(rounds):
            for count in callers:
                started = time.perf_counter()
                latencies = await run_callers(stub, sentences, count, calls)
                seconds = time.perf_counter() - started
                p50, p95 = percentile(latencies, 0.5), percentile(latencies, 0.95)
                samples[count].append(Load(count, calls / seconds, p50, p95))
    loads = [
        Load(
            count,
            statistics.median(load.sentences_per_second for load in loads),
            statistics.median(load.latency_p50_seconds for load in loads),
            statistics.median(load.latency_p95_seconds for load in loads),
        )
        for count, loads in samples.items()
    ]
    return Measurement(
        model=f"{model.name} {model.digest[:12]}",
        device=model.device,
        precision=model.precision,
        threads=threads,
        machine=cpu_name(),
        cpus=len(os.sched_getaffinity(0)),
        rounds=rounds,
        calls_per_round=calls,
        loads=loads,
    )


def table(found: Measurement) -> str:
    """Returns the measurement as a table in Markdown under a line that says where it was made."""
    where = (
        f"{found.model}, {found.device}, {found.precision}, {found.threads} thread(s); {found.machine}, {found.cpus} CPUs; "
        f"medians of {found.rounds} rounds of {found.calls_per_round} calls"
    )
    rows = (
        f"| {load.callers} | {load.sentences_per_second:.1f} | {load.latency_p50_seconds * 1000:.1f} ms "
        f"| {load.latency_p95_seconds * 1000:.1f} ms |"
        for load in found.loads
    )
    return "\n".join((where, "| callers | sentences/s | p50 | p95 |", "| --: | --: | --: | --: |", *rows))
