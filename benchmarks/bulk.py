"""What a bulk stream costs an interactive caller: p99 of one caller alone and beside a `TranslateBatch` stream.

    python benchmarks/bulk.py                              # about three minutes
    python benchmarks/bulk.py --rounds 2 --calls 60 --json bulk.json

The caller sends one sentence of the test set, waits for its translation and sends the next; the stream sends as fast as flow
control lets it. Rounds take the two in turn. The server has one core, and the load another.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import grpc
from bulk_stream import Stream
from reporting import Bar, bars_table, machine, percentile
from sentences import test_set_pairs
from servers import OURS, cores, running

from dragoman.v1 import TranslateTextRequest, TranslationServiceStub
from dragoman_model.checkpoint import BUNDLED_MODEL

MUST, AIM = 2.0, 1.5  # p99 beside the stream / alone


@dataclass(frozen=True)
class Interference:
    """Medians over rounds.

    Attributes:
        alone_p50_seconds: Of the caller alone.
        alone_p99_seconds: Likewise.
        beside_p50_seconds: Of the caller beside the stream.
        beside_p99_seconds: Likewise.
        p99_ratio: Median of the rounds' ratios.
        bulk_sentences_per_second: What the stream got beside the caller.
        bulk_alone_sentences_per_second: What it gets with nobody beside it.
    """

    alone_p50_seconds: float
    alone_p99_seconds: float
    beside_p50_seconds: float
    beside_p99_seconds: float
    p99_ratio: float
    bulk_sentences_per_second: float
    bulk_alone_sentences_per_second: float


async def call_in_turn(stub: TranslationServiceStub, sentences: Sequence[str]) -> list[float]:
    """Translates the sentences one after the other and returns each call's seconds."""
    latencies = []
    for sentence in sentences:
        started = time.perf_counter()
        await stub.TranslateText(TranslateTextRequest(texts=[sentence]))
        latencies.append(time.perf_counter() - started)
    return latencies


async def measure(address: str, sentences: Sequence[str], rounds: int, calls: int, say: Any) -> Interference:
    """Returns how the two get on."""
    samples: list[tuple[list[float], list[float], float, float]] = []
    async with grpc.aio.insecure_channel(address) as channel:
        stub = TranslationServiceStub(channel)
        asked = sentences[:calls]
        await call_in_turn(stub, asked[:20])
        for number in range(rounds):
            alone = await call_in_turn(stub, asked)
            stream = Stream(stub, sentences)
            await stream.wait_for(256)  # until it runs at its full width
            before, started = stream.num_done, time.perf_counter()
            beside = await call_in_turn(stub, asked)
            speed = (stream.num_done - before) / (time.perf_counter() - started)
            before, started = stream.num_done, time.perf_counter()
            await stream.wait_for(512)
            speed_alone = (stream.num_done - before) / (time.perf_counter() - started)
            await stream.stop()
            samples.append((alone, beside, speed, speed_alone))
            say(
                f"round {number + 1}: p99 {percentile(alone, 0.99) * 1000:.1f} ms alone, "
                f"{percentile(beside, 0.99) * 1000:.1f} ms beside the stream"
            )

    def median(figure: Any) -> float:
        return statistics.median(figure(*sample) for sample in samples)

    return Interference(
        alone_p50_seconds=median(lambda alone, *_: percentile(alone, 0.5)),
        alone_p99_seconds=median(lambda alone, *_: percentile(alone, 0.99)),
        beside_p50_seconds=median(lambda _, beside, *__: percentile(beside, 0.5)),
        beside_p99_seconds=median(lambda _, beside, *__: percentile(beside, 0.99)),
        p99_ratio=median(lambda alone, beside, *_: percentile(beside, 0.99) / percentile(alone, 0.99)),
        bulk_sentences_per_second=median(lambda *sample: sample[2]),
        bulk_alone_sentences_per_second=median(lambda *sample: sample[3]),
    )


@click.command()
@click.option("--model", type=click.Path(exists=True, file_okay=False, path_type=Path), default=BUNDLED_MODEL)
@click.option("--precision", default="auto", show_default=True, help="The server's --precision.")
@click.option("--device", default="auto", show_default=True, help="The server's --device.")
@click.option("--threads", default=1, show_default=True, help="Threads of the server's tensor operations.")
@click.option("--rounds", default=5, show_default=True, help="Rounds, of which the medians count.")
@click.option(
    "--calls",
    default=300,
    show_default=True,
    help="Calls of the interactive caller, in each half of a round.",
)
@click.option(
    "--pin/--no-pin", default=True, show_default=True, help="The server on one core, the load on another."
)
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path), help="Also writes the figures to this file."
)
def main(
    model: Path, precision: str, device: str, threads: int, rounds: int, calls: int, pin: bool, json_path: Path | None
) -> None:  # fmt: skip
    """Measures a server of its own."""
    sentences = [pair.source for pair in test_set_pairs(model, 1000)]
    arguments = [
        "--threads",
        str(threads),
        "--device",
        device,
        "--precision",
        precision,
        "--model",
        str(model),
    ]
    server_core, load_core = cores(pin)
    name = machine()  # before this process keeps to one core
    with running("dragoman", OURS, arguments, core=server_core) as server:
        print(
            f"{name}; {threads} thread(s); model {model.name}, {server.precision}; medians of {rounds} rounds of {calls} calls"
        )
        if load_core is not None:
            os.sched_setaffinity(0, {load_core})
        say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
        found = asyncio.run(measure(server.address, sentences, rounds, calls, say))
    print(
        "\n| | p50 | p99 | stream's sentences/s |\n| --- | --: | --: | --: |\n"
        f"| caller alone | {found.alone_p50_seconds * 1000:.1f} ms | {found.alone_p99_seconds * 1000:.1f} ms | |\n"
        f"| beside the stream | {found.beside_p50_seconds * 1000:.1f} ms | {found.beside_p99_seconds * 1000:.1f} ms "
        f"| {found.bulk_sentences_per_second:.1f} |\n"
        f"| stream alone | | | {found.bulk_alone_sentences_per_second:.1f} |\n"
    )
    bar = Bar(
        what="p99 beside a stream / alone", value=found.p99_ratio, must=MUST, aim=AIM, higher_is_better=False
    )
    print(bars_table([bar]))
    if json_path is not None:
        json_path.write_text(json.dumps(asdict(found), indent=2) + "\n", encoding="utf-8")
    sys.exit(bar.verdict == "missed")


if __name__ == "__main__":
    main()
