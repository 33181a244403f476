"""``dragoman attention``."""

from typing import Any

import click
from rich.console import Console
from rich.text import Text

from dragoman_client.attention import Attention, AttentionTensor
from dragoman_client.commands.arguments import check_texts
from dragoman_client.commands.documents import as_document, print_json
from dragoman_client.commands.shared import option, search_options, shared, shared_options
from dragoman_client.heatmap import Palette, clean, draw
from dragoman_client.options import DecodingOptions
from dragoman_client.words import piece_matrix, word_matrix


@click.command()
@click.argument("text", metavar="TEXT")
@option(
    "--translation", metavar="TEXT", help="Show the attention of this translation instead of the model's own."
)
@option("--layer", metavar="N", type=int, help="Only this decoder layer, from 0; by default the mean of all.")
@option("--head", metavar="N", type=int, help="Only this attention head, from 0; by default the mean of all.")
@option("--pieces", is_flag=True, help="Show vocabulary pieces instead of words.")
@search_options
@option(
    "--width",
    metavar="COLUMNS",
    type=click.IntRange(min=20),
    help="How wide to draw; by default the terminal's width.",
)
@option("--json", "as_json", is_flag=True, help="Print one JSON object for each sentence, on a line.")
@shared_options
def attention(
    text: str,
    translation: str | None,
    layer: int | None,
    head: int | None,
    pieces: bool,
    source_language: str | None,
    target_language: str | None,
    model: str | None,
    max_length: int | None,
    width: int | None,
    as_json: bool,
) -> None:
    """Draws what each word of the translation of TEXT attended to.

    Source words stand across, target words down; the brighter a cell, the more of the row's attention it has.
    """
    check_texts((text,) if translation is None else (text, translation))
    with shared().translator() as translator:
        attentions = translator.attention(
            text,
            translation=translation,
            source_language=source_language,
            target_language=target_language,
            model=model,
            options=None if max_length is None else DecodingOptions(max_decoding_length=max_length),
        )
    if not attentions:
        click.echo("The text is blank: nothing attends to anything.", err=True)
    console = shared().console()
    for index, sentence in enumerate(attentions):
        _check_selection(sentence.weights, layer, head)
        if as_json:
            print_json(_document(sentence, layer, head))
            continue
        if index:
            console.print()
        _print_sentence(console, sentence, layer=layer, head=head, pieces=pieces, width=width)


def _print_sentence(
    console: Console,
    attention: Attention,
    *,
    layer: int | None,
    head: int | None,
    pieces: bool,
    width: int | None,
) -> None:
    """Draws one sentence under its words."""
    width = width or console.width
    palette = Palette(
        # The sixteen colours of a plain terminal make no ramp.
        colored=console.color_system in ("256", "truecolor", "windows") and not console.no_color,
        ascii_only=not console.encoding.lower().startswith("utf"),
    )
    matrix = (piece_matrix if pieces else word_matrix)(attention, layer=layer, head=head)
    sentence = " ".join(_source_text(attention).split())
    console.print(Text(clean(sentence), "bold"), width=width)
    console.print(Text(clean(" ".join(attention.translation.text.split())), "bold cyan"), width=width)
    console.print(Text(_caption(attention, layer, head), "dim"), width=width)
    console.print()
    for line in draw(matrix, width=width, palette=palette):
        console.print(line, no_wrap=True, overflow="ignore", crop=False, width=width)


def _source_text(attention: Attention) -> str:
    """Returns the sentence's part of the text."""
    spans = [unit.span for unit in attention.source_units if unit.span is not None]
    return (
        attention.text[min(s.start for s in spans) : max(s.end for s in spans)] if spans else attention.text
    )


def _caption(attention: Attention, layer: int | None, head: int | None) -> str:
    weights = attention.weights
    layers = f"mean of {len(weights.layers)} layers" if layer is None else f"layer {layer}"
    heads = f"mean of {len(weights.heads)} heads" if head is None else f"head {head}"
    place = f" · sentence {attention.sentence_index + 1} of {attention.sentence_count}"
    return f"cross-attention · {layers} · {heads} · {attention.model}" + place * (
        attention.sentence_count > 1
    )


def _check_selection(weights: AttentionTensor, layer: int | None, head: int | None) -> None:
    for name, wanted, present in (("layer", layer, weights.layers), ("head", head, weights.heads)):
        if wanted is not None and wanted not in present:
            choices = ", ".join(map(str, present))
            raise click.BadParameter(
                f"there is no {name} {wanted}; there are {choices}", param_hint=f"--{name}"
            )


def _document(attention: Attention, layer: int | None, head: int | None) -> dict[str, Any]:
    """Returns a sentence as JSON's values: all weights, or those of the chosen layer and head."""
    weights = attention.weights
    layers = weights.layers if layer is None else (layer,)
    heads = weights.heads if head is None else (head,)
    targets = range(len(attention.target_units))
    document: dict[str, Any] = as_document(attention)
    document["weights"] = {
        "axes": list(weights.axes),
        "shape": [len(layers), len(heads), *weights.shape[2:]],
        "layers": list(layers),
        "heads": list(heads),
        "values": [
            [[as_document(list(weights.row(layer, head, target))) for target in targets] for head in heads]
            for layer in layers
        ],
    }
    return document
