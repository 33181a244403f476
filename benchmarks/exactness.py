"""Compares the batch's search with a textbook's, on the same model and sentences: hypotheses and scores.

    python benchmarks/exactness.py                                   # the bundled model, our own sentences, beam 4
    python benchmarks/exactness.py MODEL --sentences 300 --input FILE --beam-size 8 --num-hypotheses 4

The textbook's search (textbook.py) keeps plain lists and runs the whole prefix through the decoder for every token, one
sentence at a time; ours runs all sentences in one batch with caches. A sentence is at fault where a score differs by 1e-4
or a hypothesis does, unless its rank ties within 1e-4. Exit code 1 where any is.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click
import torch
from sentences import SENTENCES
from textbook import Found, search, uncached_logits

from dragoman_model.checkpoint import BUNDLED_MODEL, LoadedModel, load_model
from dragoman_model.options import DecodingOptions
from dragoman_model.plan import Hypothesis
from dragoman_model.translator import Translator, max_length_of

TOLERANCE = 1e-4


@click.command()
@click.argument("model", type=click.Path(path_type=Path), default=BUNDLED_MODEL)
@click.option(
    "--input", "input_path", type=click.Path(exists=True, path_type=Path), help="Texts, one a line."
)
@click.option("--sentences", "count", default=300, show_default=True, help="Of the texts, at most.")
@click.option("--beam-size", default=4, show_default=True)
@click.option("--num-hypotheses", default=1, show_default=True)
@click.option("--length-penalty", default=1.0, show_default=True)
@click.option("--max-length", type=int, help="Target tokens; by default the model's for each sentence.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Where the result goes, too.")
def main(
    model: Path, input_path: Path | None, count: int, beam_size: int, num_hypotheses: int, length_penalty: float,
    max_length: int | None, json_path: Path | None,
) -> None:  # fmt: skip
    """Compares the searches and says how many sentences agree."""
    torch.set_num_threads(1)
    loaded = load_model(model, device="cpu", precision="float32")
    texts = input_path.read_text(encoding="utf-8").splitlines() if input_path else SENTENCES
    sources = [tuple(loaded.tokenizer.encode(text)) for text in texts if text.strip()][:count]
    options = DecodingOptions(
        beam_size=beam_size,
        num_hypotheses=num_hypotheses,
        length_penalty=length_penalty,
        max_length=max_length,
        keep_numbers=False,  # the book's search knows nothing of them
    )
    found = Translator(loaded).decode(sources, options=options)
    started = time.monotonic()
    counts = {"identical": 0, "tied": 0, "at_fault": 0}
    for index, (source_ids, hypotheses) in enumerate(zip(sources, found, strict=True)):
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
        "length_penalty": length_penalty, "sentences": len(sources), **counts, "textbook_seconds": round(seconds, 1),
    }  # fmt: skip
    print(
        f"{len(sources)} sentences, beam {beam_size}: {counts['identical']} identical, {counts['tied']} ties, "
        f"{counts['at_fault']} at fault"
    )
    if json_path:
        json_path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    sys.exit(counts["at_fault"] > 0)


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
