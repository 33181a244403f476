"""Trains every kind of attention and positions on the same small task, and compares what they learn and how fast they are.

    python benchmarks/ablation.py                          # 5 minutes a run: 50 minutes; --jobs 2 takes half
    python benchmarks/ablation.py --minutes 1 --variant default --variant "rotary positions"
    python benchmarks/ablation.py --device cuda --minutes 3

The task is the recipe's corpus, of which pairs of at most 8 words are left, as they are, in a vocabulary of 2,000 pieces; the
model has width 128, two encoder layers and one decoder layer. Every run sees the same batches in the same order and has one
thread. Its minutes are those of the *processor* (on a GPU: of the clock), and so are the tokens a second, so that a neighbour on
the machine doesn't decide; a variant that takes longer for a step makes fewer of them. The learning rate falls to 0 by the end.

What a run has reached lies in --work: one that was interrupted goes on when the command is given again. Decoding is measured at
the end in this process: greedy, one thread, all variants taking turns. The default is trained from three seeds, whose spread
says what a difference means.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean, median
from typing import Any

import click
import torch
from ablation_run import (
    DEFAULT,
    VARIANTS,
    Run,
    prepare_vocabulary,
    small_recipe,
    train_run,
    trained_transformer,
)
from reporting import machine

from dragoman_model.batch import RunningBatch
from dragoman_model.plan import Plan
from dragoman_model.plan import Sequence as Sentence
from dragoman_model.tokenizer import Tokenizer
from dragoman_model.training.corpus import prepare
from dragoman_model.training.download import default_cache_dir
from dragoman_model.transformer import Transformer

RECIPE = Path(__file__).parent.parent / "recipes" / "tatoeba-en-de.toml"
_NUM_SENTENCES, _BATCH_ROWS, _ROUNDS = 400, 32, 5
_LEAST_BLEU = 10.0  # below it BLEU says little


@click.command()
@click.option("--minutes", default=5.0, show_default=True, help="Training time of a run.")
@click.option("--jobs", default=1, show_default=True, help="Runs at a time, one thread each.")
@click.option("--seeds", default=3, show_default=True, help="Runs of the default, from seed 1 on.")
@click.option(
    "--variant", "variants", multiple=True, type=click.Choice(list(VARIANTS)), help="All by default."
)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option(
    "--recipe", type=click.Path(exists=True, path_type=Path), default=RECIPE, help="Names the corpus."
)
@click.option(
    "--work", type=click.Path(path_type=Path), help="Holds the runs; by default a folder in the cache."
)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Where the result goes, too.")
def main(
    minutes: float,
    jobs: int,
    seeds: int,
    variants: Sequence[str],
    device: str,
    recipe: Path,
    work: Path | None,
    json_path: Path | None,
) -> None:
    """Trains each variant and prints the table."""
    work = work or default_cache_dir() / "ablation"
    runs = [
        Run(variant=variant, seed=seed, recipe=recipe, work=work, minutes=minutes, device=device)
        for variant in (variants or VARIANTS)
        for seed in range(1, (seeds if variant == DEFAULT else 1) + 1)
    ]
    runs.sort(key=lambda run: run.seed)  # what is interrupted lacks a seed rather than a variant
    os.environ["OMP_NUM_THREADS"] = "1"  # for the runs, which inherit it
    torch.set_num_threads(1)
    prepare_vocabulary(runs[0])
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        rows = list(pool.map(train_run, runs))
    first = [run for run in runs if run.seed == 1]
    print("measuring decoding", file=sys.stderr, flush=True)
    speeds = dict(zip([run.variant for run in first], decoding_speeds(first), strict=True))
    for row in rows:
        row["decoding_tokens_per_second"] = speeds[row["variant"]]
    clock = "minutes of the processor" if device == "cpu" else "minutes on a GPU"
    print(f"{minutes:g} {clock} a run, one thread, {jobs} at a time; {machine()}\n")
    print(table(rows))
    if json_path:
        result = {
            "minutes": minutes, "device": device, "jobs": jobs, "threads": 1, "machine": machine(),
            "rows": rows, "seed_spread": seed_spread(rows),
        }  # fmt: skip
        json_path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def decoding_speeds(runs: Sequence[Run]) -> list[float]:
    """Returns the target tokens that each run's model writes in a second of the processor, the median of rounds."""
    tokenizer = Tokenizer.load(runs[0].work)
    texts = [pair.source for pair in prepare(small_recipe(runs[0])).dev[:_NUM_SENTENCES]]
    sources = [tuple(ids) for ids in tokenizer.encode_batch(texts)]
    transformers = [trained_transformer(run) for run in runs]
    rounds = []
    for _ in range(_ROUNDS):
        speeds = []
        for transformer in transformers:
            started = time.process_time()
            num_tokens = decode(transformer, sources)
            speeds.append(num_tokens / (time.process_time() - started))
        rounds.append(speeds)
    return [median(speeds) for speeds in zip(*rounds, strict=True)]


def decode(transformer: Transformer, sources: Sequence[tuple[int, ...]]) -> int:
    """Translates sources greedily, each joining as another ends, and returns how many tokens were written."""
    batch, waiting, num_tokens = RunningBatch(transformer), list(enumerate(sources)), 0
    while waiting or batch.num_rows:
        admitted = [waiting.pop() for _ in range(min(_BATCH_ROWS - batch.num_rows, len(waiting)))]
        plan = Plan(
            admit=tuple(
                Sentence(
                    id=index,
                    source_ids=source,
                    max_length=min(10 + 2 * len(source), transformer.config.max_target_length),
                )
                for index, source in admitted
            )
        )
        num_tokens += sum(len(sentence.best.token_ids) for sentence in batch.run(plan).finished)
    return num_tokens


def seed_spread(rows: Sequence[dict[str, Any]]) -> float | None:
    """Returns how far the losses of the default's seeds lie apart at most; None with fewer than two."""
    losses = [row["nats_per_character"] for row in rows if row["variant"] == DEFAULT]
    return max(losses) - min(losses) if len(losses) > 1 else None


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Returns the rows as a table in Markdown, the seeds of a variant as their mean, with the spread below it."""
    by_variant: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_variant.setdefault(row["variant"], []).append(row)

    def mean(variant: str, key: str) -> float:
        return fmean(row[key] for row in by_variant[variant])

    has_bleu = DEFAULT in by_variant and mean(DEFAULT, "bleu") >= _LEAST_BLEU
    bleu_head, bleu_line = (" BLEU |", " --: |") if has_bleu else ("", "")
    lines = [
        "| variant | nats a character | steps | training, tokens/s | decoding, tokens/s | parameters |"
        + bleu_head,
        "| --- | --: | --: | --: | --: | --: |" + bleu_line,
    ]
    for variant, members in by_variant.items():
        name = variant if len(members) == 1 else f"{variant}, mean of {len(members)} seeds"
        bleu = f" {mean(variant, 'bleu'):.1f} |" if has_bleu else ""
        lines.append(
            f"| {name} | {mean(variant, 'nats_per_character'):.4f} | {mean(variant, 'steps'):,.0f} | "
            f"{mean(variant, 'training_tokens_per_second'):,.0f} | "
            f"{mean(variant, 'decoding_tokens_per_second'):,.0f} | {members[0]['parameters']:,} |{bleu}"
        )
    spread = seed_spread(rows)
    if spread is not None:
        lines += ["", f"The default's seeds lie {spread:.4f} nats a character apart."]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
