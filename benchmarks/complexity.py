"""Measures how time, memory and the way of information through one layer grow with the length of a sequence.

    python benchmarks/complexity.py                     # half a minute; 1 GB of memory
    python benchmarks/complexity.py --json complexity.json

One layer each (layers_compared.py), width 64, float32, one sequence, forward, on one thread, for n = 64 … 8,192 positions:

- Time is the processor's, the least of several rounds in which the layers take turns, so that a busy machine disturbs little. Memory
  is kept between passes: else the system hands out and clears the large matrices anew each time, at the price of computing them.
- Memory is the most that PyTorch held at any time of a pass, as its own allocator reports it to the profiler, without input and
  weights. It is exact, and the same in every run, which the memory of a process is not.
- Exponents are the slopes of both in logarithms over the n from 2,048 on. There the projections, which are linear, are a
  sixteenth of attention's products at the most; below, they and what a call costs at all hide the growth.
- Sequential steps: how far the longest chain of operators grows that must wait for one another.
- Path length: updates of the layer until the last position depends on the first, by which positions a gradient reaches. A
  recurrent layer's update is one step, at all positions at once.

Steps and paths are those of 256 positions. The theory beside them is table 1 of Vaswani et al. 2017, convolutions contiguous,
not dilated.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import torch
from layers_compared import (
    Layer,
    cpu_seconds,
    make_layers,
    path_length,
    peak_bytes,
    positions_reached,
    sequential_steps,
)
from reporting import machine

LENGTHS = tuple(2**power for power in range(6, 14))
FIT_FROM = 2048
PATH_LENGTH = 256


@click.command()
@click.option(
    "--rounds", default=3, show_default=True, help="Passes at each length, of which the fastest counts."
)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Where the result goes, too.")
def main(rounds: int, json_path: Path | None) -> None:
    """Measures each layer at each length, fits, and prints the table."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler's notes of its starts and ends
    torch.set_num_threads(1)
    keep_memory()
    layers = make_layers()
    seconds: dict[tuple[str, int], float] = {}
    for _ in range(rounds):
        for n in LENGTHS:
            for layer in layers:
                taken = cpu_seconds(layer.apply, n)
                seconds[layer.name, n] = min(taken, seconds.get((layer.name, n), math.inf))
    rows = [row_of(layer, {n: seconds[layer.name, n] for n in LENGTHS}) for layer in layers]
    print(f"{machine()}, one thread, PyTorch {torch.__version__}\n")
    print(table(layers, rows))
    if json_path:
        json_path.write_text(
            json.dumps({"machine": machine(), "rows": rows}, indent=2) + "\n", encoding="utf-8"
        )


def keep_memory() -> None:
    """Has the C library keep what is freed, however large, where it is glibc; elsewhere nothing changes."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        max_maps, trim_threshold = -4, -1  # M_MMAP_MAX and M_TRIM_THRESHOLD of malloc.h
        mallopt(max_maps, 0)
        mallopt(trim_threshold, 2**31 - 1)


def row_of(layer: Layer, seconds: Mapping[int, float]) -> dict[str, Any]:
    """Returns what there is to say of a layer, given its time for each n."""
    num_bytes = {n: peak_bytes(layer.apply, n) for n in LENGTHS}
    fitted = [n for n in LENGTHS if n >= FIT_FROM]
    return {
        "layer": layer.name,
        "family": layer.family,
        "time_exponent": round(growth_exponent(fitted, [seconds[n] for n in fitted]), 3),
        "memory_exponent": round(growth_exponent(fitted, [num_bytes[n] for n in fitted]), 3),
        "sequential_steps": sequential_steps(layer.apply, PATH_LENGTH),
        "path_length": path_length(positions_reached(layer.update, PATH_LENGTH)),
        "seconds": seconds,
        "bytes": num_bytes,
    }


def growth_exponent(lengths: Sequence[int], values: Sequence[float]) -> float:
    """Returns b of the a · n^b that is nearest to the values, in logarithms."""
    x, y = [math.log(n) for n in lengths], [math.log(value) for value in values]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((one - mean_x) * (other - mean_y) for one, other in zip(x, y, strict=True))
    return covariance / sum((one - mean_x) ** 2 for one in x)


def table(layers: Sequence[Layer], rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the measured numbers beside the theory, as a table in Markdown."""
    longest = max(LENGTHS)
    lines = [
        f"| | layer | time | theory | memory | theory | steps | theory | path | theory | n = {longest:,} |",
        "| --- | --- | --: | --- | --: | --- | --: | --- | --: | --- | --: |",
    ]
    family = ""
    for layer, row in zip(layers, rows, strict=True):
        cells = [
            layer.family if layer.family != family else "",
            layer.name,
            f"n^{row['time_exponent']:.2f}", _power(layer.time),
            f"n^{row['memory_exponent']:.2f}", _power(layer.memory),
            str(row["sequential_steps"]), layer.steps,
            str(row["path_length"]), layer.path,
            f"{row['seconds'][longest] * 1000:.0f} ms, {row['bytes'][longest] / 1e6:.0f} MB",
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
        family = layer.family
    return "\n".join(lines)


def _power(exponent: int) -> str:
    return "n" if exponent == 1 else "n²"


if __name__ == "__main__":
    main()
