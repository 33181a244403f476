"""Lines whose order is known: what goes wrong with them is seen."""

import itertools

import pytest
from known_lines import MAX_SHOWN, KnownText, compare, distinct, drawn

POOL = [KnownText(f"text {number}", f"Text {number}") for number in range(11)]
LINES = [text.translation for text in drawn(POOL, 200, seed=3)]


def test_an_order_is_the_same_each_time_and_another_with_another_seed():
    assert [text.translation for text in drawn(POOL, 200, seed=3)] == LINES
    assert [text.translation for text in drawn(POOL, 200, seed=4)] != LINES
    assert len(LINES) == 200
    assert set(LINES) == {text.translation for text in POOL}


def test_no_line_comes_again_within_half_the_pool():
    for first, second in itertools.combinations(range(len(LINES)), 2):
        if second - first <= len(POOL) // 2:
            assert LINES[first] != LINES[second]


def test_what_is_as_it_should_be_has_nothing_wrong():
    found = compare(LINES, LINES)
    assert (found.num_lines, found.num_wrong, found.first_wrong) == (200, 0, [])


def lose(lines, at):
    return [*lines[:at], *lines[at + 1 :]]


def repeat(lines, at):
    return [*lines[: at + 1], *lines[at:]]


def swap(lines, at):
    return [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]


def lose_and_repeat_the_next(lines, at):
    return [*lines[:at], lines[at + 1], *lines[at + 1 :]]


def tear(lines, at):
    return [*lines[:at], lines[at][:-1], *lines[at + 1 :]]


@pytest.mark.parametrize("at", [0, 1, 99, 197, 198])
@pytest.mark.parametrize("fault", [lose, repeat, swap, lose_and_repeat_the_next, tear])
def test_a_fault_is_seen_where_it_happens(fault, at):
    found = compare(LINES, fault(LINES, at))
    number, expected, _ = found.first_wrong[0]
    # A line that comes twice is right the first time.
    assert number == at + 1 + (fault is repeat)
    assert expected == LINES[number - 1]


@pytest.mark.parametrize(("lines", "number"), [(LINES[:-1], 200), ([*LINES, LINES[-1]], 201), ([], 1)])
def test_a_line_too_few_or_too_many_at_the_end_is_seen(lines, number):
    found = compare(LINES, lines)
    assert found.num_lines == len(lines)
    assert found.num_wrong == abs(len(lines) - 200)
    assert found.first_wrong[0][0] == number


def test_only_the_first_of_many_are_shown():
    found = compare(LINES, LINES[1:])
    assert found.num_wrong > 150
    assert len(found.first_wrong) == MAX_SHOWN


def test_texts_that_cannot_be_told_apart_or_fill_no_line_are_left_out():
    kept = [KnownText("a", "A"), KnownText("c", "C")]
    others = [KnownText("b", "A"), KnownText("a", "X"), KnownText("d", "D\nE"), KnownText("f", " ")]
    assert distinct([kept[0], *others, kept[1]]) == kept
