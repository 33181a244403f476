"""From the files of a recipe to clean sentence pairs: training, dev and test, with nothing leaking between them."""

import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dragoman_model.errors import CorpusError
from dragoman_model.training.download import Progress, fetch, read_text
from dragoman_model.training.recipe import CleaningOptions, CorpusOptions, Recipe


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


@dataclass(frozen=True)
class Corpus:
    """What a model is trained on, chosen by and measured on.

    Attributes:
        train: Clean pairs, in the file's order.
        dev: Clean pairs of which ``train`` holds neither side.
        test: The test set as it is published; ``train`` and ``dev`` hold neither side of any of its pairs.
        counts: How many pairs each step removed and how many there are, in the order of the steps.
    """

    train: list[Pair]
    dev: list[Pair]
    test: list[Pair]
    counts: Mapping[str, int]


def prepare(
    recipe: Recipe,
    cache_dir: Path | None = None,
    mirror: Path | None = None,
    on_progress: Progress | None = None,
) -> Corpus:
    """Fetches a recipe's files and returns its corpus; the same recipe gives the same corpus.

    Args:
        recipe: Which files, and what to leave out.
        cache_dir: See ``download.fetch``.
        mirror: See ``download.fetch``.
        on_progress: See ``download.fetch``.

    Raises:
        DownloadError: A file can't be had.
        CorpusError: A file isn't laid out as the recipe says.
    """

    def read(name: str) -> str:
        download = recipe.download(name)
        return read_text(download, fetch(download, cache_dir, mirror, on_progress))

    options = recipe.corpus
    test = pair_lines(read(options.test_source), read(options.test_target), options)
    raw = parse_pairs(read(options.train), options)
    counts = {"raw pairs": len(raw)}
    pairs = without_shared_sides(raw, test)
    counts["removed: shares a side with the test set"] = len(raw) - len(pairs)
    pairs, removed = clean(pairs, recipe.cleaning)
    counts.update({f"removed: {reason}": count for reason, count in removed.items()})
    rest, dev = split_dev(pairs, options.dev_size, options.seed)
    train = without_shared_sides(rest, dev)
    counts["removed: shares a translation with the dev set"] = len(rest) - len(train)
    counts.update({"dev pairs": len(dev), "test pairs": len(test), "training pairs": len(train)})
    return Corpus(train, dev, test, counts)


def comparison_key(sentence: str) -> str:
    """Returns the sentence without case and punctuation: two sentences with one key count as the same."""
    return " ".join(re.sub(r"\W+", " ", sentence.lower()).split())


def parse_pairs(text: str, options: CorpusOptions) -> list[Pair]:
    """Returns the pairs of a tab-separated text.

    Raises:
        CorpusError: A line has too few columns.
    """
    pairs = []
    last = max(options.source_column, options.target_column)
    for number, line in enumerate(_lines(text), start=1):
        columns = line.split("\t")
        if len(columns) <= last:
            raise CorpusError(
                f"{options.train}: line {number} has {len(columns)} column(s), expected at least {last + 1}; "
                "correct source_column and target_column in the recipe"
            )
        pairs.append(Pair(columns[options.source_column], columns[options.target_column]))
    return pairs


def pair_lines(sources: str, targets: str, options: CorpusOptions) -> list[Pair]:
    """Returns the pairs of two texts that belong together line by line.

    Raises:
        CorpusError: They don't have the same number of lines.
    """
    source_lines, target_lines = _lines(sources), _lines(targets)
    if len(source_lines) != len(target_lines):
        raise CorpusError(
            f"{options.test_source} has {len(source_lines)} lines, {options.test_target} has {len(target_lines)}; "
            "expected the same number"
        )
    return [Pair(*sides) for sides in zip(source_lines, target_lines, strict=True)]


def without_shared_sides(pairs: Iterable[Pair], held_out: Iterable[Pair]) -> list[Pair]:
    """Returns the pairs that share neither side with any pair of ``held_out``."""
    held_out = list(held_out)
    sources = {comparison_key(pair.source) for pair in held_out}
    targets = {comparison_key(pair.target) for pair in held_out}
    return [
        pair
        for pair in pairs
        if comparison_key(pair.source) not in sources and comparison_key(pair.target) not in targets
    ]


def clean(pairs: Iterable[Pair], options: CleaningOptions) -> tuple[list[Pair], dict[str, int]]:
    """Returns the good pairs, white space normalised, and for each reason how many it removed."""
    removed = dict.fromkeys(
        ("empty", "too short", "too long", "length ratio", "identical sides", "duplicate"), 0
    )
    kept: list[Pair] = []
    seen: set[Pair] = set()
    for raw in pairs:
        pair = Pair(" ".join(raw.source.split()), " ".join(raw.target.split()))
        shorter, longer = sorted((len(pair.source), len(pair.target)))
        num_words = max(side.count(" ") + 1 for side in pair)
        if shorter == 0:
            removed["empty"] += 1
        elif shorter < options.min_characters:
            removed["too short"] += 1
        elif longer > options.max_characters or num_words > options.max_words:
            removed["too long"] += 1
        elif longer > shorter * options.max_length_ratio + options.length_slack:
            removed["length ratio"] += 1
        elif options.drop_identical and pair.source == pair.target:
            removed["identical sides"] += 1
        elif options.drop_duplicates and pair in seen:
            removed["duplicate"] += 1
        else:
            kept.append(pair)
            seen.add(pair)
    return kept, removed


def split_dev(pairs: list[Pair], dev_size: int, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Returns the pairs without and those of a random dev set; pairs with one source side stay together.

    The dev set has ``dev_size`` pairs, or as many less as it takes to keep such groups whole.

    Raises:
        CorpusError: There are too few pairs.
    """
    if dev_size >= max(len(pairs), 1):
        raise CorpusError(
            f"dev_size is {dev_size}, but there are only {len(pairs)} pairs; choose a smaller one"
        )
    groups: dict[str, list[int]] = {}
    for index, pair in enumerate(pairs):
        groups.setdefault(comparison_key(pair.source), []).append(index)
    order = list(groups.values())
    random.Random(seed).shuffle(order)
    chosen: set[int] = set()
    for group in order:
        if len(chosen) == dev_size:
            break
        if len(chosen) + len(group) <= dev_size:
            chosen.update(group)
    rest = [pair for index, pair in enumerate(pairs) if index not in chosen]
    return rest, [pairs[index] for index in sorted(chosen)]


def _lines(text: str) -> list[str]:
    """The lines; only line feeds end one, since a sentence may hold the rarer separators."""
    lines = text.removesuffix("\n").split("\n") if text else []
    return [line.removesuffix("\r") for line in lines]
