"""What a row may write next, from what it has written: plain Python."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import NamedTuple

from dragoman_model.plan import Sequence


class Constraint(NamedTuple):
    """What holds for the next token of one row.

    Attributes:
        only: The tokens of which one must come; None leaves the choice.
        banned: Tokens that may not come.
        seen: Tokens whose logits ``penalty`` lowers.
        penalty: 1 is off.
    """

    only: SequenceOf[int] | None = None
    banned: SequenceOf[int] = ()
    seen: SequenceOf[int] = ()
    penalty: float = 1.0

    def allows(self, token_id: int) -> bool:
        """Returns whether a token that is the best of all is so under the constraint, too."""
        is_open = self.only is None or token_id in self.only
        return is_open and token_id not in self.banned and self.penalty == 1


FREE = Constraint()


def is_constrained(sequence: Sequence) -> bool:
    """Returns whether `constraint` can ever say anything but `FREE`."""
    options = sequence.options
    return bool(
        sequence.prefix_ids
        or sequence.numbers
        or options.min_length
        or options.no_repeat_ngram_size
        or options.repetition_penalty != 1
    )


def constraint(sequence: Sequence, written: SequenceOf[int], eos_id: int) -> Constraint:
    """Returns what holds for the token behind ``written``.

    A prefix is forced and nothing else counts until it is written; then its tokens count as all others do.
    """
    options = sequence.options
    if len(written) < len(sequence.prefix_ids):
        return Constraint(only=sequence.prefix_ids[len(written) : len(written) + 1])
    banned = repeated_ngram_ends(written, options.no_repeat_ngram_size)
    if len(written) < options.min_length:
        banned.append(eos_id)
    only: SequenceOf[int] | None = None
    if sequence.numbers:
        only, digits = sequence.numbers.next_digits(written)
        banned += digits
        if only and set(only) <= set(banned):
            banned = []  # a number is written to its end, even if it stands twice in the source
    penalised = options.repetition_penalty != 1
    return Constraint(only, banned, sorted(set(written)) if penalised else (), options.repetition_penalty)


def repeated_ngram_ends(written: SequenceOf[int], size: int) -> list[int]:
    """Returns the tokens that would end an n-gram of ``size`` that ``written`` holds already; size 0 is off."""
    if size == 0 or len(written) < size:
        return []
    written = list(written)
    context = written[len(written) - size + 1 :]
    return [
        written[start + size - 1]
        for start in range(len(written) - size + 1)
        if written[start : start + size - 1] == context
    ]
