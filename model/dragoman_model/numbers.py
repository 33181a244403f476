"""The numbers of a source, and that a translation holds no others.

A small model mixes digits up: 5055 becomes 555, a year is written twice. Where digits are tokens of their own this can be
ruled out while searching: each run of digits that a row writes is one that the source holds, as often as it holds it at most.
"""

from __future__ import annotations

import string
from collections.abc import Collection, Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import NamedTuple

from sentencepiece import SentencePieceProcessor

_Run = tuple[int, ...]


class NextDigits(NamedTuple):
    """What the numbers of a source leave for the next token.

    Attributes:
        only: The tokens of which one must come, in the middle of a number; None leaves the choice.
        banned: Tokens that may not come.
    """

    only: tuple[int, ...] | None
    banned: tuple[int, ...]


@dataclass(frozen=True)
class SourceNumbers:
    """The runs of digits in a source, in target tokens.

    Attributes:
        runs: Each as often as the source holds it.
        digits: All tokens that write a digit.
        silent: Tokens that write nothing, and so end no run.
    """

    runs: tuple[_Run, ...]
    digits: frozenset[int]
    silent: frozenset[int] = frozenset()

    def next_digits(self, written: SequenceOf[int]) -> NextDigits:
        """Returns what may come behind the target tokens ``written``."""
        *complete, open_run = _runs(
            (token for token in written if token not in self.silent), self.digits, keep_last=True
        )
        left = list(self.runs)
        for run in complete:
            if run in left:
                left.remove(run)
        place = len(open_run)
        following = {run[place] for run in left if len(run) > place and run[:place] == open_run}
        if following and open_run and open_run not in left:
            return NextDigits(tuple(sorted(following)), ())
        return NextDigits(None, tuple(sorted(self.digits - following)))


class DigitTokens:
    """Finds the numbers of tokenised sources.

    Args:
        source: Reads the text to translate.
        target: Writes the translation. A vocabulary that writes digits in other pieces than single ones too (``2018``) can't
            be held to a source's numbers; then nothing is found.
    """

    def __init__(self, source: SentencePieceProcessor, target: SentencePieceProcessor) -> None:
        written = _single_digits(target)
        read = written if source is target else _single_digits(source)
        self._target_of = {token: written[digit] for digit, token in read.items()} if read and written else {}
        self._digits = frozenset(written.values()) | _digit_bytes(target)
        self._silent = frozenset(token for token in range(target.vocab_size()) if target.is_control(token))

    def numbers(self, source_ids: Iterable[int]) -> SourceNumbers | None:
        """Returns the numbers of a source; None where it holds none, or where they can't be told."""
        ids = [self._target_of.get(token, -1) for token in source_ids]
        runs = tuple(run for run in _runs(ids, self._digits) if run)
        return SourceNumbers(runs, self._digits, self._silent) if runs else None


def _runs(token_ids: Iterable[int], digits: Collection[int], *, keep_last: bool = False) -> list[_Run]:
    """Returns the runs of digits, in order; with ``keep_last`` the one at the very end is there even if it is empty."""
    runs: list[_Run] = []
    run: list[int] = []
    for token in token_ids:
        if token in digits:
            run.append(token)
        elif run:
            runs.append(tuple(run))
            run = []
    if run or keep_last:
        runs.append(tuple(run))
    return runs


def _single_digits(processor: SentencePieceProcessor) -> dict[str, int]:
    """Returns the token of each digit; nothing where the vocabulary lacks one or has a longer piece with a digit."""
    found = {}
    for token in range(processor.vocab_size()):
        if processor.is_byte(token) or processor.is_control(token) or processor.is_unknown(token):
            continue
        piece = processor.id_to_piece(token)
        if piece in string.digits:
            found[piece] = token
        elif any(character in string.digits for character in piece):
            return {}
    return found if len(found) == len(string.digits) else {}


def _digit_bytes(processor: SentencePieceProcessor) -> frozenset[int]:
    """Returns the byte tokens that would spell a digit too."""
    pieces = (f"<0x{ord(digit):02X}>" for digit in string.digits)
    return frozenset(token for token in map(processor.piece_to_id, pieces) if processor.is_byte(token))
