"""Compares the batch's search with a textbook's, on the same model and sentences: hypotheses and scores.

    python benchmarks/exactness.py                                   # the bundled model, our own sentences, beam 4
    python benchmarks/exactness.py MODEL --sentences 300 --input FILE --beam-size 8 --num-hypotheses 4

The textbook's search (textbook.py) keeps plain lists and runs the whole prefix through the decoder for every token, one
sentence at a time; ours runs all sentences in one batch with caches. A sentence is at fault where a score differs by 1e-4
or a hypothesis does, unless its rank ties within 1e-4. Exit code 1 where any is.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import click
import torch
from sentences import SENTENCES, test_set_pairs
from textbook import Found, search, uncached_logits

from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import BUNDLED_MODEL, LoadedModel, load_model
from dragoman_model.lengths import max_length_of
from dragoman_model.options import DecodingOptions
from dragoman_model.plan import Hypothesis, Plan, Sequence
from dragoman_model.translator import Translator

TOLERANCE = 1e-4
MAX_ROWS = 64


@click.command()
@click.argument("model", type=click.Path(path_type=Path), default=BUNDLED_MODEL)
@click.option(
    "--input", "input_path", type=click.Path(exists=True, path_type=Path), help="Texts, one a line."
)
@click.option("--test-set", is_flag=True, help="The texts are the test set that the model's recipe names.")
@click.option("--sentences", "count", default=300, show_default=True, help="Of the texts, at most.")
@click.option("--beam-size", default=4, show_default=True)
@click.option("--num-hypotheses", default=1, show_default=True)
@click.option("--length-penalty", default=1.0, show_default=True)
@click.option("--max-length", type=int, help="Target tokens; by default the model's for each sentence.")
@click.option(
    "--precision",
    type=click.Choice(["float32", "int8"]),
    default="float32",
    show_default=True,
    help="int8 with --neighbours alone: the book reckons in float32.",
)
@click.option("--neighbours", is_flag=True, help="Compares with each sentence alone, and not with the book.")
@click.option("--seed", default=0, show_default=True, help="Of the neighbours.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Where the result goes, too.")
def main(
    model: Path, input_path: Path | None, test_set: bool, count: int, beam_size: int, num_hypotheses: int, length_penalty: float,
    max_length: int | None, precision: str, neighbours: bool, seed: int, json_path: Path | None,
) -> None:  # fmt: skip
    """Compares the searches and says how many sentences agree."""
    if precision == "int8" and not neighbours:
        raise click.UsageError("--precision int8 needs --neighbours")
    torch.set_num_threads(1)
    loaded = load_model(model, device="cpu", precision=precision)
    texts = input_path.read_text(encoding="utf-8").splitlines() if input_path else SENTENCES
    if test_set:
        texts = [pair.source for pair in test_set_pairs(model, count)]
    sources = [tuple(loaded.tokenizer.encode(text)) for text in texts if text.strip()][:count]
    options = DecodingOptions(
        beam_size=beam_size,
        num_hypotheses=num_hypotheses,
        length_penalty=length_penalty,
        max_length=max_length,
        keep_numbers=False,  # the book's search knows nothing of them
    )
    translator = Translator(loaded)
    if neighbours:
        found = decode_among_others(loaded, sources, options, random.Random(seed))
    else:
        found = translator.decode(sources, options=options)
    # PyTorch's operators in float32 add up in another order beside other rows.
    rounds_freely = precision == "float32" and RunningBatch(loaded.transformer).kernels == "PyTorch"
    started = time.monotonic()
    counts = {"identical": 0, "tied": 0, "at_fault": 0}
    for index, (source_ids, hypotheses) in enumerate(zip(sources, found, strict=True)):
        if neighbours:
            (alone,) = translator.decode([source_ids], options=options)
            verdict = judge_alone(hypotheses, alone, TOLERANCE if rounds_freely else 0.0)
        else:
            verdict = judge(hypotheses, search_by_the_book(loaded, source_ids, options))
        counts[verdict] += 1
        if verdict == "at_fault":
            print(f"sentence {index + 1}: {loaded.tokenizer.decode(source_ids)}", file=sys.stderr)
        if sys.stderr.isatty():
            print(f"\r{index + 1} of {len(sources)}", end="", file=sys.stderr, flush=True)
    seconds = time.monotonic() - started
    if sys.stderr.isatty():
        print(file=sys.stderr)
    result: dict[str, Any] = {
        "model": loaded.name, "digest": loaded.digest, "beam_size": beam_size, "num_hypotheses": num_hypotheses,
        "length_penalty": length_penalty, "precision": loaded.precision, "neighbours": neighbours,
        "sentences": len(sources), **counts, "seconds": round(seconds, 1),
    }  # fmt: skip
    print(
        f"{len(sources)} sentences, beam {beam_size}: {counts['identical']} identical, {counts['tied']} ties, "
        f"{counts['at_fault']} at fault"
    )
    if json_path:
        json_path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    too_few = neighbours and counts["identical"] < 0.999 * len(sources)
    sys.exit(counts["at_fault"] > 0 or too_few)


def decode_among_others(
    model: LoadedModel, sources: list[tuple[int, ...]], options: DecodingOptions, rng: random.Random
) -> list[tuple[Hypothesis, ...]]:
    """Returns what each sentence gets in a batch that all join in random order, a few at a time and at random steps."""
    batch = RunningBatch(model.transformer)
    waiting = list(range(len(sources)))
    rng.shuffle(waiting)
    found: dict[int, tuple[Hypothesis, ...]] = {}
    while waiting or batch.num_sentences:
        joining = [waiting.pop() for _ in range(min(rng.choice((0, 0, 0, 1, 2, 7)), len(waiting)))]
        if batch.num_rows >= MAX_ROWS:
            waiting += joining
            joining = []
        admit = tuple(
            Sequence(
                id=index,
                source_ids=sources[index],
                max_length=max_length_of(model.config, options, len(sources[index])),
                options=options,
            )
            for index in joining
        )
        finished = batch.run(Plan(admit=admit)).finished if admit or batch.num_sentences else []
        found.update((sentence.id, sentence.hypotheses) for sentence in finished)
    return [found[index] for index in range(len(sources))]


def judge_alone(hypotheses: tuple[Hypothesis, ...], alone: tuple[Hypothesis, ...], tolerance: float) -> str:
    """Says whether what a sentence got among others is what it gets alone."""
    if len(hypotheses) != len(alone):
        return "at_fault"
    for one, other in zip(hypotheses, alone, strict=True):
        if one.token_ids == other.token_ids:
            if tolerance == 0 and one.log_probabilities != other.log_probabilities:
                return "at_fault"
        elif not abs(one.score - other.score) < tolerance and not ties(one, other, tolerance):
            return "at_fault"
    same = all(one.token_ids == other.token_ids for one, other in zip(hypotheses, alone, strict=True))
    return "identical" if same else "tied"


def ties(one: Hypothesis, other: Hypothesis, tolerance: float) -> bool:
    """Returns whether two translations part at tokens of as good as the same probability, after which greedy search goes two ways."""
    for place, (mine, its) in enumerate(zip(one.token_ids, other.token_ids)):
        if mine != its:
            return abs(one.log_probabilities[place] - other.log_probabilities[place]) < tolerance
    return False


def search_by_the_book(
    model: LoadedModel, source_ids: tuple[int, ...], options: DecodingOptions
) -> list[Found]:
    """Returns what the textbook's search finds."""
    return search(
        uncached_logits(model.transformer, source_ids),
        model.config.eos_id,
        beam=options.beam_size,
        count=options.num_hypotheses,
        alpha=options.length_penalty,
        max_length=max_length_of(model.config, options, len(source_ids)),
    )


def judge(hypotheses: tuple[Hypothesis, ...], expected: list[Found]) -> str:
    """Says whether a sentence's hypotheses are identical, tied or at fault."""
    if len(hypotheses) != len(expected) or any(
        abs(one.score - other.score) >= TOLERANCE for one, other in zip(hypotheses, expected, strict=True)
    ):
        return "at_fault"
    same = all(list(one.token_ids) == other.tokens for one, other in zip(hypotheses, expected, strict=True))
    return "identical" if same else "tied"  # other tokens of the same score


if __name__ == "__main__":
    main()
