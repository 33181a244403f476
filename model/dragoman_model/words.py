"""The pieces of a text as the units that a person reads: pieces, or words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dragoman_model.tokenizer import Piece


@dataclass(frozen=True)
class Unit:
    """A row or a column of an attention matrix.

    Attributes:
        text: The piece or the word.
        span: Half-open range of code points; None for special tokens.
        special: Stands for no text, such as end-of-sentence.
        pieces: Which pieces it is made of, as indices; one or more.
    """

    text: str
    span: tuple[int, int] | None
    special: bool
    pieces: tuple[int, ...]


def piece_units(pieces: Sequence[Piece]) -> list[Unit]:
    """Returns each piece as a unit."""
    return [Unit(piece.text, piece.span, piece.special, (index,)) for index, piece in enumerate(pieces)]


def word_units(pieces: Sequence[Piece], text: str) -> list[Unit]:
    """Returns the words of a text; every piece belongs to exactly one, in the order of the pieces.

    A word is what white space bounds. A piece belongs to the word in which its first visible character stands; one that
    has none, a lone space, goes with the next word, or with the last where none follows. A special token is a unit of
    its own.

    Args:
        pieces: Their spans are ordered, and disjoint or equal.
        text: What the spans count in.
    """
    words: list[_Word] = []
    spaces: list[int] = []  # indices that wait for the next word
    for index, piece in enumerate(pieces):
        last = words[-1] if words and not words[-1].special else None
        if piece.special or piece.span is None:
            _place_spaces(words, spaces, pieces)
            words.append(_Word([index], 0, 0, piece.text, special=True))
            continue
        start = _first_visible(text, *piece.span)
        if start is None:
            # An empty span at the word's end is a further byte of its last character.
            is_byte = last is not None and piece.span[0] == piece.span[1] <= last.end and piece.text != "▁"
            (last.indices if last is not None and is_byte else spaces).append(index)
        elif last is not None and start < last.end:
            last.indices += [*spaces, index]
            spaces.clear()
        else:
            end = _word_end(text, start, piece.span[1])
            words.append(_Word([*spaces, index], start, end, " ".join(text[start:end].split())))
            spaces.clear()
    _place_spaces(words, spaces, pieces)
    return [
        Unit(word.text, None if word.special else (word.start, word.end), word.special, tuple(word.indices))
        for word in words
    ]


@dataclass
class _Word:
    indices: list[int]
    start: int
    end: int
    text: str
    special: bool = False


def _place_spaces(words: list[_Word], spaces: list[int], pieces: Sequence[Piece]) -> None:
    """Gives spaces that no word follows to the word before, or makes them one."""
    if not spaces:
        return
    if words and not words[-1].special:
        words[-1].indices += spaces
    else:
        spans = [pieces[index].span for index in spaces]
        place = spans[0][0] if spans[0] else 0
        words.append(_Word([*spaces], place, place, pieces[spaces[0]].text))
    spaces.clear()


def _first_visible(text: str, start: int, end: int) -> int | None:
    return next((place for place in range(start, end) if not text[place].isspace()), None)


def _word_end(text: str, start: int, piece_end: int) -> int:
    """Returns where the word that begins at ``start`` ends: at white space, but not within its first piece."""
    end = start
    while end < max(piece_end, start + 1) or (end < len(text) and not text[end].isspace()):
        end += 1
    return end
