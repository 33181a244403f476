"""Sends a server ten times what it can do, and measures what becomes of the calls that it takes and of those that it doesn't.

    python benchmarks/overload.py                            # the bundled model; about three minutes
    python benchmarks/overload.py --seconds 10 --json overload.json
    python benchmarks/overload.py --texts-per-call 32        # the same load in sentences, in a quarter of the calls

One server finds out the best rate: so many callers that its batch is full, each sending its next sentence when the last is done. In
a second one no call may wait for longer than half a second (--max-queue-seconds), as an operator would have it. It gets calls at ten
times the best rate, at random moments (Poisson) whatever becomes of the ones before, and without retries; before and after that, half
the best rate. A call holds eight sentences, the most that a server takes for somebody who waits: what counts as load is sentences, and
to refuse a call costs the same however many it holds. Server and load share the cores, so the overload comes over a bare connection
(wire_load.py) and leaves them to the server: to refuse takes time beside the core that translates.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

import click
import grpc
from overload_calls import Caller, Load
from overload_checks import overload_checks
from reporting import checks_table, machine
from servers import OURS, RunningServer, cores, running

# Of the best rate.
OVERLOAD, HALF = 10.0, 0.5
# Of the load that was to be offered; less is another benchmark than the one that was asked for.
MIN_OFFERED = 0.9


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
        cpu = 0.0

        def begin() -> None:
            nonlocal cpu
            cpu = server.cpu_seconds()

        async def calm_down(load: Load) -> None:
            nonlocal after, cpu
            cpu = (server.cpu_seconds() - cpu) / (load.stopped - load.started)
            after = await caller.arrivals(HALF * best, calm_seconds)

        during = await caller.flood(server.address, OVERLOAD * best, seconds, begin, calm_down)
        watching.cancel()
    return before, during, after, memory, cpu


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
    checks = overload_checks(best, before, during, after, memory, queue_seconds)
    print(
        f"{name}; {threads} thread(s), {server.precision}, queue of {queue_seconds:g} s; best rate {best.goodput:.1f} calls/s with {callers} "
        f"callers, {texts_per_call} sentences each, offered {during.rate:.0f}/s ({during.rate / best.goodput:.1f} x) for "
        f"{seconds:g} s; the server took {cpu:.2f} CPUs, the load {during.client_cpu:.2f} and was {1000 * during.lateness:.0f} ms late (p99); "
        f"{', '.join(f'{count} {code}' for code, count in during.codes().items())}"
    )
    if during.rate < MIN_OFFERED * OVERLOAD * best.goodput:
        click.echo(
            f"warning: {during.rate / best.goodput:.1f} times the best rate was offered, not {OVERLOAD:g}: the load has no more "
            "time than that, and what it says of latencies is its own; give more --texts-per-call, or more cores",
            err=True,
        )
    print(checks_table(checks))
    if json_file is not None:
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
        json_file.write_text(
            json.dumps({**facts, "checks": [asdict(check) for check in checks]}, indent=2) + "\n"
        )
    sys.exit(not all(check.holds for check in checks))


if __name__ == "__main__":
    main()
