"""Translates a file of a million lines, killed and interrupted on the way: is every line right, and how much memory does it take?

    python benchmarks/million_lines.py --json million.json       # the bundled model; 20 to 40 minutes
    taskset -c 1 python benchmarks/million_lines.py              # on one core, as the figures in docs/performance.md are
    python benchmarks/million_lines.py --lines 20000             # two minutes

Short sentences of the test set are translated once, and the file holds them again and again in an order drawn by chance, none twice
within 2,000 lines: what each line's translation must be is known, and a line that is lost, repeated or out of its place is seen. A
server translates the file for `dragoman translate --input --output`, on a terminal, so that it draws its bar. The command is killed
(SIGKILL) at a quarter, interrupted (SIGINT, as by Ctrl-C) at half, and gone on with (`--resume`). Every second the resident memory of
both processes is read. At last a stream's caller stops reading for a while: when the connection is full, the server must stop, too.

Int8 is what makes every line comparable: a translation does not depend on its neighbours to the last bit. In other precisions a line in
a thousand may differ for that reason alone.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import click
from file_job import Run, Sample, Stop, run_job
from job_checks import job_checks, job_figures, stall_checks
from known_lines import KnownText, compare, distinct, drawn
from reporting import checks_table, machine
from sentences import test_set_pairs
from servers import OURS, RunningServer, running
from stalled_reader import stall

from dragoman_client import Translator
from dragoman_model.checkpoint import BUNDLED_MODEL

MIN_WORDS, MAX_WORDS = 3, 6
POOL_SIZE = 4000
# Of the lines: where the command is killed, and where it is interrupted; the second half is one run.
KILLED_AT, INTERRUPTED_AT = 0.25, 0.5
SAY_SECONDS = 60.0


def translate_once(server: RunningServer, sentences: Sequence[str]) -> list[KnownText]:
    """Returns the sentences with their translations from calls of their own, those that make a line each."""
    with Translator(server.address, timeout=600) as translator:  # where others use the machine, too
        translations = translator.translate(list(sentences))
    pairs = zip(sentences, translations, strict=True)
    return distinct(KnownText(source, made.text) for source, made in pairs if made.sentence_count == 1)


def translate_file(server: RunningServer, source: Path, output: Path, num_lines: int) -> list[Run]:
    """Translates the file in three runs, of which two are ended early."""
    stops = [
        Stop(round(KILLED_AT * num_lines), signal.SIGKILL),
        Stop(round(INTERRUPTED_AT * num_lines), signal.SIGINT),
        None,
    ]
    last_said = started = time.monotonic()

    def see(sample: Sample) -> None:
        nonlocal last_said
        if time.monotonic() - last_said >= SAY_SECONDS:
            last_said = time.monotonic()
            print(
                f"{last_said - started:.0f} s: {sample.num_lines:,} lines; server {sample.server_bytes / 1e6:.1f} MB, "
                f"command {sample.command_bytes / 1e6:.1f} MB",
                file=sys.stderr,
                flush=True,
            )

    runs: list[Run] = []
    for stop in stops:
        run = run_job(server, source, output, resume=bool(runs), stop=stop, see=see)
        print(
            f"lines {run.start_lines + 1:,} to {run.end_lines:,} in {run.seconds:.0f} s, exit code {run.exit_code}",
            file=sys.stderr,
            flush=True,
        )
        runs.append(run)
    return runs


@click.command()
@click.option("--model", type=click.Path(exists=True, file_okay=False, path_type=Path), default=BUNDLED_MODEL)
@click.option("--lines", default=1_000_000, show_default=True, help="Of the file.")
@click.option(
    "--stall-seconds",
    default=30,
    show_default=True,
    help="How long a stream is not read once its connection is full.",
)
@click.option("--seed", default=0, show_default=True, help="Repeats the order of the lines.")
@click.option("--precision", default="auto", show_default=True, help="The server's --precision.")
@click.option("--device", default="auto", show_default=True, help="The server's --device.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keeps input and output here; a temporary folder by default.",
)
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Also writes the figures to this file."
)
def main(
    model: Path,
    lines: int,
    stall_seconds: int,
    seed: int,
    precision: str,
    device: str,
    folder: Path | None,
    json_file: Path | None,
) -> None:
    """Translates a file through a server of its own and prints a table with verdicts; exit code 1 where one is missed."""
    # Where a shell started this in the background, Ctrl-C is ignored, by every process that follows, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    short = [
        pair.source
        for pair in test_set_pairs(model, sys.maxsize)
        if MIN_WORDS <= len(pair.source.split()) <= MAX_WORDS
    ]
    arguments = ["--precision", precision, "--device", device, "--model", str(model)]
    program = [*OURS[:2], "--http", "127.0.0.1:0", "--log-level", "warning"]
    with ExitStack() as stack:
        folder = folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        source, output = folder / "input.txt", folder / "output.txt"
        output.unlink(missing_ok=True)
        server = stack.enter_context(running("dragoman", program, arguments))
        pool = translate_once(server, short)[:POOL_SIZE]
        with source.open("w", encoding="utf-8") as file:
            file.writelines(f"{text.source}\n" for text in drawn(pool, lines, seed))
        translated = -server.total("dragoman_sentences_total")
        runs = translate_file(server, source, output, lines)
        translated += server.total("dragoman_sentences_total")
        with output.open(encoding="utf-8", newline="\n") as file:
            found = compare(
                (text.translation for text in drawn(pool, lines, seed)),
                (line.removesuffix("\n") for line in file),
            )
        journal_left = output.with_name("output.txt.journal").exists()
        stalled = asyncio.run(stall(server, [text.source for text in pool], stall_seconds))
    checks = job_checks(lines, runs, found, translated, journal_left) + stall_checks(stalled)
    figures = {**job_figures(runs), "results that an unread connection took": stalled.num_filling}
    print(f"{machine()}; {server.precision}; {lines:,} lines of {len(pool):,} sentences")
    for what, value in figures.items():
        print(f"{what}: {value}")
    print(f"\n{checks_table(checks)}")
    if json_file is not None:
        document = {
            "lines": lines,
            "figures": figures,
            "checks": [asdict(check) for check in checks],
            "comparison": asdict(found),
            "runs": [asdict(run) for run in runs],
            "stall": asdict(stalled),
        }
        json_file.write_text(json.dumps(document, indent=2) + "\n")
    sys.exit(not all(check.holds for check in checks))


if __name__ == "__main__":
    main()
