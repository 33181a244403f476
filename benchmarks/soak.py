"""Soaks a server in requests of every kind, and in calls that are cancelled: what does it hold in the end, and how much memory?

    python benchmarks/soak.py                                            # the bundled model; some minutes
    python benchmarks/soak.py --requests 5000 --cancellations 1000 --json soak.json

After the first tenth of the requests the server should have found its size: from there on its memory may grow by 2 %. It rises and
falls by many times that with the requests that happen to run, so growth is what a straight line through all samples says. In the end no
row runs, no sentence waits, no call is open, every call has ended as its kind should, and the next one is answered.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import click
import grpc
from memory_growth import growth_check, settled_growth
from mixed_requests import mixed_requests, run_calls, run_cancelled_calls
from reporting import Check, checks_table, machine
from sentences import SENTENCES
from servers import OURS, RunningServer, cores, running

from dragoman.v1 import TranslateTextRequest, TranslationServiceStub

# Calls end for their callers a moment before the server has put everything away.
SETTLE_SECONDS = 10.0


async def until_settled(server: RunningServer, num_calls: int) -> tuple[dict[str, float], int]:
    """Waits until nothing is held and so many calls have ended, or as long as makes sense; returns what is left of both."""
    end = time.monotonic() + SETTLE_SECONDS
    while True:
        left, open_calls = server.held(), max(0, num_calls - server.total("dragoman_requests_total"))
        if (not left and not open_calls) or time.monotonic() > end:
            return left, open_calls
        await asyncio.sleep(0.2)


async def soak(
    server: RunningServer, requests: int, cancellations: int, callers: int, seed: int
) -> dict[str, object]:
    memory: list[tuple[float, float]] = []
    memory_cancelled: list[tuple[float, float]] = []

    def sampling(samples: list[tuple[float, float]], count: int) -> Callable[[int], None]:
        def sample(done: int) -> None:
            if done % max(1, count // 100) == 0:
                samples.append((done, server.memory_bytes()))

        return sample

    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = TranslationServiceStub(channel)
        make = mixed_requests(SENTENCES, seed)
        started = time.monotonic()
        ends, wrong = await run_calls(
            stub, make, requests, num_callers=callers, after_each=sampling(memory, requests)
        )
        seconds = time.monotonic() - started
        # A deadline may pass before the call ever reaches the server.
        num_certain = sum(count for end, count in ends.items() if not end.endswith("DEADLINE_EXCEEDED"))
        left, open_calls = await until_settled(server, num_certain)
        rng = random.Random(seed)
        cancelled = await run_cancelled_calls(
            stub,
            make,
            cancellations,
            num_callers=callers,
            # From before it is sent to long after it has ended.
            pause=lambda: asyncio.sleep(rng.choice((0.0, 0.0, 0.001, 0.005, 0.02, 0.1))),
            after_each=sampling(memory_cancelled, cancellations),
        )
        # A call that is cancelled before it reached the server is none of its calls.
        left_after, _ = await until_settled(server, 0)
        answer = await stub.TranslateText(TranslateTextRequest(texts=SENTENCES))
        answered = len(answer.translations) == len(SENTENCES)
    return {
        "requests": requests,
        "seconds": round(seconds, 1),
        "ends": dict(sorted(ends.items())),
        "wrong_ends": dict(Counter(wrong)),
        "open_calls": open_calls,
        "held_after_requests": left,
        "cancellations": cancelled,
        "held_after_cancellations": left_after,
        "answers_afterwards": answered,
        "memory_peak_bytes": max((size for _, size in memory), default=0),
        "memory_after_cancellations_bytes": server.memory_bytes(),
        "memory_growth": settled_growth(memory),
        "memory_growth_cancelled": settled_growth(memory_cancelled),
        "memory_samples": memory,
        "memory_samples_cancelled": memory_cancelled,
    }


@click.command()
@click.option("--model", type=click.Path(path_type=Path), help="Model directory; the bundled one by default.")
@click.option("--requests", default=50_000, show_default=True, help="That are read to their end.")
@click.option("--cancellations", default=10_000, show_default=True, help="Calls that are then cancelled.")
@click.option("--callers", default=48, show_default=True, help="Calls at a time.")
@click.option("--seed", default=0, show_default=True, help="Repeats the requests.")
@click.option("--threads", default=1, show_default=True, help="Threads of the server's tensor operations.")
@click.option("--precision", default="auto", show_default=True, help="The server's --precision.")
@click.option("--device", default="auto", show_default=True, help="The server's --device.")
@click.option("--engine", default="auto", show_default=True, help="The server's --engine.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Also writes the figures to this file."
)
def main(
    model: Path | None,
    requests: int,
    cancellations: int,
    callers: int,
    seed: int,
    threads: int,
    precision: str,
    device: str,
    engine: str,
    json_file: Path | None,
) -> None:
    """Soaks a server of its own and prints a table with verdicts; exit code 1 where one is missed."""
    arguments = ["--threads", str(threads), "--precision", precision, "--device", device, "--engine", engine]
    arguments += ["--model", str(model)] if model else []
    program = [*OURS[:2], "--http", "127.0.0.1:0", "--log-level", "warning"]
    with running("dragoman", program, arguments, core=cores(True)[0]) as server:
        found = asyncio.run(soak(server, requests, cancellations, callers, seed))
        print(
            f"{machine()}; {server.precision}; {requests} requests in {found['seconds']} s, {found['cancellations']} cancelled calls"
        )
    wrong = found["wrong_ends"]
    left, left_after = found["held_after_requests"], found["held_after_cancellations"]
    checks = [
        Check("calls that ended as they should not have", wrong or 0, not wrong),
        Check("calls still open", found["open_calls"], found["open_calls"] == 0),
        Check("held after the requests", left or 0, not left),
        Check("held after the cancellations", left_after or 0, not left_after),
        Check("answers afterwards", found["answers_afterwards"], bool(found["answers_afterwards"])),
        growth_check("memory, growth after the first tenth", found["memory_growth"]),
    ]
    print(checks_table(checks))
    if json_file is not None:
        document = {**found, "checks": [asdict(check) for check in checks]}
        json_file.write_text(json.dumps(document, indent=2, default=asdict) + "\n")
    raise SystemExit(0 if all(check.holds for check in checks) else 1)


if __name__ == "__main__":
    main()
