"""Loads real servers over real gRPC: ours and, beside it, CTranslate2 behind the same contract (baseline.py).

    python benchmarks/serving.py                                  # ours against the baseline, about ten minutes
    python benchmarks/serving.py --seconds 3 --json serving.json  # shorter loads
    python benchmarks/serving.py --callers 1 --callers 8          # ours alone, so many callers, each waiting its turn

Sentences of the test set come at random times, at rising rates, to each server in turn; a rate holds when all are answered
and 99 of 100 within the limit. Servers share one core, one thread each, and the other is the load's. See
benchmarks/README.md for how to read it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import closed_loop
import grpc
from open_loop import Load, RateSearch, load
from reporting import Bar, bars_table, machine, percentile
from sentences import SENTENCES, test_set_pairs
from servers import BASELINE, OURS, RunningServer, cores, running, running_server

from dragoman.v1 import TranslateTextRequest, TranslationServiceStub
from dragoman_model.checkpoint import BUNDLED_MODEL

BASELINE_NAME = "ctranslate2"
MUST, AIM = 1.0, 1.5  # ours / the baseline's rate


@dataclass(frozen=True)
class Capacity:
    """What a server can bear.

    Attributes:
        server: Its name.
        precision: Its model's.
        highest_rate: Calls a second that hold the limit.
        half_rate: The rate of the figures below.
        latency_p50_seconds: At half the highest rate.
        latency_p95_seconds: Likewise.
        latency_p99_seconds: Likewise.
        cpu_seconds_per_sentence: Likewise, of the server alone.
    """

    server: str
    precision: str
    highest_rate: float
    half_rate: float
    latency_p50_seconds: float
    latency_p95_seconds: float
    latency_p99_seconds: float
    cpu_seconds_per_sentence: float


class Target:
    """A server under load and the search for its highest rate."""

    def __init__(self, server: RunningServer, start: float, sentences: Sequence[str]) -> None:
        self.server = server
        self.search = RateSearch(start)
        self._sentences = sentences
        self._channel = grpc.aio.insecure_channel(server.address)
        self._stub = TranslationServiceStub(self._channel)

    async def send(self, sentence: str) -> object:
        return await self._stub.TranslateText(TranslateTextRequest(texts=[sentence]))

    async def load(self, rate: float, seconds: float, seed: int, limit: float) -> Load:
        """Returns what a rate got, with the server's processor time."""
        before = self.server.cpu_seconds()
        found = await load(self.send, self._sentences, rate, seconds, seed=seed, limit=limit)
        found.cpu_seconds = self.server.cpu_seconds() - before
        return found

    async def warm_up(self) -> None:
        for start in range(0, 128, 32):
            await asyncio.gather(*map(self.send, self._sentences[start : start + 32]))

    async def close(self) -> None:
        await self._channel.close()


async def compare(
    servers: Sequence[RunningServer], sentences: Sequence[str], *, start: float, seconds: float, limit: float, say: Any
) -> list[Capacity]:  # fmt: skip
    """Returns each server's capacity; they are loaded in turn, never at once."""
    targets = [Target(server, start, sentences) for server in servers]
    for target in targets:
        await target.warm_up()
    seed = 0
    while any(target.search.rate for target in targets):
        seed += 1
        for target in targets:
            rate = target.search.rate
            if rate is not None:
                found = await target.load(rate, seconds, seed, limit)
                say(describe(target.server.name, found, limit))
                target.search.record(found.holds(limit))
    capacities = []
    for target in targets:
        half = target.search.best / 2
        found = await target.load(half, 2 * seconds, 0, limit) if half else Load(0.0, 0)
        say(describe(target.server.name, found, limit))
        latencies = found.latencies or [float("nan")]
        p50, p95, p99 = (percentile(latencies, share) for share in (0.5, 0.95, 0.99))
        cpu = found.cpu_seconds / len(latencies)
        server = target.server
        capacities.append(
            Capacity(server.name, server.precision, target.search.best, half, p50, p95, p99, cpu)
        )
        await target.close()
    return capacities


def describe(name: str, found: Load, limit: float) -> str:
    """Returns a line about one rate."""
    verdict = "holds" if found.holds(limit) else "given up" if found.is_abandoned else "fails"
    p99 = f"p99 {percentile(found.latencies, 0.99) * 1000:.0f} ms" if found.latencies else "no answer"
    refused = f", {found.num_refused} refused" if found.num_refused else ""
    return f"{name}: {found.rate:.1f}/s {verdict}, {p99}{refused}"


def capacities_table(capacities: Sequence[Capacity]) -> str:
    """Returns the capacities as a table in Markdown."""
    lines = [
        "| server | precision | highest rate | at | p50 | p95 | p99 | CPU per sentence |",
        "| --- | --- | --: | --: | --: | --: | --: | --: |",
    ]
    for one in capacities:
        p50, p95, p99 = (
            f"{seconds * 1000:.1f} ms"
            for seconds in (one.latency_p50_seconds, one.latency_p95_seconds, one.latency_p99_seconds)
        )
        lines.append(
            f"| {one.server} | {one.precision} | {one.highest_rate:.1f}/s | {one.half_rate:.1f}/s | {p50} | {p95} | {p99} "
            f"| {one.cpu_seconds_per_sentence * 1000:.2f} ms |"
        )
    return "\n".join(lines)


def capacity_bar(capacities: Sequence[Capacity]) -> Bar:
    """Returns ours, the better of its forms, against the baseline."""
    theirs = [one.highest_rate for one in capacities if one.server == BASELINE_NAME]
    ours = [one.highest_rate for one in capacities if one.server != BASELINE_NAME]
    is_measured = bool(theirs and ours and theirs[0])
    return Bar(
        what="highest rate, ours / baseline",
        value=max(ours) / theirs[0] if is_measured else None,
        must=MUST,
        aim=AIM,
        note="" if is_measured else "needs both servers",
    )


@click.command()
@click.option(
    "--model",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=BUNDLED_MODEL,
    help="Model directory; the bundled one by default.",
)
@click.option(
    "--input",
    "input_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Sentences, one a line, instead of the test set's first 1,000 (of our own forty with --callers).",
)
@click.option("--precision", default="int8", show_default=True, help="Our server's --precision.")
@click.option("--device", default="cpu", show_default=True, help="Our server's --device.")
@click.option("--threads", default=1, show_default=True, help="Threads of a server's tensor operations.")
@click.option("--max-batch-size", default=64, show_default=True, help="Our server's --max-batch-size.")
@click.option("--seconds", default=10.0, show_default=True, help="Length of the load at each rate.")
@click.option("--start-rate", default=60.0, show_default=True, help="First rate, calls a second.")
@click.option("--limit-ms", default=250.0, show_default=True, help="What p99 must hold.")
@click.option(
    "--pin/--no-pin", default=True, show_default=True, help="Servers on one core, the load on another."
)
@click.option("--baseline/--no-baseline", default=True, show_default=True, help="Also measures the baseline.")
@click.option(
    "--engine-process", is_flag=True, help="Also measures ours with its engine in a process of its own."
)
@click.option(
    "--callers", type=int, multiple=True, help="A closed loop of ours alone: concurrent callers; repeatable."
)
@click.option(
    "--rounds", default=5, show_default=True, help="With --callers: rounds, of which the medians count."
)
@click.option(
    "--calls", default=160, show_default=True, help="With --callers: calls of each number in each round."
)
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path), help="Also writes the figures to this file."
)
def main(
    model: Path, input_path: Path | None, precision: str, device: str, threads: int, max_batch_size: int,
    seconds: float, start_rate: float,
    limit_ms: float, pin: bool, baseline: bool, engine_process: bool, callers: tuple[int, ...], rounds: int, calls: int,
    json_path: Path | None,
) -> None:  # fmt: skip
    """Measures servers of its own and prints a table."""
    arguments = [
        "--threads",
        str(threads),
        "--device",
        device,
        "--precision",
        precision,
        "--max-batch-size",
        str(max_batch_size),
        "--model",
        str(model),
    ]
    given = input_path.read_text(encoding="utf-8").splitlines() if input_path else []
    given = [line.strip() for line in given if line.strip()]
    if callers:
        with running_server(arguments) as address:
            found = asyncio.run(
                closed_loop.measure(address, given or SENTENCES, list(callers), rounds, calls, threads)
            )
        print(closed_loop.table(found))
        _write_json(json_path, asdict(found))
        return
    sentences = given or [pair.source for pair in test_set_pairs(model, 1000)]
    server_core, load_core = cores(pin)
    programs = [("dragoman", OURS, arguments)]
    if engine_process:
        programs.append(("dragoman, engine in a process", OURS, [*arguments, "--engine", "process"]))
    if baseline:
        programs.append((BASELINE_NAME, BASELINE, ["--model", str(model), "--threads", str(threads)]))
    print(f"{machine()}; {threads} thread(s); model {model.name}, ours {precision}; {len(sentences)} sentences; "
          f"p99 within {limit_ms:.0f} ms; {seconds:g} s a rate")  # fmt: skip
    with ExitStack() as stack:
        servers = [
            stack.enter_context(running(name, program, options, core=server_core))
            for name, program, options in programs
        ]
        if load_core is not None:
            os.sched_setaffinity(0, {load_core})
        capacities = asyncio.run(
            compare(servers, sentences, start=start_rate, seconds=seconds, limit=limit_ms / 1000, say=_say)
        )
    bar = capacity_bar(capacities)
    print(f"\n{capacities_table(capacities)}\n\n{bars_table([bar])}")
    _write_json(json_path, [asdict(one) for one in capacities])
    sys.exit(bar.verdict == "missed")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _write_json(path: Path | None, figures: Any) -> None:
    if path is not None:
        path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
