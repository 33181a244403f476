"""Measures what looking at attention for the metrics costs a server (--attention-sample-share).

    python benchmarks/attention_sample.py                      # the bundled model, 8 callers
    python benchmarks/attention_sample.py --callers 32 --json sample.json

Two servers translate the same sentences, one that looks at no translation's attention and one that looks at every one's, but for
those that come while too many wait for it; rounds take turns. Printed is the processor time that a sentence takes each, what a look
takes by that, and what a share of 1 % comes to.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from contextlib import ExitStack
from pathlib import Path

import click
from reporting import machine
from sentences import SENTENCES
from servers import OURS, RunningServer, running

from dragoman_client import AsyncTranslator
from dragoman_model.checkpoint import BUNDLED_MODEL


@click.command()
@click.argument("directory", metavar="[MODEL]", type=click.Path(path_type=Path), default=BUNDLED_MODEL)
@click.option("--callers", default=8, show_default=True, help="Each with one sentence at a time.")
@click.option("--rounds", default=7, show_default=True)
@click.option(
    "--repeats", default=10, show_default=True, help="Times that our forty sentences go through in a round."
)
@click.option("--precision", default="auto", show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Where the result goes, too.")
def main(
    directory: Path, callers: int, rounds: int, repeats: int, precision: str, json_path: Path | None
) -> None:
    """Translates with and without, and prints what it takes."""
    arguments = [
        "--model",
        str(directory),
        "--http",
        "127.0.0.1:0",
        "--threads",
        "1",
        "--precision",
        precision,
    ]
    milliseconds: dict[float, list[float]] = {0.0: [], 1.0: []}
    looks: list[float] = []  # milliseconds of each
    with ExitStack() as stack:
        servers = {
            share: stack.enter_context(
                running(f"share {share:g}", OURS, [*arguments, "--attention-sample-share", str(share)])
            )
            for share in milliseconds
        }
        for server in servers.values():
            measure(server, callers, 1)  # warm-up
        for _ in range(rounds):
            num_before = num_looked_at(servers[1.0])
            for share, server in servers.items():
                milliseconds[share].append(measure(server, callers, repeats))
            share_looked_at = (num_looked_at(servers[1.0]) - num_before) / (repeats * len(SENTENCES))
            looks.append((milliseconds[1.0][-1] - milliseconds[0.0][-1]) / share_looked_at)
        used = servers[0.0].precision
    without, with_all = (statistics.median(values) for values in milliseconds.values())
    look = statistics.median(looks)
    print(f"{machine()}, {used}, {callers} callers; processor time of the server, median of {rounds} rounds")
    print(f"without  {without:.2f} ms a sentence")
    print(f"with     {with_all:.2f} ms a sentence, {with_all / without:.2f} times as much")
    print(f"a look   {look:.2f} ms; in the last round {share_looked_at:.0%} of the sentences were looked at")
    print(f"a share of 1 % costs {look / without / 100:.2%}")
    if json_path:
        result = {
            "machine": machine(),
            "precision": used,
            "callers": callers,
            "cpu_ms_without": milliseconds[0.0],
            "cpu_ms_with": milliseconds[1.0],
            "ratio": with_all / without,
            "cpu_ms_of_a_look": looks,
        }
        json_path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def measure(server: RunningServer, callers: int, repeats: int) -> float:
    """Returns the milliseconds of processor time that a sentence takes, with the looks that follow it."""
    before = server.cpu_seconds()
    asyncio.run(translate(server.address, callers, repeats))
    count = -1
    while (now := num_looked_at(server)) > count:
        count = now
        time.sleep(0.3)
    return 1000 * (server.cpu_seconds() - before) / (repeats * len(SENTENCES))


def num_looked_at(server: RunningServer) -> int:
    """Returns how many sentences' attention has been looked at."""
    return server.total("dragoman_cross_attention_entropy_nats_count")


async def translate(address: str, callers: int, repeats: int) -> None:
    """Translates the sentences, each in a call of its own, so many at a time."""
    waiting = iter([sentence for _ in range(repeats) for sentence in SENTENCES])

    async def call_after_call(translator: AsyncTranslator) -> None:
        for sentence in waiting:
            await translator.translate(sentence)

    async with AsyncTranslator(address) as translator:
        await asyncio.gather(*(call_after_call(translator) for _ in range(callers)))


if __name__ == "__main__":
    main()
