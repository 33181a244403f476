"""Lines in an order that is drawn by chance and yet known, so that each line's translation is known, too.

No line is like another one near it. One that is lost, comes twice or changes places with its neighbour is therefore seen: it puts a
translation where another one belongs.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

# More only tell the same: one lost line moves all that follow.
MAX_SHOWN = 5


@dataclass(frozen=True)
class KnownText:
    """A line and its translation, as they were before."""

    source: str
    translation: str


def distinct(pairs: Iterable[KnownText]) -> list[KnownText]:
    """Returns the pairs that can be told from each other by source and by translation, and fit into a line."""
    found: dict[str, KnownText] = {}
    sources: set[str] = set()
    for pair in pairs:
        fits = pair.translation.strip() and "\n" not in pair.source + pair.translation
        if fits and pair.source not in sources and pair.translation not in found:
            sources.add(pair.source)
            found[pair.translation] = pair
    return list(found.values())


def drawn(pool: Sequence[KnownText], count: int, seed: int) -> Iterator[KnownText]:
    """Yields so many of the pool by chance, the same each time; none comes again within half the pool's size."""
    rng = random.Random(seed)
    halves = [list(pool[::2]), list(pool[1::2])]

    def shuffled(half: list[KnownText]) -> list[KnownText]:
        rng.shuffle(half)
        return half

    # One half comes between any two shuffles of the other.
    endless = itertools.chain.from_iterable(map(shuffled, itertools.cycle(halves)))
    return itertools.islice(endless, count)


@dataclass
class Comparison:
    """What was found of the lines that were expected.

    Attributes:
        num_lines: Lines found.
        num_wrong: Places, of the expected and of those found, that don't hold what they should.
        first_wrong: The first of them: the number from 1, what was expected and what was found; None is no line.
    """

    num_lines: int = 0
    num_wrong: int = 0
    first_wrong: list[tuple[int, str | None, str | None]] = field(default_factory=list)


def compare(expected: Iterable[str], found: Iterable[str]) -> Comparison:
    """Compares line by line, in little memory."""
    comparison = Comparison()
    for number, (wanted, line) in enumerate(itertools.zip_longest(expected, found), 1):
        comparison.num_lines += line is not None
        if wanted != line:
            comparison.num_wrong += 1
            if comparison.num_wrong <= MAX_SHOWN:
                comparison.first_wrong.append((number, wanted, line))
    return comparison
