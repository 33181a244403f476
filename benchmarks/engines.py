"""Compares engines on the same weights and sentences: ours, CTranslate2 and Hugging Face's ``generate``.

    python benchmarks/engines.py                        # the whole comparison, about twenty minutes
    python benchmarks/engines.py --quick                # a look, about a minute
    python benchmarks/engines.py --sentences 500 --rounds 3 --slow-rounds 1 --json engines.json
    python benchmarks/engines.py --engine dragoman/int8 --engine ctranslate2/int8 --beam-size 1 --batch-size 64

Each engine runs in a process of its own, on one thread. A round takes every setting in turn and, for each, every engine,
so that what else the machine does falls on all of them. Needs CTranslate2 and transformers: ``pip install -e .[bench]``.
See benchmarks/README.md for how to read it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
from agreement import check_outputs
from engine_process import CLOCKS, EngineError, EngineProcess
from engine_results import COMPARED_WITH_SLOW, SLOW, Results, Setting, Sizes, find_bars, print_table, rows
from reporting import bars_table, machine

ENGINES = (
    "dragoman/float32",
    "dragoman/int8",
    "ctranslate2/float32",
    "ctranslate2/int8",
    "huggingface/float32",
)


def measure(
    processes: list[EngineProcess], settings: list[Setting], sizes: Sizes, clock: str, say: Any, results: Results
) -> None:  # fmt: skip
    """Adds the runs of all rounds to ``results``, engines in turn within each setting; one that breaks is left out."""
    running = list(processes)
    for index in range(sizes.rounds):
        for setting in settings:
            for process in list(running):
                if process.engine == SLOW and index >= sizes.slow_rounds:
                    continue
                say(
                    f"round {index + 1} of {sizes.rounds}: {process.name}, beam {setting.beam_size}, "
                    f"batch {setting.batch_size}"
                )
                try:
                    for count in counts(process, setting, sizes, running, index):
                        if index == 0:  # so that nothing is set up, compiled or allocated on the clock
                            warm = min(count, 2 * setting.batch_size)
                            process.run(warm, setting.beam_size, setting.batch_size)
                        run = process.run(count, setting.beam_size, setting.batch_size, clock=clock)
                        results.add(process.name, setting, count, run)
                except EngineError as error:
                    print(f"left out: {error}", file=sys.stderr)
                    running.remove(process)


def counts(
    process: EngineProcess, setting: Setting, sizes: Sizes, running: list[EngineProcess], index: int
) -> list[int]:
    """Returns how many sentences an engine translates in a round, and how many it then does once more.

    Ours also translates the few that Hugging Face does, where the two are compared.
    """
    count = sizes.count(process.engine, setting)
    is_compared = process.name == "dragoman float32" and setting == COMPARED_WITH_SLOW
    if is_compared and index < sizes.slow_rounds and any(other.engine == SLOW for other in running):
        return sorted({count, sizes.count(SLOW, setting)})
    return [count]


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
    from dragoman_model.config_file import read_config
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
        results = Results()
        try:
            measure(processes, settings, sizes, clock, say, results)
        except KeyboardInterrupt:
            print("interrupted; what follows is what there is", file=sys.stderr)
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
