"""Translations broken on purpose, each in a way that machine translation goes wrong."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import NamedTuple


class Translated(NamedTuple):
    """A sentence and what is taken for its translation."""

    source: str
    target: str


def without_a_clause(pairs: Sequence[Translated], rng: random.Random) -> list[Translated]:
    """Returns those whose translation has two clauses, without one of them.

    A comma parts them; each has two words or more.
    """
    broken = []
    for source, target in pairs:
        clauses = target.split(", ")
        if len(clauses) == 2 and min(len(clause.split()) for clause in clauses) >= 2:
            first, second = clauses
            end = target[len(target.rstrip('.!?…"“”')) :]
            broken.append(Translated(source, rng.choice((first + end, second[0].upper() + second[1:]))))
    return broken


def joined(pairs: Sequence[Translated]) -> list[Translated]:
    """Returns each two as one text that is taken for a single sentence."""
    return [
        Translated(f"{one.source} {other.source}", f"{one.target} {other.target}")
        for one, other in zip(pairs[::2], pairs[1::2], strict=False)
    ]


def without_a_sentence(pairs: Sequence[Translated], rng: random.Random) -> list[Translated]:
    """Returns each two as one text of which only one sentence was translated."""
    return [
        Translated(f"{one.source} {other.source}", rng.choice((one.target, other.target)))
        for one, other in zip(pairs[::2], pairs[1::2], strict=False)
    ]


def looped(pairs: Sequence[Translated], rng: random.Random) -> list[Translated]:
    """Returns those of two words or more with 1 to 4 words of the translation standing 2 to 6 times in a row."""
    broken = []
    for source, target in pairs:
        words = target.split()
        if len(words) >= 2:
            size = rng.randint(1, min(4, len(words) - 1))
            first = rng.randrange(len(words) - size)
            again = words[first : first + size] * rng.randint(1, 5)
            broken.append(
                Translated(source, " ".join([*words[: first + size], *again, *words[first + size :]]))
            )
    return broken


def of_other_sources(pairs: Sequence[Translated], rng: random.Random) -> list[Translated]:
    """Returns the sources in another order, so that each has the translation of another."""
    sources = [pair.source for pair in pairs]
    rng.shuffle(sources)
    return [
        Translated(source, pair.target)
        for source, pair in zip(sources, pairs, strict=True)
        if source != pair.source
    ]


def with_words_shuffled(sources: Sequence[str], rng: random.Random) -> list[str]:
    """Returns the sources of four words or more with their words in any order; what a model makes of them is broken."""
    shuffled = []
    for source in sources:
        words = re.findall(r"\S+", source)
        if len(words) >= 4:
            rng.shuffle(words)
            shuffled.append(" ".join(words))
    return shuffled


def copied(pairs: Sequence[Translated]) -> list[Translated]:
    """Returns the sources as their own translations."""
    return [Translated(pair.source, pair.source) for pair in pairs]
