"""Word links between sentence pairs by fast_align (Dyer et al. 2013), through the package systran-align."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import systran_align

Words = Sequence[str]
Links = set[tuple[int, int]]  # (source word, target word), from 0

# How much links far from the diagonal are disfavoured: what the package aligns with (Dyer et al. 2013, eq. 1).
_TENSION = 4.0
_NOBODY = "\x01"  # a word of no text, which stands for itself alone
_FLOOR = 1e-12  # below the probability of any pair that was seen


class FastAlign:
    """Translation probabilities in both directions, learnt from sentence pairs.

    Args:
        pairs: What to learn from: the words of both sides.
    """

    def __init__(self, pairs: Iterable[tuple[Words, Words]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            text, forward, backward = (Path(folder, name) for name in ("text", "forward", "backward"))
            with text.open("w", encoding="utf-8") as file:
                file.write(f"{_NOBODY} ||| {_NOBODY}\n")  # first: what is unknown later is taken for it
                file.writelines(f"{' '.join(source)} ||| {' '.join(target)}\n" for source, target in pairs)
            systran_align.generate_alignment_probabilities(
                str(text), str(forward), str(backward),
                favor_diagonal=True, optimize_tension=True, variational_bayes=True,
            )  # fmt: skip
            self._aligner = systran_align.Aligner(str(forward), str(backward))

    def symmetric(self, pairs: Sequence[tuple[Words, Words]]) -> list[Links]:
        """Returns both directions joined by grow-diag-final-and (Koehn et al. 2005), as the package gives them."""
        return [
            {(source, target) for source, target in result["alignments"]} for result in self._align(pairs)
        ]

    def directions(self, pairs: Sequence[tuple[Words, Words]]) -> tuple[list[Links], list[Links]]:
        """Returns each target word's best source word, and each source word's best target word.

        The package gives them only joined. What it says of single words are their probabilities; the search over a sentence
        is one argmax a word.
        """
        forward = self._best(pairs, "forward_log_prob", swapped=False)
        swapped = [(target, source) for source, target in pairs]
        backward = self._best(swapped, "backward_log_prob", swapped=True)
        return forward, [{(source, target) for target, source in links} for links in backward]

    def intersection(self, pairs: Sequence[tuple[Words, Words]]) -> list[Links]:
        """Returns the links that both directions have: few, and mostly right."""
        return [forward & backward for forward, backward in zip(*self.directions(pairs), strict=True)]

    def _best(self, pairs: Sequence[tuple[Words, Words]], direction: str, *, swapped: bool) -> list[Links]:
        """Returns for each word of the second side its best word of the first, if it is not none."""
        together = sorted({(given, word) for first, second in pairs for given in first for word in second})
        words = sorted({word for _, word in together})
        alone = self._likelihoods([(_NOBODY, word) for word in words], direction, swapped=swapped)
        none = dict(zip(words, alone, strict=True))
        likelihoods = self._likelihoods(together, direction, swapped=swapped)
        found = {
            (given, word): max(likelihood - none[word], _FLOOR)
            for (given, word), likelihood in zip(together, likelihoods, strict=True)
        }
        return [
            {
                (index, place)
                for place, word in enumerate(second)
                for index in _strongest([found[given, word] for given in first], none[word], place, second)
            }
            for first, second in pairs
        ]

    def _likelihoods(
        self, pairs: Sequence[tuple[str, str]], direction: str, *, swapped: bool
    ) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Returns p₀ p(word | none) + (1 − p₀) p(word | given) for each (given, word)."""
        sentences = [([word], [given]) if swapped else ([given], [word]) for given, word in pairs]
        return np.exp([result[direction] for result in self._align(sentences)])

    def _align(self, pairs: Sequence[tuple[Words, Words]]) -> list[dict[str, list[tuple[int, int]]]]:
        sides = [list(source) for source, _ in pairs], [list(target) for _, target in pairs]
        results: list[dict[str, list[tuple[int, int]]]] = self._aligner.align_batch(*sides)
        return results


def _strongest(likelihoods: Sequence[float], none: float, place: int, second: Words) -> list[int]:
    """Returns the index of the word that stands for the one at ``place``; nothing where none does."""
    if not likelihoods:
        return []
    size = len(likelihoods)
    distances = np.abs((np.arange(size) + 1) / size - (place + 1) / len(second))
    prior = np.exp(-_TENSION * distances)
    scores = np.array(likelihoods) * prior / prior.sum()
    best = int(scores.argmax())
    return [best] if scores[best] > none else []
