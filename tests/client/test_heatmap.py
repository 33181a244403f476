import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from dragoman_client.heatmap import Palette, clean, draw
from dragoman_client.matrix import Matrix

PLAIN = Palette(colored=False)
COLORED = Palette(colored=True)
THREE = ["Tom", "likes", "tea."]
THIRTY = [
    "When",
    "the",
    "old",
    "man",
    "who",
    "lives",
    "next",
    "to",
    "the",
    "big",
    "church",
    "opened",
    "his",
    "window",
    "this",
    "morning,",
    "he",
    "saw",
    "that",
    "it",
    "had",
    "been",
    "snowing",
    "all",
    "night",
    "long",
    "and",
    "that",
    "nobody",
    "was",
    "outside.",
]


def diagonal(words: list[str]) -> Matrix:
    """Each word attends to itself with three quarters, the rest is spread evenly."""
    labels = (*words, "</s>")
    rest = 0.25 / (len(labels) - 1)
    weights = [
        [0.75 if row == column else rest for column in range(len(labels))] for row in range(len(labels))
    ]
    return Matrix(labels, labels, weights)


def picture(matrix: Matrix, width: int, palette: Palette = PLAIN) -> list[str]:
    return [line.plain for line in draw(matrix, width=width, palette=palette)]


@pytest.mark.parametrize("palette", [PLAIN, COLORED])
@pytest.mark.parametrize("width", [20, 60, 80, 120])
@pytest.mark.parametrize("words", [THREE, THIRTY])
def test_no_line_is_wider_than_the_terminal(words: list[str], width: int, palette: Palette) -> None:
    assert max(map(cell_len, picture(diagonal(words), width, palette))) <= width


@given(st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=40), st.integers(1, 130))
def test_no_label_whatever_it_holds_breaks_the_frame(words: list[str], width: int) -> None:
    lines = picture(diagonal(words), width)

    assert max(map(cell_len, lines)) <= max(width, 20)
    assert not re.search(r"[\0-\x1f\x7f-\x9f\u2028\u2029]", "".join(lines))


def test_few_words_stand_across_above_their_cells() -> None:
    lines = picture(diagonal(THREE), 80)

    assert lines[0].split() == ["Tom", "likes", "tea.", "</s>"]
    assert [line.split()[0] for line in lines[1:5]] == ["Tom", "likes", "tea.", "</s>"]
    for column, word in enumerate(lines[0].split()):
        middle = lines[0].index(word) + len(word) // 2
        assert [line[middle] == "█" for line in lines[1:5]] == [row == column for row in range(4)]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_many_words_run_down_to_their_columns_and_can_be_read(width: int) -> None:
    lines = picture(diagonal(THIRTY), width)

    assert words_read_downwards(lines) == [*THIRTY, "</s>"]


def words_read_downwards(lines: list[str]) -> list[str]:
    """Reads every panel's header column by column."""
    words = []
    header: list[str] = []
    for line in lines:
        if line.startswith("   ") and not re.search("[░▒▓█]", line):
            header.append(line)
        elif header and re.search("[░▒▓█]", line):
            columns = range(max(map(len, header)))
            stacks = ["".join(row[column : column + 1] for row in header).strip() for column in columns]
            words += [stack for stack in stacks if stack]
            header = []
        else:
            header = []
    return words


def test_matrix_that_is_too_wide_is_folded_and_every_row_comes_in_every_panel() -> None:
    lines = picture(diagonal(THIRTY), 60)

    assert sum(line.lstrip().startswith("nobody ") for line in lines) == 2


def test_brightest_cell_of_each_row_is_its_highest_weight() -> None:
    lines = draw(diagonal(THREE), width=80, palette=COLORED)[1:5]

    for row, line in enumerate(lines):
        cells = [span for span in line.spans if getattr(span.style, "bgcolor", None)]
        brightness = [sum(span.style.bgcolor.triplet) for span in cells]  # type: ignore[union-attr]
        assert brightness.index(max(brightness)) == row


def test_painted_wide_cells_say_percent() -> None:
    first_row = picture(diagonal(THREE), 80, COLORED)[1]

    assert first_row.split() == ["Tom", "75", "8", "8", "8"]


def test_scale_says_the_highest_weight() -> None:
    assert picture(diagonal(THREE), 80)[-1].split()[-1] == "0.75"


def test_nothing_but_ascii_where_the_terminal_knows_no_more() -> None:
    lines = picture(diagonal(THREE), 80, Palette(colored=False, ascii_only=True))

    assert "".join(lines).isascii()


def test_weights_of_zero_are_blank_and_never_divide() -> None:
    assert "█" not in "".join(picture(Matrix(("a",), ("b",), [[0.0]]), 40)[:2])


@pytest.mark.parametrize(
    ("label", "cleaned"),
    [("a\0b", "a�b"), ("\x1b[31m", "�[31m"), ("\u202eabc", "�abc"), ("▁ünü🙂", "▁ünü🙂")],
)
def test_labels_cannot_steer_the_terminal(label: str, cleaned: str) -> None:
    assert clean(label) == cleaned
