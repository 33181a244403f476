"""The process of one engine: reads a request a line and writes an answer a line, both JSON (see engine_process.py)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine_adapters import ENGINES, Engine
from engine_process import CLOCKS, EngineError, Run, TokenIds


def until_eos(token_ids: Iterable[int | str], eos_id: int) -> TokenIds:
    """Returns the tokens up to end-of-sentence, or all where there is none; padding may follow it."""
    ids = [int(token_id) for token_id in token_ids]
    return ids[: ids.index(eos_id) + 1] if eos_id in ids else ids


def reset_peak_memory() -> None:
    """Sets the process's peak to what it holds now."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_memory_bytes() -> int:
    """Returns the process's peak since the last reset; the parent's is not in it, as it is in getrusage's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise EngineError("/proc/self/status says no VmHWM; memory is measured on Linux only")


def serve(
    engine: Engine, requests: Iterator[dict[str, Any]], answer: Callable[[dict[str, Any]], None]
) -> None:
    """Answers requests until they end."""
    sources: list[Any] = []
    eos_id = 0
    for request in requests:
        if "sources" in request:
            sources = [engine.prepare(source) for source in request["sources"]]
            eos_id, engine.max_target_length = request["eos_id"], request["max_target_length"]
            answer({})
            continue
        clock = CLOCKS[request["clock"]]
        engine.patience, engine.wants_scores = request["patience"], request["outputs"]
        reset_peak_memory()
        engine.reset_peak()
        started = clock()
        timed = engine.translate(
            sources[: request["count"]], request["beam_size"], request["batch_size"], clock
        )
        seconds = clock() - started
        peak = engine.peak_memory_bytes() or peak_memory_bytes()
        found = [until_eos(timed.outputs[index], eos_id) for index in range(request["count"])]
        run = Run(
            seconds=seconds,
            latencies=[timed.latencies[index] for index in range(request["count"])],
            num_tokens=sum(map(len, found)),
            peak_memory_bytes=peak,
            outputs=found if request["outputs"] else [],
            scores=[score for _, score in sorted(timed.scores.items())] if request["outputs"] else [],
        )
        answer(asdict(run))


@contextmanager
def private_stdout() -> Iterator[Any]:
    """Yields standard output and turns whatever else writes there to standard error."""
    with os.fdopen(os.dup(1), "w") as pipe:
        os.dup2(2, 1)
        yield pipe


def main(name: str, precision: str, model: str, device: str, threads: str) -> None:
    """Loads an engine and serves it until standard input ends."""
    with private_stdout() as pipe:

        def answer(message: dict[str, Any]) -> None:
            print(json.dumps(message), file=pipe, flush=True)

        try:
            engine = ENGINES[name](precision, Path(model), device, int(threads))
        except Exception as error:
            answer({"error": f"{name} {precision}: {type(error).__name__}: {error}"})
            return
        answer({"description": engine.description})
        serve(engine, (json.loads(line) for line in sys.stdin), answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
