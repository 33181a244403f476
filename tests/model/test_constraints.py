import dataclasses

import pytest

from dragoman_model.constraints import FREE, Constraint, constraint, is_constrained, repeated_ngram_ends
from dragoman_model.numbers import SourceNumbers
from dragoman_model.options import DecodingOptions
from dragoman_model.plan import Sequence

EOS = 2


def sequence(prefix_ids=(), **options):
    return Sequence(
        id=0, source_ids=(5, EOS), max_length=30, options=DecodingOptions(**options), prefix_ids=prefix_ids
    )


@pytest.mark.parametrize(
    ("written", "size", "ends"),
    [
        ([], 1, []),
        ([5, 6, 5], 0, []),
        ([5, 6, 5], 1, [5, 6, 5]),
        ([5, 6, 5], 2, [6]),
        ([5, 6, 5, 7, 5], 2, [6, 7]),
        ([5, 6, 7, 5, 6], 3, [7]),
        ([5, 6], 3, []),
        ([5, 5, 5], 3, [5]),
    ],
)
def test_tokens_that_would_repeat_an_ngram_are_found(written, size, ends):
    assert repeated_ngram_ends(written, size) == ends


def test_a_prefix_is_forced_token_by_token_and_then_counts_as_written():
    asked = sequence(prefix_ids=(7, 8), min_length=3, no_repeat_ngram_size=1, repetition_penalty=2.0)
    assert constraint(asked, [], EOS) == Constraint(only=(7,))
    assert constraint(asked, [7], EOS) == Constraint(only=(8,))
    assert constraint(asked, [7, 8], EOS) == Constraint(None, [7, 8, EOS], [7, 8], 2.0)
    assert constraint(asked, [7, 8, 9], EOS) == Constraint(None, [7, 8, 9], [7, 8, 9], 2.0)


def test_a_number_that_stands_twice_in_the_source_is_written_to_its_end_twice():
    two, zero, four, word = 12, 10, 14, 50
    year = (two, zero, two, four)
    source = SourceNumbers((year, year), frozenset({two, zero, four}))
    asked = dataclasses.replace(sequence(no_repeat_ngram_size=3), numbers=source)
    for length in (1, 2, 3):
        written = [*year, word, *year[:length]]
        assert constraint(asked, written, EOS) == Constraint(only=(year[length],), banned=[])
    # One of two numbers can go on without a repetition.
    other = dataclasses.replace(asked, numbers=SourceNumbers((year, (two, zero, four)), source.digits))
    found = constraint(other, [two, zero, two, word, two, zero], EOS)
    assert (found.only, found.banned) == ((two, four), [two])


@pytest.mark.parametrize(
    "asked",
    [
        sequence(prefix_ids=(7,)),
        sequence(min_length=1),
        sequence(no_repeat_ngram_size=2),
        sequence(repetition_penalty=1.1),
    ],
)
def test_a_sequence_that_anything_holds_for_is_known(asked):
    assert is_constrained(asked)
    assert any(
        constraint(asked, written, EOS) not in (FREE, Constraint(banned=[])) for written in ([], [7, 8, 7])
    )


def test_a_plain_sequence_is_free():
    assert not is_constrained(sequence())
    assert constraint(sequence(), [5, 5, 5], EOS) == Constraint(None, [], (), 1.0)
