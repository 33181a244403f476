"""Pieces → words, so that a person can read a weight matrix."""

from collections.abc import Sequence
from dataclasses import dataclass

from dragoman_client.attention import Attention, AttentionUnit


@dataclass(frozen=True)
class Matrix:
    """Weights with their labels.

    Attributes:
        source: Labels of the columns.
        target: Labels of the rows.
        weights: ``weights[target][source]``; the rows sum to 1.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: list[list[float]]


def piece_matrix(attention: Attention, *, layer: int | None = None, head: int | None = None) -> Matrix:
    """Returns the weights as they are; None takes the mean of all layers or heads.

    Raises:
        IndexError: There is no such layer or head.
    """
    return Matrix(
        source=tuple(unit.text for unit in attention.source_units),
        target=tuple(unit.text for unit in attention.target_units),
        weights=attention.weights.mean(layer=layer, head=head),
    )


def word_matrix(attention: Attention, *, layer: int | None = None, head: int | None = None) -> Matrix:
    """Returns the weights between words: source pieces of a word summed, target pieces averaged.

    Raises:
        IndexError: There is no such layer or head.
    """
    weights = attention.weights.mean(layer=layer, head=head)
    sources = _group(attention.source_units, attention.text)
    targets = _group(attention.target_units, attention.translation.text)
    return Matrix(
        source=tuple(label for label, _ in sources),
        target=tuple(label for label, _ in targets),
        weights=[
            [
                sum(weights[target][source] for target in target_pieces for source in source_pieces)
                / len(target_pieces)
                for _, source_pieces in sources
            ]
            for _, target_pieces in targets
        ],
    )


def _group(units: Sequence[AttentionUnit], text: str) -> list[tuple[str, list[int]]]:
    """Returns the words with the indices of their pieces; a special token is a word of its own.

    A word is what white space bounds. A piece belongs to the word in which its first visible character stands; one that
    has none (a lone space) goes with the next.
    """
    groups: list[tuple[str, list[int]]] = []
    spaces: list[int] = []  # indices that wait for the next word
    word_end = -1  # of the word that the last group is
    for index, unit in enumerate(units):
        span = unit.span
        if unit.special or span is None:
            groups.append((unit.text, [*spaces, index]))
            spaces, word_end = [], -1
            continue
        start = next((place for place in range(span.start, span.end) if not text[place].isspace()), None)
        if start is None and groups and span.start == span.end <= word_end:
            groups[-1][1].append(index)  # a further byte of the character before it
        elif start is None:
            spaces.append(index)
        elif start < word_end:
            groups[-1][1].extend([*spaces, index])
            spaces = []
        else:
            word_end = start
            while word_end < max(span.end, start + 1) or (
                word_end < len(text) and not text[word_end].isspace()
            ):
                word_end += 1
            groups.append((" ".join(text[start:word_end].split()), [*spaces, index]))
            spaces = []
    if spaces and groups:
        groups[-1][1].extend(spaces)
    return groups
