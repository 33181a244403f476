"""What engines were measured at, and what is made of it: rows, bars, a table."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from agreement import Agreement
from engine_process import EngineProcess, Run
from reporting import Bar, percentile

SLOW = "huggingface"  # measured on fewer sentences, in fewer rounds


@dataclass(frozen=True)
class Setting:
    """One way to run every engine."""

    beam_size: int
    batch_size: int


COMPARED_WITH_SLOW = Setting(1, 64)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is measured.

    Attributes:
        sentences: Of the test set, from its first.
        single: Of them, for batches of one.
        slow: Of them, for Hugging Face.
        rounds: How often everything is measured.
        slow_rounds: How often Hugging Face is.
    """

    sentences: int
    single: int
    slow: int
    rounds: int
    slow_rounds: int

    def count(self, engine: str, setting: Setting) -> int:
        """Returns how many sentences an engine translates in a setting."""
        count = min(self.sentences, self.single) if setting.batch_size == 1 else self.sentences
        return min(count, self.slow) if engine == SLOW else count


@dataclass
class Results:
    """All runs: of an engine in a setting on so many sentences, one a round."""

    runs: dict[tuple[str, Setting, int], list[Run]] = field(default_factory=dict)

    def add(self, engine: str, setting: Setting, count: int, run: Run) -> None:
        self.runs.setdefault((engine, setting, count), []).append(run)

    def of(self, engine: str, setting: Setting, count: int) -> list[Run]:
        return self.runs.get((engine, setting, count), [])


def tokens_per_second(run: Run) -> float:
    return run.num_tokens / run.seconds


def p50(run: Run) -> float:
    return percentile(run.latencies, 0.5)


def rows(processes: list[EngineProcess], settings: list[Setting], sizes: Sizes, results: Results,
         threads: int) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yields a row for each engine and setting: medians over rounds; memory of the first round."""
    for setting in settings:
        for process in processes:
            count = sizes.count(process.engine, setting)
            runs = results.of(process.name, setting, count)
            if runs:
                yield {
                    "engine": process.engine,
                    "precision": process.precision,
                    "beam_size": setting.beam_size,
                    "batch_size": setting.batch_size,
                    "threads": threads,
                    "tokens_per_second": statistics.median(map(tokens_per_second, runs)),
                    "sentences_per_second": statistics.median(count / run.seconds for run in runs),
                    "latency_p50_seconds": statistics.median(map(p50, runs)),
                    "latency_p95_seconds": statistics.median(percentile(run.latencies, 0.95) for run in runs),
                    # What a process has once been given it seldom gives back: later rounds hold the largest setting.
                    "peak_memory_bytes": runs[0].peak_memory_bytes,
                }


def find_bars(results: Results, sizes: Sizes, agreement: Agreement) -> list[Bar]:
    """Returns the five bars."""

    def ratio(what: str, peer: str, precision: str, setting: Setting, figure: Any, **bounds: Any) -> Bar:
        count = min(sizes.count("dragoman", setting), sizes.count(peer, setting))
        ours = results.of(f"dragoman {precision}", setting, count)
        theirs = results.of(f"{peer} {precision}", setting, count)
        values = tuple(figure(one) / figure(other) for one, other in zip(ours, theirs, strict=False))
        note = "" if values else "needs both engines, this beam size and this batch size"
        value = statistics.median(values) if values else None
        return Bar(what=f"{what}, ours / {peer}", value=value, values=values, note=note, **bounds)

    speed = tokens_per_second
    return [
        ratio("int8 throughput, batch 64, greedy", "ctranslate2", "int8", Setting(1, 64), speed,
              must=0.9, aim=1.3),
        ratio("int8 latency p50, batch 1, greedy", "ctranslate2", "int8", Setting(1, 1), p50, must=1.5, aim=1.0,
              higher_is_better=False),
        ratio("int8 throughput, batch 32, beam 4", "ctranslate2", "int8", Setting(4, 32), speed,
              must=0.9, aim=1.3),
        ratio("float32 throughput, batch 64, greedy", SLOW, "float32", COMPARED_WITH_SLOW, speed, must=2.0, aim=3.5),
        Bar(what="BLEU, int8 - float32, greedy", value=agreement.bleu_difference, must=-0.3, aim=-0.1,
            note="" if agreement.bleu_difference is not None else "needs dragoman/int8 and dragoman/float32"),
    ]  # fmt: skip


def print_table(found: list[dict[str, Any]]) -> None:
    print("| engine | precision | beam | batch | tokens/s | sentences/s | p50 | p95 | memory |")
    print("| --- | --- | --: | --: | --: | --: | --: | --: | --: |")
    for row in found:
        print(
            f"| {row['engine']} | {row['precision']} | {row['beam_size']} | {row['batch_size']} "
            f"| {row['tokens_per_second']:,.0f} | {row['sentences_per_second']:.1f} "
            f"| {row['latency_p50_seconds'] * 1000:.1f} ms | {row['latency_p95_seconds'] * 1000:.1f} ms "
            f"| {row['peak_memory_bytes'] / 1e6:.0f} MB |"
        )
