"""A weight matrix as shaded cells in a terminal: source across, target down."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.color import Color
from rich.style import Style
from rich.text import Text

from dragoman_client.matrix import Matrix
from dragoman_client.pictures.caption import clean
from dragoman_client.pictures.ramp import NIGHT, color_at

_SHADES = " ░▒▓█"
_ASCII_SHADES = " .:*#"

MIN_PITCH = 2  # cells a column: a cell is about half as wide as high
MAX_ROW_LABEL = 18
MAX_COLUMN_LABEL = 14
_GAP = 1


@dataclass(frozen=True, kw_only=True)
class Palette:
    """How a weight becomes a cell.

    Attributes:
        colored: Paint the background; otherwise shade with characters.
        ascii_only: Shade with characters that every encoding has.
    """

    colored: bool
    ascii_only: bool = False

    def cell(self, level: float, width: int, caption: str = "") -> Text:
        """Returns a cell of this many columns.

        Args:
            level: Brightness, 0 to 1.
            width: In terminal columns.
            caption: Stands in the middle of a painted cell; among shades it could not be read.
        """
        if self.colored:
            red, green, blue = color_at(NIGHT, level)
            ink = "#101018" if level > 0.55 else "#d8d8e4"
            return Text(caption.center(width), Style(color=ink, bgcolor=Color.from_rgb(red, green, blue)))
        shades = _ASCII_SHADES if self.ascii_only else _SHADES
        shade = shades[min(len(shades) - 1, math.ceil(level * (len(shades) - 1) - 0.25))]
        gap = 1 if width > 3 else 0  # keeps wide cells apart; narrow ones make a picture without
        return Text(shade * (width - gap) + " " * gap)

    def legend(self, highest: float) -> Text:
        """Returns the scale, from 0 to the highest weight drawn."""
        scale = Text().append("0 ", "dim")
        for step in range(8):
            scale.append_text(self.cell(step / 7, 2))
        return scale.append(f" {highest:.2f}", "dim")


def draw(matrix: Matrix, *, width: int, palette: Palette) -> list[Text]:
    """Returns the lines of the picture, none longer than ``width`` columns.

    Words stand across where they fit, otherwise they run downwards; a matrix that is still too wide is folded into
    several panels, one under the other.

    Args:
        matrix: At least one row and one column.
        width: Of the terminal, in columns; below 20 counts as 20.
        palette: How to shade.
    """
    width = max(width, 20)
    rows = [clean(label) for label in matrix.target]
    columns = [clean(label) for label in matrix.source]
    row_width = min(max(map(cell_len, rows)), MAX_ROW_LABEL, width // 3)
    room = width - row_width - _GAP
    highest = max(max(row) for row in matrix.weights) or 1.0
    levels = [[math.sqrt(max(weight, 0.0) / highest) for weight in row] for row in matrix.weights]

    widths = [max(cell_len(label), 3) + 2 for label in columns]
    across = sum(widths) <= room
    lines: list[Text] = []
    if across:
        panels = [range(len(columns))]
    else:
        count = math.ceil(len(columns) * MIN_PITCH / room)
        size = math.ceil(len(columns) / count)
        panels = [range(start, min(start + size, len(columns))) for start in range(0, len(columns), size)]
        widths = [min(3, room // size)] * len(columns)
    for number, panel in enumerate(panels):
        if number:
            lines.append(Text())
        header = _across(columns, widths) if across else _downwards([columns[i] for i in panel], widths[0])
        lines += [Text(" " * (row_width + _GAP)).append(line, "bold") for line in header]
        for label, row, level in zip(rows, matrix.weights, levels):
            line = Text(_fit(label, row_width, align_right=True) + " " * _GAP, "bold")
            line = Text().append_text(line)
            for column in panel:
                caption = _percent(row[column]) if across else ""
                line.append_text(palette.cell(level[column], widths[column], caption))
            lines.append(line)
    lines.append(Text())
    lines.append(Text(" " * (row_width + _GAP)).append_text(palette.legend(highest)))
    for line in lines:
        line.truncate(width)
        line.no_wrap = True
    return lines


def _across(labels: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Returns the header's one line, each label in the middle of its column."""
    line = ""
    for label, width in zip(labels, widths):
        left = (width - cell_len(label)) // 2
        line += set_cell_size(" " * left + label, width)
    return [line]


def _downwards(labels: Sequence[str], pitch: int) -> list[str]:
    """Returns the header's lines: each label runs down to its column and ends there."""
    stacks = [_letters(label) for label in labels]
    height = max(map(len, stacks))
    lines = []
    for level in range(height):
        line = ""
        for stack in stacks:
            above = level - (height - len(stack))
            line += set_cell_size((" " if pitch > 2 else "") + (stack[above] if above >= 0 else " "), pitch)
        lines.append(line.rstrip())
    return lines


def _letters(label: str) -> list[str]:
    """Returns what stands below each other: characters with the marks that combine with them."""
    letters: list[str] = []
    for character in label:
        if letters and cell_len(character) == 0:
            letters[-1] += character
        else:
            letters.append(character)
    return letters if len(letters) <= MAX_COLUMN_LABEL else [*letters[: MAX_COLUMN_LABEL - 1], "…"]


def _fit(label: str, width: int, *, align_right: bool) -> str:
    """Returns a label of exactly this many columns."""
    if cell_len(label) > width:
        label = chop_cells(label, width - 1)[0] + "…"
    padding = " " * (width - cell_len(label))
    return padding + label if align_right else label + padding


def _percent(weight: float) -> str:
    """Returns the weight in percent, nothing below one."""
    return f"{weight * 100:.0f}" if weight >= 0.01 else ""
