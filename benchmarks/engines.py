"""Compares engines on the same weights and sentences: ours, CTranslate2 and Hugging Face's ``generate``.

    python benchmarks/engines.py                        # the whole comparison, about twenty minutes
    python benchmarks/engines.py --quick                # a look, about a minute
    python benchmarks/engines.py --sentences 500 --rounds 3 --json engines.json
    python benchmarks/engines.py --engine dragoman/int8 --engine ctranslate2/int8 --beam-size 1 --batch-size 64

Each engine runs in a process of its own, on one thread. A round takes every setting in turn and, for each, every engine,
so that what else the machine does falls on all of them. Needs CTranslate2 and transformers: ``pip install -e .[bench]``.
See benchmarks/README.md for how to read it.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from agreement import Agreement, check_outputs
from engine_process import CLOCKS, EngineError, EngineProcess, Run
from reporting import Bar, bars_table, machine, percentile

ENGINES = (
    "dragoman/float32",
    "dragoman/int8",
    "ctranslate2/float32",
    "ctranslate2/int8",
    "huggingface/float32",
)
SLOW = "huggingface"  # measured on fewer sentences, in fewer rounds


@dataclass(frozen=True)
class Setting:
    """One way to run every engine."""

    beam_size: int
    batch_size: int


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


def measure(
    processes: list[EngineProcess], settings: list[Setting], sizes: Sizes, clock: str, say: Any
) -> Results:
    """Returns the runs of all rounds, engines in turn within each setting."""
    results = Results()
    for index in range(sizes.rounds):
        for setting in settings:
            for process in processes:
                if process.engine == SLOW and index >= sizes.slow_rounds:
                    continue
                name, count = process.name, sizes.count(process.engine, setting)
                if index == 0:  # so that nothing is set up, compiled or allocated on the clock
                    process.run(min(count, 2 * setting.batch_size), setting.beam_size, setting.batch_size)
                say(f"round {index + 1} of {sizes.rounds}: {name}, beam {setting.beam_size}, "
                    f"batch {setting.batch_size}")  # fmt: skip
                results.add(name, setting, count, process.run(count, setting.beam_size, setting.batch_size,
                                                              clock=clock))  # fmt: skip
            slow_setting = setting == Setting(1, 64) and index < sizes.slow_rounds
            if slow_setting and any(process.engine == SLOW for process in processes):
                # Ours on the same few sentences, so that the two can be compared.
                for process in processes:
                    if process.name == "dragoman float32" and sizes.slow < sizes.sentences:
                        run = process.run(sizes.slow, 1, 64, clock=clock)
                        results.add(process.name, setting, sizes.slow, run)
    return results


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
        ratio("float32 throughput, batch 64, greedy", SLOW, "float32", Setting(1, 64), speed, must=2.0, aim=3.5),
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


def ctranslate2_kernels(model: Path) -> str:
    """Returns what CTranslate2 says of the instruction set and the kernels that it chose."""
    code = "import sys; sys.modules['torch'] = None; import ctranslate2; ctranslate2.Translator(sys.argv[1])"
    run = subprocess.run(
        [sys.executable, "-c", code, str(model)],
        env={**os.environ, "CT2_VERBOSE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    # Its own kernels go by the instruction set; the products of matrices by what the backend finds for itself.
    said = re.findall(r"(?:Selected ISA|SGEMM backend|GEMM_S8 backend): \w+", run.stdout)
    return ", ".join(said) or "said nothing of its kernels"


@contextmanager
def engine_processes(
    names: tuple[str, ...], model: Path, device: str, threads: int, say: Any
) -> Iterator[list[EngineProcess]]:
    """Yields the engines that could be loaded; the others are named on standard error."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ctranslate2-")))
        if any(name.startswith("ctranslate2/") for name in names):
            try:
                from peers import read_weights, write_ctranslate2

                write_ctranslate2(folder / "model", *read_weights(model))
                print(f"CTranslate2: {ctranslate2_kernels(folder / 'model')}")
            except ImportError as error:
                print(f"skipped: CTranslate2: {error}; install .[bench]", file=sys.stderr)
                names = tuple(name for name in names if not name.startswith("ctranslate2/"))
        ready = []
        for name in names:
            engine, _, precision = name.partition("/")
            directory = folder / "model" if engine == "ctranslate2" else model
            say(f"loading {name}")
            process = EngineProcess(engine, precision, directory, device, threads)
            stack.callback(process.stop)
            try:
                print(f"{process.name}: {process.wait_until_ready()}")
                ready.append(process)
            except EngineError as error:
                print(f"skipped: {error}", file=sys.stderr)
        yield ready


@click.command()
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path), required=False)
@click.option(
    "--engine",
    "engines",
    multiple=True,
    default=ENGINES,
    show_default=True,
    help="engine/precision; repeatable.",
)
@click.option(
    "--input",
    "input_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Sentences, one a line, instead of the test set; they have no references, so BLEU is left out.",
)
@click.option("--sentences", default=1000, show_default=True, help="Of the test set, from its first.")
@click.option("--single-sentences", default=128, show_default=True, help="Of them, for batches of one.")
@click.option("--slow-sentences", default=256, show_default=True, help="Of them, for Hugging Face.")
@click.option("--rounds", default=5, show_default=True, help="Rounds, of which the medians count.")
@click.option("--slow-rounds", default=2, show_default=True, help="Rounds that Hugging Face takes part in.")
@click.option("--beam-size", "beam_sizes", type=int, multiple=True, default=(1, 4), show_default=True)
@click.option(
    "--batch-size",
    "batch_sizes",
    type=int,
    multiple=True,
    default=(1, 8, 32, 64),
    show_default=True,
    help="Sentences at once, with all their beams; repeatable.",
)
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option("--threads", default=1, show_default=True, help="Threads of each engine.")
@click.option(
    "--clock",
    type=click.Choice(tuple(CLOCKS)),
    default="wall",
    show_default=True,
    help="cpu counts the processor's time, for a machine that does other work.",
)
@click.option(
    "--quick", is_flag=True, help="A look: 128 sentences, one round; the other sizes stay as given."
)
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path), help="Writes the rows to this file, too."
)
def main(
    model: Path | None, engines: tuple[str, ...], input_path: Path | None, sentences: int, single_sentences: int, slow_sentences: int,
    rounds: int, slow_rounds: int, beam_sizes: tuple[int, ...], batch_sizes: tuple[int, ...], device: str,
    threads: int, clock: str, quick: bool, json_path: Path | None,
) -> None:  # fmt: skip
    """Measures engines on MODEL's weights (by default the bundled model's) and says how ours stands."""
    from sentences import test_set_pairs

    from dragoman_model.checkpoint import BUNDLED_MODEL
    from dragoman_model.config import read_config
    from dragoman_model.tokenizer import Tokenizer

    if quick:
        sentences, single_sentences, slow_sentences, rounds, slow_rounds = 128, 16, 32, 1, 1
    model = model or BUNDLED_MODEL
    tokenizer, config = Tokenizer.load(model), read_config(model / "config.json")
    if input_path:
        texts = [line for line in input_path.read_text(encoding="utf-8").splitlines() if line.strip()]
        texts, references = texts[:sentences], []
    else:
        pairs = test_set_pairs(model, sentences)
        texts, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    sources = tokenizer.encode_batch(texts)
    sizes = Sizes(
        sentences=len(sources),
        single=single_sentences,
        slow=min(slow_sentences, len(sources)),
        rounds=rounds,
        slow_rounds=min(slow_rounds, rounds),
    )
    settings = [Setting(beam, batch) for beam in beam_sizes for batch in batch_sizes]

    def say(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    print(f"{machine()}; {threads} thread(s), {device}, {clock} clock; model {model.name}; {sizes.sentences} sentences, "
          f"{sum(map(len, sources)):,} source tokens; medians of {sizes.rounds} rounds")  # fmt: skip
    with engine_processes(engines, model, device, threads, say) as processes:
        for process in processes:
            process.load(sources, config.eos_id, config.max_target_length)
        say("checking that outputs agree")
        agreement = check_outputs(processes, sizes.sentences, beam_sizes, references, tokenizer.decode)
        say("")
        for line in agreement.lines:
            print(line)
        results = measure(processes, settings, sizes, clock, say)
    say("")
    found = list(rows(processes, settings, sizes, results, threads))
    bars = find_bars(results, sizes, agreement)
    print()
    print_table(found)
    print()
    print(bars_table(bars))
    if json_path is not None:
        json_path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    sys.exit(not agreement.holds or any(bar.verdict == "missed" for bar in bars))


if __name__ == "__main__":
    main()
