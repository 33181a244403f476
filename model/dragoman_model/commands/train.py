"""``dragoman-model train``."""

from __future__ import annotations

import math
import shlex
import shutil
import signal
import threading
import time
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from dragoman_model.commands.shared import device_options, json_option, option, print_json, use_threads
from dragoman_model.config import ModelConfig
from dragoman_model.devices import resolve_device
from dragoman_model.interrupts import EXIT_INTERRUPTED
from dragoman_model.training.corpus import Corpus
from dragoman_model.training.evaluate import DevScores
from dragoman_model.training.recipe import RECIPE_FILE, load_recipe
from dragoman_model.training.run import train
from dragoman_model.training.trainer import StepReport


class _Minutes(click.FloatRange):
    """A range that leaves out what is no number, which passes any comparison."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        minutes = float(super().convert(value, param, ctx))
        if math.isnan(minutes):
            self.fail(f"{value!r} is not a number of minutes", param, ctx)
        return minutes


@click.command("train")
@click.argument("recipe", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@option(
    "--output",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The model directory to make; its folder training/ holds state, checkpoints and log.",
)
@option("--resume", is_flag=True, help="Goes on with the run in the output folder.")
@option(
    "--max-minutes",
    type=_Minutes(min=0, min_open=True),
    help="Training time, earlier runs counted in, by whose end the learning rate falls to 0.  [default: none]",
)
@device_options
@json_option
def train_command(
    recipe: Path, output: Path, resume: bool, max_minutes: float | None, device: str, threads: int, as_json: bool,
) -> int:  # fmt: skip
    """Trains a model by RECIPE.

    Downloads and cleans the corpus, learns a vocabulary, trains, averages the best checkpoints and writes the model. Ctrl-C
    saves and says how to resume. The arithmetic is the recipe's.
    """
    use_threads(threads)
    loaded = load_recipe(recipe)
    target = resolve_device(device)
    display = TrainingDisplay()
    with _Interruption() as interruption, display:
        scores = train(
            loaded, output, device=target, observer=display, should_stop=interruption.requested,
            max_minutes=max_minutes, resume=resume, on_prepared=display.prepared,
        )  # fmt: skip
    if scores is None:
        words = [
            "dragoman-model",
            "train",
            str(recipe),
            "--output",
            str(output),
            "--resume",
            "--device",
            device,
        ]
        words += ["--threads", str(threads)] if threads else []
        words += ["--max-minutes", f"{max_minutes:g}"] if max_minutes else []
        click.echo(f"Stopped and saved. To go on: {shlex.join(words)}", err=True)
        return EXIT_INTERRUPTED
    shutil.copyfile(recipe, output / RECIPE_FILE)
    if as_json:
        print_json({"model": str(output), "dev": asdict(scores)})
    else:
        click.echo(
            f"{output}: dev BLEU {scores.bleu:.2f}, chrF {scores.chrf:.2f}, {scores.nats_per_token:.3f} nats a token"
        )
    return 0


class TrainingDisplay:
    """A progress bar on a terminal, and plain lines where there is none."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            TextColumn("step {task.fields[step]}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[tokens_per_second]:,.0f} tokens/s  loss {task.fields[loss]:.3f}  dev BLEU {task.fields[bleu]}"),
            TextColumn("{task.fields[left]} left"), console=self._console, disable=not self._console.is_terminal,
        )  # fmt: skip
        self._task: TaskID = self._bar.add_task(
            "", total=1.0, step=0, tokens_per_second=0.0, loss=0.0, bleu="-", left="?"
        )
        self._clock = time.monotonic
        self._started: tuple[float, float] | None = None  # (progress, time) when this run began
        self._tokens: list[tuple[float, int]] = []

    def __enter__(self) -> TrainingDisplay:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def prepared(self, corpus: Corpus, config: ModelConfig) -> None:
        """Says what there is to train on."""
        for name, count in corpus.counts.items():
            self._console.print(f"{count:>9,}  {name}")
        self._console.print(f"{config.target_vocab_size:>9,}  vocabulary pieces")

    def stepped(self, report: StepReport) -> None:
        """Moves the bar; without a terminal, prints a line every 100 updates."""
        now = self._clock()
        if self._started is None:
            self._started = (report.progress, now)
        self._tokens = [*self._tokens, (now, report.tokens)][-50:]
        elapsed = now - self._tokens[0][0]
        rate = sum(tokens for _, tokens in self._tokens[1:]) / elapsed if elapsed else 0.0
        left = self._time_left(report.progress, now)
        self._bar.update(
            self._task,
            completed=report.progress,
            step=report.step,
            loss=report.loss,
            tokens_per_second=rate,
            left=left,
        )
        if self._bar.disable and report.step % 100 == 0:
            self._console.print(
                f"step {report.step}  epoch {report.epoch + 1}  {report.progress:.1%}  {rate:,.0f} tokens/s  "
                f"loss {report.loss:.3f}  {left} left"
            )

    def evaluated(self, step: int, scores: DevScores, *, is_best: bool) -> None:
        """Prints the dev set's scores above the bar."""
        self._bar.update(self._task, bleu=f"{scores.bleu:.1f}")
        self._console.print(
            f"step {step}  dev BLEU {scores.bleu:.2f}  chrF {scores.chrf:.2f}  {scores.nats_per_token:.3f} nats a token"
            + ("  best so far" if is_best else "")
        )

    def _time_left(self, progress: float, now: float) -> str:
        assert self._started is not None
        first_progress, first_time = self._started
        if progress <= first_progress:
            return "?"
        minutes = (1 - progress) * (now - first_time) / (progress - first_progress) / 60
        return f"{minutes // 60:.0f}:{minutes % 60:02.0f} h" if minutes >= 60 else f"{minutes:.0f} min"


class _Interruption:
    """Turns the first Ctrl-C or SIGTERM into a wish that the loop grants after its update; a second Ctrl-C stops at once."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def requested(self) -> bool:
        return self._event.is_set()

    def __enter__(self) -> _Interruption:
        self._previous = {
            number: signal.signal(number, self._request) for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self._event.is_set():
            raise KeyboardInterrupt
        self._event.set()
