"""Attention as a figure for a paper, through matplotlib, which the ``plot`` extra brings."""

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from rich.cells import cell_len

from dragoman_client.attention import Attention, AttentionTensor
from dragoman_client.pictures.caption import clean
from dragoman_client.pictures.ramp import PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

PlotFormat: TypeAlias = Literal["png", "svg"]

# Inches, unless they say otherwise.
_CELL, _SMALL_CELL = 0.19, 0.115
_FONT_POINTS, _SMALL_FONT_POINTS = 8.0, 6.0
_GAP = 0.09  # between small panels
_MARGIN = 0.35  # between sentences
_BAR_WIDTH, _BAR_HEIGHT = 0.09, 1.4
_PADDING = 0.05
_POINTS = 1 / 72
_CHARACTER_WIDTH = 0.62  # of a mean character, in font sizes
_WHITE, _FRAME = (255, 255, 255), "#b8b8b8"  # a paper is white, and so is nothing on it
# matplotlib's own font lacks the letters of much of the world; these step in where they are installed.
_OTHER_FONTS = (
    "Noto Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "WenQuanYi Micro Hei",
    "Noto Emoji",
    "Symbola",
)
_PNG_DPI = 300
_MAX_PNG_PIXELS = 6_000  # along a side; a longer figure gets coarser


@dataclass(frozen=True)
class _Panel:
    """One matrix of a figure."""

    title: str
    side_title: str
    weights: list[list[float]]


def check_plotting() -> None:
    """Does nothing where figures can be drawn.

    Raises:
        ImportError: matplotlib is not installed; the message says how to get it.
    """
    try:
        import matplotlib.figure  # noqa: F401, PLC0415 - optional
    except ImportError as error:
        raise ImportError(
            "a figure is drawn by matplotlib, which is not installed: pip install '.[plot]' in the checkout"
        ) from error


def render_figure(attentions: Sequence[Attention], plot_format: PlotFormat) -> bytes:
    """Returns a figure of the sentences' attention: columns are attended to, rows attend.

    The first kind of each sentence is drawn; layers and heads that were kept apart stand side by side, one row a layer. All
    of a figure has one scale in equal steps, from 0 to its highest weight, rounded up to a tenth.

    Args:
        attentions: The sentences; they stand one under the other.
        plot_format: ``png``, at 300 dots an inch, or ``svg``, whose letters are outlines and need no font.

    Raises:
        ImportError: matplotlib is not installed.
    """
    check_plotting()
    from matplotlib.figure import Figure  # noqa: PLC0415 - optional

    drawn = [attention for attention in attentions if all(attention.weights.shape[-2:])]
    sheets = [_panels(attention.weights) for attention in drawn]
    highest = max(
        (max(map(max, panel.weights)) for rows in sheets for row in rows for panel in row), default=0.0
    )
    end_of_scale = math.ceil(highest * 10) / 10 or 1.0
    top, mesh = 0.0, None
    with _settings():
        figure = Figure(figsize=(1, 1))  # the tight box of what is drawn becomes the size
        for attention, rows in zip(drawn, sheets, strict=True):
            top, mesh = _draw_sentence(figure, attention, rows, top, end_of_scale)
        if mesh is not None:
            _add_scale(figure, mesh)
        else:
            figure.text(0, 0, "nothing but special tokens", fontsize=_FONT_POINTS)
        return _save(figure, plot_format)


def _panels(tensor: AttentionTensor) -> list[list[_Panel]]:
    """Returns the matrices, a row a layer and a column a head."""
    rows: dict[int | None, list[_Panel]] = {}
    for layer, head in tensor.places():
        panel = _Panel(
            "" if head is None else f"head {head}",
            "" if layer is None else f"layer {layer}",
            tensor.mean(layer=layer, head=head),
        )
        rows.setdefault(layer, []).append(panel)
    return list(rows.values())


def _draw_sentence(
    figure: "Figure", attention: Attention, rows: list[list[_Panel]], top: float, end_of_scale: float
) -> "tuple[float, QuadMesh]":
    """Draws a sentence's panels below a height; returns where the next may begin, and one of the meshes."""
    kind = attention.weights.kind
    column_labels = [clean(unit.text) for unit in attention.columns(kind)]
    row_labels = [clean(unit.text) for unit in attention.rows(kind)]
    single = len(rows) == len(rows[0]) == 1
    cell, points = (_CELL, _FONT_POINTS) if single else (_SMALL_CELL, _SMALL_FONT_POINTS)
    angle = 45 if single else 90
    letters = max(map(cell_len, column_labels)) * points * _POINTS * _CHARACTER_WIDTH
    top -= letters * math.sin(math.radians(angle)) + _MARGIN
    width, height = len(column_labels) * cell, len(row_labels) * cell
    for row, panels in enumerate(rows):
        for column, panel in enumerate(panels):
            left, bottom = column * (width + _GAP), top - height
            axes = figure.add_axes((left, bottom, width, height))
            mesh = _draw_panel(axes, panel, end_of_scale)
            if row == 0:
                axes.set_xticks([column + 0.5 for column in range(len(column_labels))])
                axes.set_xticklabels(
                    column_labels,
                    rotation=angle,
                    ha="left",
                    va="center",
                    rotation_mode="anchor",
                    fontsize=points,
                    parse_math=False,
                )
            if column == 0:
                axes.set_yticks([row + 0.5 for row in range(len(row_labels))])
                axes.set_yticklabels(row_labels, fontsize=points, parse_math=False)
            if row == len(rows) - 1:
                axes.set_xlabel(panel.title, fontsize=points + 1)
            if column == len(panels) - 1 and panel.side_title:
                axes.text(
                    1,
                    0.5,
                    f"  {panel.side_title}",
                    fontsize=points + 1,
                    rotation=270,
                    ha="left",
                    va="center",
                    transform=axes.transAxes,
                )
        top -= height + _GAP
    return top, mesh


def _draw_panel(axes: "Axes", panel: _Panel, end_of_scale: float) -> "QuadMesh":
    from matplotlib.colors import LinearSegmentedColormap  # noqa: PLC0415 - optional

    ramp = LinearSegmentedColormap.from_list(
        "paper", [(red / 255, green / 255, blue / 255) for red, green, blue in (_WHITE, *PAPER[1:])]
    )
    # Cells of a vector graphic stay sharp; without smoothing no seams show between them.
    mesh = axes.pcolormesh(
        panel.weights, cmap=ramp, vmin=0, vmax=end_of_scale, linewidth=0, antialiased=False
    )
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.set_yticks([])
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("bottom")
    axes.tick_params(length=0, pad=3)
    for spine in axes.spines.values():
        spine.set(color=_FRAME, linewidth=0.4)
    return mesh


def _add_scale(figure: "Figure", mesh: "QuadMesh") -> None:
    """Draws the scale at the right of the first sentence."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - optional

    boxes = [axes.get_position(original=True) for axes in figure.axes]
    right, upper = max(box.x1 for box in boxes), max(box.y1 for box in boxes)
    height = min(_BAR_HEIGHT, upper - min(box.y0 for box in boxes))
    axes = figure.add_axes((right + 0.3, upper - height, _BAR_WIDTH, height))
    bar = figure.colorbar(mesh, cax=axes, ticks=MaxNLocator(4))
    bar.outline.set_visible(False)
    axes.tick_params(length=0, pad=3, labelsize=_SMALL_FONT_POINTS)
    axes.set_title("weight", fontsize=_SMALL_FONT_POINTS, loc="left", pad=5)


def _save(figure: "Figure", plot_format: PlotFormat) -> bytes:
    box = figure.get_tightbbox().padded(_PADDING)
    buffer = io.BytesIO()
    figure.savefig(
        buffer,
        format=plot_format,
        dpi=min(_PNG_DPI, _MAX_PNG_PIXELS / max(box.width, box.height)),
        bbox_inches=box,
        facecolor="white",
        metadata={"Date": None} if plot_format == "svg" else {},  # equal figures make equal files
    )
    return buffer.getvalue()


@contextmanager
def _settings() -> Iterator[None]:
    """Sets what matplotlib reads from its global settings, whatever the user's file says."""
    import matplotlib  # noqa: PLC0415 - optional
    from matplotlib import font_manager  # noqa: PLC0415 - optional

    installed = set(font_manager.get_font_names())
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "svg.hashsalt": "dragoman",
                "svg.fonttype": "path",
                "font.family": ["DejaVu Sans", *(name for name in _OTHER_FONTS if name in installed)],
            }
        )
        yield
