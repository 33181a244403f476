"""Measures a real server over real gRPC: sentences a second and latency for 1, 8 and 32 concurrent callers.

    python benchmarks/serving.py                     # the bundled model, our own sentences
    python benchmarks/serving.py --threads 2 --json serving.json

The server runs in a process of its own; each caller sends one sentence, waits for its translation and sends the next.
Rounds take the numbers of callers in turn, so that a neighbour's load falls on all of them; medians over rounds count.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import grpc

from dragoman.v1 import ListModelsRequest, TranslateTextRequest, TranslationServiceStub

SENTENCES = """
Good morning, how did you sleep?
The train to Hamburg leaves at ten past seven.
I forgot my umbrella at home.
Can you tell me where the post office is?
She has been learning the piano for six years.
We would like a table for four by the window.
My brother works in a hospital.
It is raining again.
Please close the door behind you.
The children are playing in the garden.
He bought a used car for 3,500 euros last week.
Do you want tea or coffee?
I will call you back as soon as I get home.
The museum is closed on Mondays.
They moved to a smaller town because the rent was too high.
What time does the shop open tomorrow?
My phone is broken, so I could not answer.
This soup needs a little more salt.
He told us a story that nobody believed.
The meeting was moved to Thursday at 2 pm.
Thank you for your help.
I have never seen so many stars in the sky.
She opened the window to let in some fresh air.
If the weather is good, we will go swimming on Sunday.
The old man sat on the bench and fed the birds.
Where did you put the keys?
Our neighbours have two dogs and a cat.
You should see a doctor about that cough.
The book you lent me was better than the film.
There is no milk left in the fridge.
He speaks three languages, but he prefers to write in English.
I am looking for a present for my mother's birthday.
The bridge was built more than a hundred years ago.
Don't worry, everything will be fine.
We waited for an hour, and then we went home without him.
My sister wants to become a teacher.
The bus was late this morning.
Could you speak a little more slowly?
In winter it gets dark before five o'clock.
After dinner she washed the dishes while he read the newspaper.
""".strip().splitlines()


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


@contextmanager
def running_server(arguments: list[str]) -> Iterator[str]:
    """Starts a server and yields its address; stops it in the end."""
    command = [sys.executable, "-m", "dragoman_server", "--listen", "127.0.0.1:0", "--http", "", *arguments]
    process = subprocess.Popen([*command, "--log-level", "warning"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise click.ClickException("the server did not start")
        yield dict(pair.split("=", 1) for pair in line.split()[1:])["grpc"]
    finally:
        process.terminate()
        process.wait()


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
                percentiles = statistics.quantiles(latencies, n=20, method="inclusive")
                samples[count].append(Load(count, calls / seconds, percentiles[9], percentiles[18]))
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


def cpu_name() -> str:
    """Returns the processor's name as the kernel knows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine()
    )


@click.command()
@click.option("--model", type=click.Path(path_type=Path), help="Model directory; the bundled one by default.")
@click.option(
    "--input", "file", type=click.File(encoding="utf-8"), help="Sentences, one a line; ours by default."
)
@click.option(
    "--callers", type=int, multiple=True, default=(1, 8, 32), show_default=True, help="Concurrent callers."
)
@click.option("--rounds", default=5, show_default=True, help="Rounds, of which the medians count.")
@click.option(
    "--calls", default=160, show_default=True, help="Calls for each number of callers in each round."
)
@click.option("--threads", default=1, show_default=True, help="Threads of the server's tensor operations.")
@click.option("--device", default="auto", show_default=True, help="The server's --device.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Also writes the figures to this file."
)
def main(
    model: Path | None,
    file: click.utils.LazyFile | None,
    callers: tuple[int, ...],
    rounds: int,
    calls: int,
    threads: int,
    device: str,
    json_file: Path | None,
) -> None:
    """Measures a server of its own and prints a table."""
    sentences = [line.strip() for line in file if line.strip()] if file else SENTENCES
    arguments = ["--threads", str(threads), "--device", device, *(["--model", str(model)] if model else [])]
    with running_server(arguments) as address:
        found = asyncio.run(measure(address, sentences, list(callers), rounds, calls, threads))
    print(f"{found.model}, {found.device}, {found.precision}, {found.threads} thread(s); {found.machine}, "
          f"{found.cpus} CPUs; medians of {found.rounds} rounds of {found.calls_per_round} calls")  # fmt: skip
    print("| callers | sentences/s | p50 | p95 |\n| --: | --: | --: | --: |")
    for load in found.loads:
        print(
            f"| {load.callers} | {load.sentences_per_second:.1f} | {load.latency_p50_seconds * 1000:.1f} ms "
            f"| {load.latency_p95_seconds * 1000:.1f} ms |"
        )
    if json_file is not None:
        json_file.write_text(json.dumps(asdict(found), indent=2) + "\n")


if __name__ == "__main__":
    main()
