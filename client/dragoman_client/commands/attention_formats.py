"""The formats of ``dragoman attention``: what each asks the server for, and how it is written."""

import dataclasses
import io
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeAlias

import click
from rich.console import Console
from rich.text import Text

from dragoman_client.attention import Attention, AttentionTensor, nested
from dragoman_client.commands.documents import as_document, print_json
from dragoman_client.commands.shared import shared
from dragoman_client.heatmap import Palette, draw
from dragoman_client.matrix import matrix_of
from dragoman_client.pictures.archive import pack_archive
from dragoman_client.pictures.caption import clean, describe, place_in_text, source_text
from dragoman_client.pictures.page import render_page
from dragoman_client.pictures.plot import PlotFormat, check_plotting, render_figure
from dragoman_client.selection import AttentionKind

# Sentences, where to write (None is standard output), how layers and heads were reduced, the terminal's width.
_Write: TypeAlias = Callable[[Sequence[Attention], BinaryIO | None, str | None, int | None], None]


def _nothing() -> None:
    """Needs nothing."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """A way to give attention.

    Attributes:
        name: What ``--format`` takes, and the end of its files' names.
        write: Writes sentences.
        kinds: What is asked for unless the user says so.
        reduction: How layers and heads become one unless the user says so; None keeps them apart.
        words: Units are words, unless the user says so; otherwise pieces.
        readable: Fit to be shown by a terminal.
        check: Raises ImportError where something that it needs is not installed.
    """

    name: str
    write: _Write
    kinds: tuple[str, ...] = (AttentionKind.CROSS.value,)
    reduction: str | None = None
    words: bool = False
    readable: bool = False
    check: Callable[[], None] = _nothing


def _write_text(
    attentions: Sequence[Attention], stream: BinaryIO | None, reduction: str | None, width: int | None
) -> None:
    wrapped = None if stream is None else io.TextIOWrapper(stream, encoding="utf-8", write_through=True)
    console = shared().console(stream=wrapped)
    for index, sentence in enumerate(attentions):
        if index:
            console.print()
        _print_sentence(console, sentence, reduction=reduction, width=width)


def _write_json(
    attentions: Sequence[Attention], stream: BinaryIO | None, reduction: str | None, width: int | None
) -> None:
    for sentence in attentions:
        print_json(_document(sentence), stream)


def _write_page(
    attentions: Sequence[Attention], stream: BinaryIO | None, reduction: str | None, width: int | None
) -> None:
    _write_bytes(render_page(attentions, reduction=reduction).encode(), stream)


def _write_archive(
    attentions: Sequence[Attention], stream: BinaryIO | None, reduction: str | None, width: int | None
) -> None:
    _write_bytes(pack_archive(attentions), stream)


def _plot_writer(plot_format: PlotFormat) -> _Write:
    def write(
        attentions: Sequence[Attention], stream: BinaryIO | None, reduction: str | None, width: int | None
    ) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            figure = render_figure(attentions, plot_format)
        for message in dict.fromkeys(
            str(warning.message) for warning in caught
        ):  # of letters that no font has
            click.echo(f"Warning: {message}", err=True)
        _write_bytes(figure, stream)

    return write


def _write_bytes(content: bytes, stream: BinaryIO | None) -> None:
    stream = stream or sys.stdout.buffer
    stream.write(content)
    stream.flush()


_ALL_KINDS = tuple(kind.value for kind in AttentionKind)

FORMATS = {
    form.name: form
    for form in (
        Format(name="text", write=_write_text, reduction="mean", words=True, readable=True),
        Format(name="html", write=_write_page, kinds=_ALL_KINDS, words=True),
        Format(name="png", write=_plot_writer("png"), reduction="mean", words=True, check=check_plotting),
        Format(name="svg", write=_plot_writer("svg"), reduction="mean", words=True, check=check_plotting),
        Format(name="json", write=_write_json, readable=True),
        Format(name="npz", write=_write_archive, kinds=_ALL_KINDS),
    )
}


def _print_sentence(
    console: Console, attention: Attention, *, reduction: str | None, width: int | None
) -> None:
    """Draws one sentence under its words."""
    width = width or console.width
    palette = Palette(
        # The sixteen colours of a plain terminal make no ramp.
        colored=console.color_system in ("256", "truecolor", "windows") and not console.no_color,
        ascii_only=not console.encoding.lower().startswith("utf"),
    )
    sentence = " ".join(source_text(attention).split())
    console.print(Text(clean(sentence), "bold"), width=width)
    console.print(Text(clean(" ".join(attention.translation.text.split())), "bold cyan"), width=width)
    for index, (layer, head) in enumerate(attention.weights.places()):
        if index:
            console.print()
        caption = [*describe(attention.weights, reduction, layer=layer, head=head), place_in_text(attention)]
        console.print(Text(" · ".join(caption), "dim"), width=width)
        console.print()
        matrix = matrix_of(attention, attention.weights, layer=layer, head=head)
        if not (matrix.source and matrix.target):
            console.print(Text("nothing but special tokens", "dim"), width=width)
            continue
        for line in draw(matrix, width=width, palette=palette):
            console.print(line, no_wrap=True, overflow="ignore", crop=False, width=width)


def _document(attention: Attention) -> dict[str, Any]:
    """Returns a sentence as JSON's values."""
    document: dict[str, Any] = as_document(dataclasses.replace(attention, tensors=()))
    del document["tensors"]
    document["weights"] = _tensor_document(attention.weights)
    return document


def _tensor_document(tensor: AttentionTensor) -> dict[str, Any]:
    document = {
        "kind": tensor.kind.value,
        "axes": list(tensor.axes),
        "shape": list(tensor.shape),
        "layers": list(tensor.layers),
        "heads": list(tensor.heads),
        "values": as_document(tensor.tolist()),
    }
    if tensor.indices is not None:
        document["indices"] = nested(tensor.indices, tensor.shape)
    return document
